"""Evaluation at the end of a trial: post-hoc fit on ``calib``, metrics on ``select``, ``test``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.artifacts import compute_network_check
from tune_calib.engine.bank import DevelopmentBank
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.network import TrainedNetwork, predict
from tune_calib.methods._base import PostHocMethod
from tune_calib.metrics.binning import BinTable, bin_table
from tune_calib.metrics.scoring import is_at_chance
from tune_calib.metrics.summary import evaluate
from tune_calib.metrics.ties import OUTPUTS, settled
from tune_calib.metrics.validation import whole_numbers
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.spec.methods import METHODS
from tune_calib.spec.metrics import BASE, column
from tune_calib.spec.names import CHANCE, FEW_IMAGES, LEAST_IMAGES
from tune_calib.spec.slots.posthoc import PostHocSlot

REPORTED = ("select", "test")


@dataclass(frozen=True)
class SplitLogits:
    """Logits (K, N, C) of K classifiers on one split, and its labels (N,)."""

    logits: Tensor
    labels: Tensor

    def one(self, k: int) -> "SplitLogits":
        """Return the logits of classifier k only, K = 1."""
        return SplitLogits(self.logits[k : k + 1], self.labels)


@dataclass(frozen=True)
class Evaluation:
    """The results of one classifier at the end of its trial."""

    metrics: dict[str, float]  # values by ``<split>/<name>``
    bins: dict[str, BinTable]  # reliability bins of each split, (1, B)
    fitted: dict[str, float]  # recorded numbers of the post-hoc fit
    flags: tuple[str, ...] = ()  # names of ``names.FLAGS``
    transform: PostHocMethod | None = None  # the fitted post-hoc transform, if any


def network_logits(
    trained: TrainedNetwork, info: DatasetInfo, development: Development, test: Split | None
) -> dict[str, SplitLogits]:
    """Return logits of a network's own head on ``select``, ``calib`` and, if given, ``test``."""
    splits = {"select": (development.select, info), "calib": (development.calib, info)}
    if test is not None:
        splits["test"] = (test, info.of_test())
    logits = {}
    for name, (split, normalised_by) in splits.items():
        doing = f"evaluating the network on {name}"
        outputs = predict(trained.method, trained.network, split.images, normalised_by, doing)
        logits[name] = SplitLogits(outputs[1].unsqueeze(0), split.labels)
    return logits


def head_batch_logits(trainer: HeadBatchTrainer, bank: DevelopmentBank) -> dict[str, SplitLogits]:
    """Return the logits of all heads of a finished head batch on the evaluated splits of a bank."""
    logits = {}
    for name, split in bank.evaluated().items():
        logits[name] = SplitLogits(trainer.predict(split), split.labels.to(trainer.device))
    return logits


def bank_logits(bank: DevelopmentBank, device: torch.device) -> dict[str, SplitLogits]:
    """Return the logits of a network's own head from its clean bank, as ``network_logits``."""
    logits = {}
    for name, split in bank.evaluated().items():
        logits[name] = SplitLogits(split.logits.unsqueeze(0).to(device), split.labels.to(device))
    return logits


def read_train_check(manifest: Mapping[str, Any]) -> dict[str, float]:
    """Return the network check on train from a manifest, by column."""
    return {column("train", name): value for name, value in manifest["regime"].items()}


def compute_base_check(
    logits: dict[str, SplitLogits], train_check: Mapping[str, float]
) -> dict[str, float]:
    """Compute the network check of a trial's own network, as ``base/<split>/<name>``."""
    metrics = dict(train_check)
    for split in REPORTED:
        if split in logits:
            values = compute_network_check(logits[split].logits[0], logits[split].labels)
            metrics |= {column(split, name): value for name, value in values.items()}
    return {f"{BASE}/{name}": value for name, value in metrics.items()}


def compute_bank_check(bank: DevelopmentBank) -> dict[str, float]:
    """Compute ``compute_base_check`` for a bank, on the splits that a trial may read."""
    logits = bank_logits(bank, torch.device("cpu"))
    return compute_base_check(logits, read_train_check(bank.manifest))


def evaluate_one(
    logits: dict[str, SplitLogits],
    posthoc: PostHocSlot | None,
    network_check: Mapping[str, float] = {},
) -> Evaluation | None:
    """Evaluate one classifier (K = 1); return None if a logit is not finite.

    A transform is fitted on ``calib`` first. Without logits on ``test``, only the metrics that
    trials of a search report are computed. The result includes the ``network_check``, of
    ``read_train_check`` or ``compute_base_check``. Metrics that are not defined are left out.
    """
    # None, not an error: a diverged trial is a result, and the other heads of its batch continue.
    if not all(bool(split.logits.isfinite().all()) for split in logits.values()):
        return None
    transform = fit_transform(posthoc, logits["calib"]) if posthoc is not None else None
    calibrated = {name: _calibrate(split, transform) for name, split in logits.items()}
    metrics = dict(network_check)
    bins: dict[str, BinTable] = {}
    in_search = "test" not in logits
    calib = None if in_search else (calibrated["calib"].logits, calibrated["calib"].labels)
    for name in REPORTED:
        if name not in calibrated:
            continue
        split = calibrated[name]
        scores = evaluate(split.logits, split.labels, calib, in_search=in_search, dtype=OUTPUTS)
        for metric, score in scores.items():
            if not math.isnan(value := float(score)):
                metrics[column(name, metric)] = value
        bins[name] = bin_table(settled(split.logits, OUTPUTS).probs, split.labels)
    # Not on test, since a trial at chance level must not be selected, and nothing may be selected
    # on test; on both other splits, since select alone may have few images.
    flags = _find_chance_flag(calibrated["select"], calibrated["calib"])
    if transform is None:
        return Evaluation(metrics, bins, {}, flags)
    # A transform that changes predictions may fit those of calib by chance, or ruin them on other
    # images, so that calib is judged both with and without it.
    flags = flags or _find_chance_flag(calibrated["select"], _calibrate(logits["calib"], None))
    fitted = {name: float(value) for name, value in transform.fitted().items()}
    flags += tuple(name for name, is_raised in transform.flags().items() if bool(is_raised))
    return Evaluation(metrics, bins, fitted, flags, transform)


def _find_chance_flag(select: SplitLogits, calib: SplitLogits) -> tuple[str, ...]:
    """Return the flag of a classifier that is no better than chance on both splits together."""
    labels = torch.cat([select.labels, calib.labels])
    probs = torch.cat([select.logits[0], calib.logits[0]]).softmax(-1)
    if not is_at_chance(probs, labels):
        return ()
    return (CHANCE,) if len(labels) >= LEAST_IMAGES else (FEW_IMAGES,)


def _calibrate(split: SplitLogits, transform: PostHocMethod | None) -> SplitLogits:
    """Return the logits after a transform, float64."""
    # In float32, a saturated softmax is exactly 0 or 1. Such a probability is in another bin or in
    # none, which changes the first digits of classwise errors.
    logits = split.logits.double()
    if transform is not None:
        logits = transform.transform(logits)
    return SplitLogits(logits, split.labels)


@torch.no_grad()
def fit_transform(
    slot: PostHocSlot, calib: SplitLogits, weights: Tensor | None = None
) -> PostHocMethod:
    """Fit the transform of a slot on the original float32 logits, with positive weights (N,).

    Raises:
        ValueError: the method counts samples, and a weight is not a whole number.
    """
    transform: PostHocMethod = METHODS[slot.method].implementation(slot.params)
    if weights is not None and not transform.takes_weights:
        counts = whole_numbers(weights, slot.method)
        logits = calib.logits.repeat_interleave(counts, 1)
        calib, weights = SplitLogits(logits, calib.labels.repeat_interleave(counts)), None
    transform.weights = weights
    transform.fit(calib.logits, calib.labels)
    transform.weights = None
    return transform
