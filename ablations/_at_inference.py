"""Rungs with masks only at inference, on the network's own head."""

from collections.abc import Iterator

from tune_calib.spec.ladder import Rung

_EVALUATIONS = {
    "last_mask": "the weights under the last mask",
    "mc": "probabilities of 20 masks, averaged",
}
_KEPT = (0.9, 0.7, 0.5, 0.3)


def at_inference() -> Iterator[Rung]:
    """Yield a rung for each share of kept weights, with one mask and averaged over masks."""
    for evaluation, text in _EVALUATIONS.items():
        for q in _KEPT:
            head = {
                "method": "mac_cal",
                "start": "frozen",
                "shape": "linear",
                "masking": "functional",
                "tau0": 0.0,
                # Nothing is trained, and q stays constant.
                "epochs": 1,
                "q0": q,
                "evaluation": evaluation,
            }
            label, ingredient = (
                f"at inference, q {q:g}, {evaluation}",
                f"nothing is trained; {text}",
            )
            yield Rung(label, ingredient, {"head": head}, kind="variant")
