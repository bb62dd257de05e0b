"""Checks that a frozen network is not evaluated on images on which it was trained."""

from collections.abc import Mapping
from statistics import NormalDist

from tune_calib.engine.evaluate import SplitLogits
from tune_calib.engine.store import Store
from tune_calib.engine.weights import trained_spec
from tune_calib.errors import RefusedError, UserError
from tune_calib.metrics.scoring import accuracy
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec

CHANCE = 1e-6
"""Probability that a network that did not see the held-out images is refused."""


def refuse_seen(made: TrialSpec, data: DataSlot) -> None:
    """Refuse held-out images on which a network of this program was trained or selected."""
    network = made.network
    if network.weights is not None:
        own = {"backbone": network.backbone, "weights": network.weights, "epochs": 0}
        TrialSpec.build(data=data.model_dump(), network=own)  # which may be known themselves
    is_same = (made.data.dataset, made.data.info.digest) == (data.dataset, data.info.digest)
    cuts = {(each.split, each.holdout, each.holdout_shares) for each in (made.data, data)}
    if network.is_frozen or not is_same or len(cuts) == 1:
        return
    how = "holdout=test" if made.data.holdout == "test" else f"split={made.data.split}"
    trained = f"network.weights: the network was trained on {made.data.dataset} with data.{how}"
    if data.holds_out_train:
        raise UserError(
            f"{trained}, and another cut of the training part holds out images that it saw; use "
            "the same cut, or take `holdout` test"
        )
    needs = METHODS[network.method].needs
    if not made.data.holds_out_train and (network.select != "last" or "calib_pass" in needs):
        raise UserError(
            f"{trained}, and its epoch was chosen on test images; cut the test part in the same "
            "way, so that test lacks them"
        )


def refuse_better(spec: TrialSpec, store: Store, logits: Mapping[str, SplitLogits]) -> None:
    """Refuse a frozen network that is better on images held out of train than on test.

    A one-sided z-test of two proportions decides. Nothing is refused without test, which a search
    may not read, or if this program knows which images the network saw.
    """
    network = spec.network
    if not network.is_frozen or not spec.data.holds_out_train or "test" not in logits:
        return
    if network.weights is None:  # imported, with test samples of unknown origin
        return
    held_out = [_right(logits[name]) for name in ("select", "calib")]
    right, count = (sum(numbers) for numbers in zip(*held_out, strict=True))
    right_of_test, tested = _right(logits["test"])
    share = (right + right_of_test) / (count + tested)
    spread = (share * (1 - share) * (1 / count + 1 / tested)) ** 0.5
    gap = right / count - right_of_test / tested
    if gap <= NormalDist().inv_cdf(1 - CHANCE) * spread:
        return
    made = trained_spec(network.weights, store)
    if made is not None and made.network.weights is None:  # else it began with foreign weights
        return
    raise RefusedError(
        f"the frozen network is right on {right / count:.2%} of select and calib, which are of the "
        f"training part, but on {right_of_test / tested:.2%} of test: it was trained on the images "
        "held out; take `holdout` test"
    )


def _right(split: SplitLogits) -> tuple[int, int]:
    """Return the number of right samples, and of all."""
    count = len(split.labels)
    return round(float(accuracy(split.logits[0].double().softmax(-1), split.labels)) * count), count
