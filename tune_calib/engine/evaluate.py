"""Evaluation at the end of a trial: post-hoc fit on ``calib``, metrics on ``select``, ``test``."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.artifacts import finite_regime
from tune_calib.engine.bank import BankKey, DevelopmentBank
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
        outputs = predict(
            trained.method,
            trained.network,
            split.images,
            normalised_by,
            f"evaluating the network on {name}",
        )
        logits[name] = SplitLogits(outputs[1].unsqueeze(0), split.labels)
    return logits


def head_batch_logits(trainer: HeadBatchTrainer, bank: DevelopmentBank) -> dict[str, SplitLogits]:
    """Return the logits of all heads of a finished head batch on the evaluated splits of a bank."""
    return {
        name: SplitLogits(trainer.predict(split), split.labels.to(trainer.device))
        for name, split in bank.evaluated().items()
    }


def bank_logits(bank: DevelopmentBank, device: torch.device) -> dict[str, SplitLogits]:
    """Return the logits of a network's own head from its clean bank, as ``network_logits``."""
    return {
        name: SplitLogits(split.logits.unsqueeze(0).to(device), split.labels.to(device))
        for name, split in bank.evaluated().items()
    }


def regime_of_train(about: Mapping[str, Any]) -> dict[str, float]:
    """Return the network check on train from a manifest; empty in those of earlier versions."""
    return {column("train", name): value for name, value in about.get("regime", {}).items()}


def regime_of_images(
    trained: TrainedNetwork, info: DatasetInfo, development: Development
) -> dict[str, float]:
    """Compute the values of ``regime_of_train`` for a network whose manifest lacks them."""
    doing = "evaluating the network on train"
    outputs = predict(trained.method, trained.network, development.train.images, info, doing)
    return _regime("train", SplitLogits(outputs[1].unsqueeze(0), development.train.labels))


def regime_of_base(logits: dict[str, SplitLogits], train: Mapping[str, float]) -> dict[str, float]:
    """Return the network check of a trial's own network, as ``base/<split>/<name>``."""
    parts = [train, *(_regime(name, logits[name]) for name in REPORTED if name in logits)]
    return {f"{BASE}/{name}": value for part in parts for name, value in part.items()}


def regime_of_bank(bank: DevelopmentBank, key: BankKey) -> dict[str, float]:
    """Return ``regime_of_base`` for a bank, on the splits that a trial may read."""
    train = regime_of_train(bank.about)
    if not train and bank.views and key.views == 0 and key.bn_mode == "eval":
        clean = bank.train()
        train = _regime("train", SplitLogits(clean.logits.unsqueeze(0), clean.labels))
    # For banks of an earlier version with augmented views of train. Imports may lack the accuracy.
    if not train and (accuracy := bank.about["accuracy"].get("train")) is not None:
        train = {column("train", "accuracy"): accuracy}
    return regime_of_base(bank_logits(bank, torch.device("cpu")), train)


def _regime(name: str, split: SplitLogits) -> dict[str, float]:
    found = finite_regime(split.logits[0], split.labels)
    return {column(name, metric): value for metric, value in found.items()}


def evaluate_one(
    logits: dict[str, SplitLogits], posthoc: PostHocSlot | None, known: Mapping[str, float] = {}
) -> Evaluation | None:
    """Evaluate one classifier (K = 1); return None if a logit is not finite.

    A transform is fitted on ``calib`` first. Without logits on ``test``, only the metrics that
    trials of a search report are computed. ``known`` are further metrics, from ``regime_of_train``
    or ``regime_of_base``. Metrics that are not defined are left out.
    """
    # None, not an error: a diverged trial is a result, and the other heads of its batch continue.
    if not all(bool(split.logits.isfinite().all()) for split in logits.values()):
        return None
    transform = fit_transform(posthoc, logits["calib"]) if posthoc is not None else None
    metrics = dict(known)
    bins: dict[str, BinTable] = {}
    in_search = "test" not in logits
    calib = None if in_search else _applied(transform, logits["calib"])
    judged = {name: _applied(transform, logits[name]) for name in REPORTED if name in logits}
    for name, (values, labels) in judged.items():
        scores = evaluate(values, labels, calib, in_search, OUTPUTS)
        found = {column(name, key): float(score) for key, score in scores.items()}
        metrics |= {key: score for key, score in found.items() if not math.isnan(score)}
        bins[name] = bin_table(settled(values, OUTPUTS).probs, labels)
    # Not on test, since a trial at chance level must not be selected, and nothing may be selected
    # on test; on both other splits, since select alone may have few images.
    flags = _flag_of_chance(judged["select"], logits["calib"], transform)
    fitted = transform.fitted() if transform is not None else {}
    plain = {name: float(value) for name, value in fitted.items()}
    raised = {} if transform is None else transform.flags()
    flags = (*flags, *(name for name, is_so in raised.items() if bool(is_so)))
    return Evaluation(metrics, bins, plain, flags, transform)


def _flag_of_chance(
    select: tuple[Tensor, Tensor], calib: SplitLogits, transform: PostHocMethod | None
) -> tuple[str, ...]:
    """Return the flag of a classifier that is no better than chance on select and calib together.

    A transform that changes predictions may fit those of calib by chance, or ruin them on other
    images, so that calib is judged both with and without it.
    """
    labels = torch.cat([select[1], calib.labels])
    for applied in dict.fromkeys((None, transform)):
        probs = torch.cat([select[0][0], _applied(applied, calib)[0][0]]).softmax(-1)
        if is_at_chance(probs, labels):
            return (CHANCE if len(labels) >= LEAST_IMAGES else FEW_IMAGES,)
    return ()


def _applied(transform: PostHocMethod | None, split: SplitLogits) -> tuple[Tensor, Tensor]:
    """Return the transformed logits and the labels."""
    # In float32, a saturated softmax is exactly 0 or 1. Such a probability is in another bin or in
    # none, which changes the first digits of classwise errors.
    logits = split.logits.double()
    return (logits if transform is None else transform.transform(logits)), split.labels


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
