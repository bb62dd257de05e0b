"""Checks that a frozen network is not evaluated on images on which it was trained."""

from collections.abc import Mapping
from statistics import NormalDist

from tune_calib.engine.evaluate import SplitLogits
from tune_calib.engine.store import Store
from tune_calib.engine.weights import trained_spec
from tune_calib.errors import RefusedError, UserError
from tune_calib.metrics.samples import Samples
from tune_calib.metrics.scoring import accuracy
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec

CHANCE = 1e-6  # probability of refusing a network that did not see the held-out images


def refuse_seen(made: TrialSpec, data: DataSlot) -> None:
    """Raise if a network of this program was trained or selected on the held-out images."""
    network = made.network
    if network.weights is not None:
        start = {"backbone": network.backbone, "weights": network.weights, "epochs": 0}
        TrialSpec.build(data=data.model_dump(), network=start)  # checks these weights in turn
    is_same = (made.data.dataset, made.data.info.digest) == (data.dataset, data.info.digest)
    cut = (data.split, data.holdout, data.holdout_shares)
    is_same_cut = (made.data.split, made.data.holdout, made.data.holdout_shares) == cut
    if network.is_frozen or not is_same or is_same_cut:
        return
    how = "holdout=test" if made.data.holdout == "test" else f"split={made.data.split}"
    trained = f"network.weights: the network was trained on {made.data.dataset} with data.{how}"
    if data.holds_out_train:
        raise UserError(
            f"{trained}, and a different cut of the training part holds out images that it saw; "
            "use the same cut, or set `holdout` to test"
        )
    needs = METHODS[network.method].needs
    if not made.data.holds_out_train and (network.select != "last" or "calib_pass" in needs):
        raise UserError(
            f"{trained}, and its epoch was selected on test images; cut the test part in the same "
            "way, so that `test` does not contain them"
        )


def refuse_better(spec: TrialSpec, store: Store, logits: Mapping[str, SplitLogits]) -> None:
    """Raise if a frozen network is better on images held out of train than on test.

    A one-sided z-test of two proportions decides. There is no check without test, which a search
    may not read, or if this program knows on which images the network was trained.
    """
    network = spec.network
    if not network.is_frozen or not spec.data.holds_out_train or "test" not in logits:
        return
    if network.weights is None:  # imported, with test samples of unknown origin
        return
    for name, split in logits.items():
        if not bool(split.logits.isfinite().all()):
            raise RefusedError(
                f"the frozen network returns NaN or infinite logits on {name}: its weights "
                f"({network.weights}) are too large, or belong to another backbone"
            )
    right_of_select, selected = _right(logits["select"])
    right_of_calib, calibrated = _right(logits["calib"])
    right, count = right_of_select + right_of_calib, selected + calibrated
    right_of_test, tested = _right(logits["test"])
    share = (right + right_of_test) / (count + tested)
    spread = (share * (1 - share) * (1 / count + 1 / tested)) ** 0.5
    gap = right / count - right_of_test / tested
    if gap <= NormalDist().inv_cdf(1 - CHANCE) * spread:
        return
    made = trained_spec(network.weights, store)
    if made is not None and made.network.weights is None:  # not started from unknown weights
        return
    raise RefusedError(
        f"the frozen network is correct on {right / count:.2%} of select and calib, which are from "
        f"the training part, but on {right_of_test / tested:.2%} of test: it was trained on the "
        "held-out images; set `holdout` to test"
    )


def _right(split: SplitLogits) -> tuple[int, int]:
    """Return the number of correct samples and of all samples."""
    samples = Samples(split.logits[0].double().softmax(-1), split.labels)
    return round(float(accuracy(samples)) * samples.total), samples.total
