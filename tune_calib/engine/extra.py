"""Extra evaluations of finished trials: other images, shift sets, bootstrap intervals.

Networks and classifiers are read from the store; a missing classifier is trained again. The result
row of the trial does not change.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tune_calib.data.base import Split
from tune_calib.data.shift import ShiftSet, open_set
from tune_calib.data.splits import Development, load_development, load_test
from tune_calib.determinism import child_seed
from tune_calib.engine.artifacts import ensure_bank, load_network
from tune_calib.engine.bank import (
    BankKey,
    FeatureBank,
    FeatureSplit,
    bank_key,
    draw_splits,
    read_split,
    train_outputs,
    write_split,
)
from tune_calib.engine.classifier import Classifier, ensure_classifier
from tune_calib.engine.pools import PooledMembers
from tune_calib.engine.predict import ImageCounter, TrainedNetwork, evaluation_batch, output_chunks
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.files.store import Store, opened, write_folder
from tune_calib.metrics.bootstrap import bootstrap, draw, drawn_detection, drawn_under_corruption
from tune_calib.metrics.ood import detection
from tune_calib.metrics.summary import under_corruption
from tune_calib.metrics.ties import OUTPUTS
from tune_calib.spec.methods import Params
from tune_calib.spec.metrics import CORRUPTION_METRICS, OOD_METRICS, column
from tune_calib.spec.trial import TrialSpec, content_hash


def network_behind(
    spec: TrialSpec, store: Store, development: Callable[[], Development], device: torch.device
) -> TrainedNetwork:
    trained = load_network(spec, store, device)
    key = bank_key(spec, spec.head)
    # The store holds the statistics of training, but select, calib and test of the bank were
    # predicted after the views of train had updated them.
    if key.bn_mode == "train":
        train = development().train.to(device)
        for outputs in train_outputs(key, trained, spec.data.info, train):
            for _ in outputs:
                pass
    return trained


class ShiftKey(Params):
    bank: BankKey
    name: str
    made: str


def shifted_bank_key(spec: TrialSpec) -> BankKey:
    """Return the key of the bank whose network computes the shifted features of a trial."""
    key = bank_key(spec, spec.head)
    # Views are part of it only if they updated the statistics of the network.
    return key if key.bn_mode == "train" else bank_key(spec, None)


def read_shifted(folder: AnyPath) -> dict[str, FeatureSplit]:
    local, manifest = opened(folder)
    parts = {}
    for name in manifest["parts"]:
        parts[name] = read_split(local / _file(name))
    return parts


def _file(part: str) -> str:
    return f"{part or 'all'}.arrow"


Row = dict[str, Any]
_Scores = tuple[dict[str, float], dict[str, Tensor]]  # values of metrics, and their draws

# Largest number of predictions that may differ from the trial's, as threads affect last digits, and
# their largest share in reduced precision, where earlier digits depend on the GPU's load.
_FLIPPED, _FLIPPED_REDUCED = 2, 1e-3

# Metrics whose draws are stored: those that papers report and make claims about.
_DRAWN = ("accuracy", "ece", "aece", "mce", "o_ece", "u_ece", "nll", "brier")


class ExtraEvaluation:
    """Extra evaluations of trials with the same ``shifted_bank_key``."""

    def __init__(
        self, spec: TrialSpec, store: Store, root: Path | None, device: torch.device
    ) -> None:
        self.spec, self.store, self.root, self.device = spec, store, root, device
        self.key = shifted_bank_key(spec)
        self._known: set[tuple[Any, ...]] = set()  # checked by ``refuse_other``
        self._draw = lru_cache(maxsize=2)(  # of the test samples and of the OOD images
            lambda samples, resamples, seed: draw(torch.arange(samples), resamples, seed)
        )
        self._network = cache(lambda: network_behind(spec, store, self._development, device))
        self._classifiers: dict[str, Classifier] = {}  # by spec hash

    def rows_on(self, name: str, spec: TrialSpec, resamples: int = 0) -> list[Row]:
        images = self.store.images
        shift = open_set(name, self.spec.data, self.root, cache=images, test=lambda: self._test)
        rows: list[Row] = []
        for part, split in self.ensure_shifted(shift).items():
            if name.startswith("ood/"):
                values, draws = self._detect(spec, split, resamples, child_seed(0, name))
            else:
                values, draws = self._evaluate_corrupted(spec, split, resamples)
            set_name = f"{name}/{part}" if part else name
            for metric, value in values.items():
                drawn = draws[metric].tolist() if metric in draws else None
                row: Row = {"spec_hash": spec.hash, "set": set_name, "metric": metric}
                rows.append(row | {"value": value, "resamples": resamples or None, "draws": drawn})
        return rows

    def _evaluate_corrupted(self, spec: TrialSpec, split: FeatureSplit, resamples: int) -> _Scores:
        logits = self.calibrated(spec, split)
        if not bool(logits.isfinite().all()):
            return dict.fromkeys(CORRUPTION_METRICS, math.nan), {}
        labels = split.labels.to(logits.device)
        values = under_corruption(logits, labels)
        if not resamples or any(map(math.isnan, values.values())):
            return values, {}
        # The samples are drawn as for intervals.
        weights = self._draw(len(logits), resamples, 0)
        return values, drawn_under_corruption(logits, labels, weights)

    def _detect(self, spec: TrialSpec, split: FeatureSplit, resamples: int, seed: int) -> _Scores:
        test_logits = self.calibrated(spec, self.bank.test())
        logits = self.calibrated(spec, split)
        if not bool(test_logits.isfinite().all() and logits.isfinite().all()):
            return dict.fromkeys(OOD_METRICS, math.nan), {}
        values = detection(test_logits, logits)
        if not resamples or any(map(math.isnan, values.values())):
            return values, {}
        # With the seed of the test samples, an equal number of OOD images would be drawn at the
        # same positions.
        test_weights = self._draw(len(test_logits), resamples, 0)
        weights = self._draw(len(logits), resamples, seed)
        return values, drawn_detection(test_logits, logits, test_weights, weights)

    def ensure_shifted(self, shift: ShiftSet) -> dict[str, FeatureSplit]:
        key = ShiftKey(bank=self.key, name=shift.name, made=shift.made)
        folder = self.store.folder("shifts", content_hash(key))

        def make(_: dict[str, FeatureSplit] | None) -> None:
            if self.spec.network.pool is not None:
                self._pool_shifted(folder, shift, key)
                return
            trained, parts, info = self._network(), shift.parts(), self.spec.data.info.of_test()

            def fill(path: Path) -> None:
                for part in parts:
                    images = part.chunks(evaluation_batch(info), self.device)
                    outputs = output_chunks(trained.method, trained.network, images, info)
                    labels = part.split.labels
                    counter = ImageCounter(
                        len(labels), f"images of {shift.name} {part.name}".rstrip()
                    )
                    write_split(path / _file(part.name), counter.count(outputs), labels)

            names = [part.name for part in parts]
            write_folder(folder, fill, {"key": key.model_dump(), "parts": names})

        return self.store.ensure(folder, "shift", read_shifted, make)

    def _pool_shifted(self, folder: AnyPath, shift: ShiftSet, key: ShiftKey) -> None:
        pool, members = self.spec.network.pool, self.spec.members
        assert pool is not None
        banks, shifted = [], []
        for member in members:
            evaluation = ExtraEvaluation(member, self.store, self.root, self.device)
            banks.append(evaluation.bank)
            shifted.append(evaluation.ensure_shifted(shift))
        pooled = PooledMembers(pool, banks)

        def fill(path: Path) -> None:
            for name in shifted[0]:
                pooled.write(path / _file(name), [parts[name] for parts in shifted])

        write_folder(folder, fill, {"key": key.model_dump(), "parts": list(shifted[0])})

    def intervals(self, spec: TrialSpec, resamples: int) -> list[Row]:
        """Return the rows of a trial in the table ``intervals``; none if a logit is not finite."""
        test, calib = self.bank.test(), self.bank.for_trial(spec).calib()
        logits, calib_logits = self.calibrated(spec, test), self.calibrated(spec, calib)
        if not bool(logits.isfinite().all() and calib_logits.isfinite().all()):
            return []
        labels = test.labels.to(logits.device)
        held_out = calib_logits[None], calib.labels.to(logits.device)
        intervals = bootstrap(
            logits[None], labels, resamples, calib=held_out, dtype=OUTPUTS, groups=test.groups
        )
        rows = []
        for metric, interval in intervals.items():
            row: Row = {"spec_hash": spec.hash, "split": "test", "metric": metric}
            for name in ("lower", "upper", "se"):
                row[name] = float(getattr(interval, name)[0])
            drawn = interval.draws[0].tolist() if metric in _DRAWN else None
            rows.append(row | {"resamples": resamples, "draws": drawn})
        return rows

    def refuse_other(self, spec: TrialSpec, expected: dict[str, float]) -> None:
        """Raise if metrics differ from those of the result row, as with another store or images."""
        # Once for all sets: the head takes a sixth of the time of an evaluation on a corruption.
        key = (spec.hash, *sorted(expected.items()))
        if key in self._known:
            return
        test = self.bank.test()
        logits = self.calibrated(spec, test)
        if not bool(logits.isfinite().all()):
            return
        scores = under_corruption(logits, test.labels.to(logits.device))
        flipped = _FLIPPED / len(test.labels)
        if spec.network.precision != "fp32":
            flipped = max(flipped, _FLIPPED_REDUCED)
        for name in ("accuracy", "ece"):
            score, recorded = scores[name], expected[column("test", name)]
            if not math.isclose(score, recorded, abs_tol=flipped):
                raise UserError(
                    f"test {name} is {score:.6f} now but was {recorded:.6f} in the trial; set "
                    "`store` and `data_root` to those of the run"
                )
        self._known.add(key)

    @cached_property
    def bank(self) -> FeatureBank:
        """Return the bank of ``calib`` and ``test``, with views of train only if they matter."""

        def load_splits() -> tuple[Development, Split]:
            return self._development(), self._test

        return ensure_bank(
            FeatureBank,
            self.spec,
            self.key,
            self.store,
            load_splits,
            self.device,
            with_train=self.key.bn_mode == "train",
        )

    def indices(self, spec: TrialSpec) -> dict[str, Tensor]:
        """Return the position (N,) of each sample of a trial's splits in the stored data set."""
        splits = self.bank.evaluated()
        counts = [len(split.labels) for split in splits.values()]
        positions = torch.arange(sum(counts)).split(counts)
        if self.spec.data.import_record is None:
            development = self._development()
            images = (development.select, development.calib, self._test)
            positions = tuple(split.indices for split in images)
            for split, stored in zip(images, splits.values(), strict=True):
                if not torch.equal(split.labels, stored.labels):
                    raise UserError(f"`data_root` {self.root} has other data than the run")
        for name, numbers in zip(splits, positions, strict=True):
            # In place of features, so that the trial draws its own splits.
            splits[name] = replace(splits[name], features=numbers[:, None])
        return {name: split.features[:, 0] for name, split in draw_splits(splits, spec).items()}

    @cached_property
    def _test(self) -> Split:
        return load_test(self.spec.data, self.root, self.store.images)

    def _development(self) -> Development:
        return load_development(self.spec.network_data, self.root, self.store.images)

    def calibrated(self, spec: TrialSpec, split: FeatureSplit) -> Tensor:
        return self.classifier(spec).logits(split).logits[0].double()

    def classifier(self, spec: TrialSpec) -> Classifier:
        if spec.hash not in self._classifiers:
            classifier = ensure_classifier(spec, self.store, self._development, self.device)
            self._classifiers[spec.hash] = classifier
        return self._classifiers[spec.hash]
