"""Evaluation at the end of a trial: post-hoc fit on ``calib``, metrics on ``select``, ``test``.

A frozen network must not be evaluated on images on which it was trained.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.bank import DevelopmentBank, StoredSamples
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.predict import TrainedNetwork, pass_splits
from tune_calib.engine.weights import trained_spec
from tune_calib.errors import RefusedError, UserError
from tune_calib.files.store import Store
from tune_calib.methods._base import PostHocMethod
from tune_calib.metrics.binning import BinTable
from tune_calib.metrics.refinement import parts_of
from tune_calib.metrics.samples import Samples
from tune_calib.metrics.scoring import accuracy, is_at_chance
from tune_calib.metrics.summary import (
    collect_calib,
    collect_samples,
    computed_metrics,
    measure_network_check,
    measure_samples,
)
from tune_calib.metrics.ties import OUTPUTS
from tune_calib.metrics.validation import whole_numbers
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.spec.methods import METHODS
from tune_calib.spec.metrics import BASE, column
from tune_calib.spec.names import CHANCE, CONTROL, FEW_IMAGES, LEAST_IMAGES, REPORTED
from tune_calib.spec.slots.base import PostHocSlot
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec

FALSE_ALARM = 1e-6  # probability of refusing a network that did not see the held-out images


@dataclass(frozen=True)
class SplitLogits(StoredSamples):
    """Logits (K, N, C) of K classifiers on one split, its labels (N,), and its groups (N,).

    ``features`` (N, D) are those of the network, also behind a head.
    """

    logits: Tensor
    labels: Tensor
    groups: Tensor | None = None
    image_ids: Tensor | None = None  # as in ``data.Split``
    features: Tensor | None = None

    def one(self, k: int) -> "SplitLogits":
        return replace(self, logits=self.logits[k : k + 1])


@dataclass(frozen=True)
class Evaluation:
    metrics: dict[str, float]  # values by ``<split>/<name>``
    bins: dict[str, BinTable]  # reliability bins of each split, (1, B)
    fitted: dict[str, float]  # recorded numbers of the post-hoc fit
    flags: tuple[str, ...] = ()  # names of ``names.FLAGS``
    transform: PostHocMethod | None = None  # the fitted post-hoc transform, if any
    calib_samples: int | None = None


def network_logits(
    trained: TrainedNetwork, info: DatasetInfo, development: Development, test: Split | None
) -> dict[str, SplitLogits]:
    """Return logits of a network's own head on ``select``, ``calib`` and, if given, ``test``."""
    splits = {"select": (development.select, info), "calib": (development.calib, info)}
    if test is not None:
        splits["test"] = (test, info.of_test())
    predictions = {}
    for name, outputs in pass_splits(trained, splits):
        features, logits = map(torch.cat, zip(*outputs, strict=True))
        split = splits[name][0]
        predictions[name] = SplitLogits(
            logits[None], split.labels, image_ids=split.image_ids, features=features
        )
    return predictions


def bank_logits(
    bank: DevelopmentBank, device: torch.device, trainer: HeadBatchTrainer | None = None
) -> dict[str, SplitLogits]:
    """Return logits on the evaluated splits of a bank: of all heads, or of the network's own."""
    logits = {}
    for name, split in bank.evaluated().items():
        values = split.logits.unsqueeze(0).to(device) if trainer is None else trainer.predict(split)
        labels = split.labels.to(device)
        logits[name] = SplitLogits(values, labels, split.groups, split.image_ids, split.features)
    return logits


def read_train_check(manifest: Mapping[str, Any]) -> dict[str, float]:
    return {column("train", name): value for name, value in manifest["regime"].items()}


def compute_base_check(
    logits: dict[str, SplitLogits], train_check: Mapping[str, float]
) -> dict[str, float]:
    """Compute the network check of a trial's own network, as ``base/<split>/<name>``."""
    metrics = dict(train_check)
    for split in REPORTED:
        if split in logits:
            values = measure_network_check(logits[split].logits[0], logits[split].labels)
            metrics |= {column(split, name): value for name, value in values.items()}
    return {f"{BASE}/{name}": value for name, value in metrics.items()}


def evaluate_one(
    logits: dict[str, SplitLogits],
    posthoc: PostHocSlot | None,
    network_check: Mapping[str, float] = {},
    is_brief: bool = False,
) -> Evaluation | None:
    """Evaluate one classifier (K = 1); return None if a logit is not finite.

    Without ``test``, only the metrics that trials of a search report are computed. One of hundreds
    of draws ``is_brief``: without the metrics that take longest and without cross-validation.
    """
    # None, not an error: a diverged trial is a result, and the other heads of its batch continue.
    if not all(bool(split.logits.isfinite().all()) for split in logits.values()):
        return None
    transform = None
    if posthoc is not None:
        transform = fit_transform(posthoc, logits["calib"], checks_harm=not is_brief)
    calibrated = {name: _calibrate(split, transform) for name, split in logits.items()}
    # Not on test, since a trial at chance level must not be selected, and nothing may be selected
    # on test; on both other splits, since select alone may have few images.
    select = [calibrated["select"]] if "select" in calibrated else []
    flags = _find_chance_flag(*select, calibrated["calib"])
    metrics = dict(network_check)
    bins: dict[str, BinTable] = {}
    in_search = "test" not in logits
    calib_split = None
    if not in_search:
        calib = calibrated.pop("calib")
        calib_split = collect_calib(calib.logits, calib.labels, OUTPUTS)
        del calib  # with a thousand classes, its logits occupy hundreds of megabytes
    # A search may select by a metric that draws lack.
    in_draw = is_brief and not in_search
    names = computed_metrics(in_search, has_calib=not in_search, in_draw=in_draw)
    for name in REPORTED:
        if name not in calibrated:
            continue
        split = calibrated[name]
        samples = collect_samples(split.logits, split.labels, calib_split, OUTPUTS)
        scores = measure_samples(samples, names)
        for metric, score in scores.items():
            if not math.isnan(value := float(score)):
                metrics[column(name, metric)] = value
        bins[name] = samples.table
    count = len(logits["calib"].labels)
    if posthoc is None or transform is None:
        return Evaluation(metrics, bins, {}, flags, calib_samples=count)
    # A transform that changes predictions may fit those of calib by chance, or ruin them on other
    # images, so that calib is judged both with and without it.
    flags = flags or _find_chance_flag(*select, logits["calib"])
    fitted = {name: float(value) for name, value in transform.fitted().items()}
    flags += tuple(name for name, is_raised in transform.flags().items() if bool(is_raised))
    if METHODS[posthoc.method].is_control:
        flags += (CONTROL,)
    return Evaluation(metrics, bins, fitted, flags, transform, count)


def _find_chance_flag(*splits: SplitLogits) -> tuple[str, ...]:
    labels, predicted = torch.cat([split.labels for split in splits]), []
    for logits in (split.logits[0] for split in splits):
        for rows in parts_of(logits):  # a few, to limit memory
            predicted.append(logits[rows].double().softmax(-1).argmax(-1))
    if not is_at_chance(torch.cat(predicted), labels):
        return ()
    return (CHANCE,) if len(labels) >= LEAST_IMAGES else (FEW_IMAGES,)


def _calibrate(split: SplitLogits, transform: PostHocMethod | None) -> SplitLogits:
    # In float32, a saturated softmax is exactly 0 or 1. Such a probability is in another bin or in
    # none, which changes the first digits of classwise errors.
    logits = split.logits.double()
    if transform is not None:
        logits = transform.transform(logits, *features_for(transform, split.features, logits))
    return SplitLogits(logits, split.labels)


def features_for(
    transform: PostHocMethod, features: Tensor | None, logits: Tensor
) -> tuple[Tensor, ...]:
    """Return the features of logits as an argument of a transform, if it reads them."""
    if not transform.reads_features or features is None:
        return ()
    return (features.to(logits.device),)


@torch.no_grad()
def fit_transform(
    slot: PostHocSlot, calib: SplitLogits, weights: Tensor | None = None, checks_harm: bool = True
) -> PostHocMethod:
    """Fit the transform of a slot on float32 logits, with positive weights (N,)."""
    transform: PostHocMethod = METHODS[slot.method].implementation(slot.params)
    logits, labels = calib.logits, calib.labels
    features = features_for(transform, calib.features, logits)
    if weights is not None and not transform.takes_weights:
        counts, weights = whole_numbers(weights, slot.method), None
        logits, labels = logits.repeat_interleave(counts, 1), labels.repeat_interleave(counts)
        features = tuple(rows.repeat_interleave(counts, 0) for rows in features)
    transform.weights, transform.checks_harm = weights, checks_harm
    transform.fit(logits, labels, *features)
    transform.weights = None
    return transform


def refuse_seen(made: TrialSpec, data: DataSlot) -> None:
    """Raise if a network of this program was trained or selected on the held-out images."""
    network = made.network
    if network.weights is not None:
        start = {"backbone": network.backbone, "weights": network.weights, "epochs": 0}
        TrialSpec.build(data=data.model_dump(), network=start)  # checks these weights in turn
    is_same = (made.data.dataset, made.data.info.digest) == (data.dataset, data.info.digest)
    cut = (data.split, data.holdout, data.holdout_shares)
    is_same_cut = (made.data.split, made.data.holdout, made.data.holdout_shares) == cut
    # Of a frozen network, select and calib are drawn from those of the published draw.
    is_same_cut &= made.data.split_seed is None or not made.data.holds_out_train
    if network.is_frozen or not is_same or is_same_cut:
        return
    how = "holdout=test" if made.data.holdout == "test" else f"split={made.data.split}"
    if made.data.split_seed is not None:
        how = f"split_seed={made.data.split_seed}"
    trained = f"network.weights: the network was trained on {made.data.dataset} with data.{how}"
    if data.holds_out_train:
        raise UserError(
            f"{trained}, and a different cut of the training part holds out images that it saw; "
            "use the same cut, or set `holdout` to test"
        )
    if not made.data.holds_out_train and network.reads_held_out:
        raise UserError(
            f"{trained}, and its epoch was selected on test images; cut the test part in the same "
            "way, so that `test` does not contain them"
        )


def refuse_better(spec: TrialSpec, store: Store, logits: Mapping[str, SplitLogits]) -> None:
    """Raise if a frozen network is better, by a z-test, on images held out of train than on test.

    There is no check if this program knows on which images the network was trained.
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
    if gap <= NormalDist().inv_cdf(1 - FALSE_ALARM) * spread:
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
    samples = Samples(split.logits[0].double().softmax(-1), split.labels)
    return round(float(accuracy(samples)) * samples.total), samples.total
