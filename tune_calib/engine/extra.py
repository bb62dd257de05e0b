"""A closer look at finished trials: on shifted images, and with bootstrap intervals.

It trains nothing: networks are read from the store, and so are classifiers, unless one must be made
again. Nothing of it is part of a trial, whose row stays as it is.
"""

import math
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tune_calib.data.base import Split
from tune_calib.data.shift import open_set
from tune_calib.data.splits import Development, load_development, load_test
from tune_calib.determinism import child_seed
from tune_calib.engine.artifacts import TrainedNetwork, ensure_bank
from tune_calib.engine.bank import FeatureBank, FeatureSplit
from tune_calib.engine.classifier import Classifier, load_classifier
from tune_calib.engine.finished import network_behind
from tune_calib.engine.shifts import ShiftedFeatures, ensure_shifted, shifted_bank_key
from tune_calib.engine.store import Store
from tune_calib.errors import UserError
from tune_calib.metrics.bootstrap import bootstrap, draw
from tune_calib.metrics.drawn_ood import drawn_detection
from tune_calib.metrics.ood import detection
from tune_calib.metrics.shifted import drawn_under_corruption, under_corruption
from tune_calib.spec.metrics import CORRUPTION_METRICS, OOD_METRICS, column
from tune_calib.spec.trial import TrialSpec

Row = dict[str, Any]

_FLIPPED = 2
"""Samples whose prediction may differ from that of the trial: on another number of threads last
digits are others."""


_DRAWN = ("accuracy", "ece", "aece", "mce", "o_ece", "u_ece", "nll", "brier")
"""Metrics whose draws are kept: those that papers print and claim something of."""


class ExtraEvaluation:
    """Extra evaluations of trials of one network, whose features it reads or makes once.

    The trials have the ``shifted_bank_key`` of ``spec``. A ``DamagedFileError`` is raised if the
    store does not hold the network, or not whole.
    """

    def __init__(
        self, spec: TrialSpec, store: Store, root: Path | None, device: torch.device
    ) -> None:
        self.spec, self.store, self.root, self.device = spec, store, root, device
        self.key = shifted_bank_key(spec)
        self._classifiers: dict[str, Classifier] = {}
        self._known: set[tuple[Any, ...]] = set()  # what ``refuse_other`` let pass
        self._draw = lru_cache(maxsize=2)(draw)  # of the test samples, and of foreign images

    def rows_on(self, name: str, spec: TrialSpec, resamples: int = 0) -> list[Row]:
        """Return rows of a trial in the table ``shifts`` on a shift set.

        Its samples, and those of the test split, are drawn ``resamples`` times.
        """
        is_foreign = name.startswith("ood/")
        own = self._calibrated(spec, self.bank.test()) if is_foreign else None
        rows = []
        for part, split in self._features(name).parts().items():
            found = self._calibrated(spec, split)
            if own is not None:
                values = _finite(OOD_METRICS, own, found) or detection(own, found)
            else:
                labels = split.labels.to(found.device)
                values = _finite(CORRUPTION_METRICS, found) or under_corruption(found, labels)
            is_drawn = resamples and not any(map(math.isnan, values.values()))
            draws = self._drawn_on(name, own, found, split, resamples) if is_drawn else {}
            where = f"{name}/{part}" if part else name
            rows += [
                {
                    "spec_hash": spec.hash,
                    "set": where,
                    "metric": metric,
                    "value": value,
                    "resamples": resamples or None,
                    "draws": draws[metric].tolist() if metric in draws else None,
                }
                for metric, value in values.items()
            ]
        return rows

    def _drawn_on(
        self, name: str, own: Tensor | None, found: Tensor, split: FeatureSplit, resamples: int
    ) -> dict[str, Tensor]:
        """Return metrics of a part of a shift set on each draw."""
        if own is None:
            # The test samples, corrupted: drawn as they are for intervals.
            weights = self._draw(len(found), resamples, 0)
            return drawn_under_corruption(found, split.labels.to(found.device), weights)
        # With the seed of the test samples, as many foreign images would be drawn as these are.
        foreign = self._draw(len(found), resamples, child_seed(0, name))
        return drawn_detection(own, found, self._draw(len(own), resamples, 0), foreign)

    def intervals(self, spec: TrialSpec, resamples: int) -> list[Row]:
        """Return rows of a trial in the table ``intervals``; none if a logit is not finite."""
        test, calib = self.bank.test(), self.bank.calib()
        own, known = (self._calibrated(spec, split)[None] for split in (test, calib))
        if not bool(own.isfinite().all() and known.isfinite().all()):
            return []
        labels, of_calib = (split.labels.to(own.device) for split in (test, calib))
        found = bootstrap(own, labels, resamples, calib=(known, of_calib))
        return [
            {
                "spec_hash": spec.hash,
                "split": "test",
                "metric": metric,
                "lower": float(interval.lower[0]),
                "upper": float(interval.upper[0]),
                "se": float(interval.se[0]),
                "resamples": resamples,
                "draws": interval.draws[0].tolist() if metric in _DRAWN else None,
            }
            for metric, interval in found.items()
        ]

    def refuse_other(self, spec: TrialSpec, told: dict[str, float]) -> None:
        """Refuse a classifier whose metrics are not those of its row: another store or images."""
        # Once for all sets: the head alone costs a sixth of a look at a corruption.
        question = (spec.hash, *sorted(told.items()))
        if question in self._known:
            return
        test = self.bank.test()
        own = self._calibrated(spec, test)
        if not bool(own.isfinite().all()):
            return
        now = under_corruption(own, test.labels.to(own.device))
        for name in ("accuracy", "ece"):
            value, before = now[name], told[column("test", name)]
            if not math.isclose(value, before, abs_tol=_FLIPPED / len(test.labels)):
                raise UserError(
                    f"test {name} is {value:.6f} now and was {before:.6f} in its trial; name the "
                    "`store` and `data_root` of the run"
                )
        self._known.add(question)

    @cached_property
    def bank(self) -> FeatureBank:
        """Features of ``calib`` and ``test``; views of train are made only if they matter."""
        splits = lambda: (self._development(), self._test)  # noqa: E731
        with_train = self.key.bn_mode == "train"
        return ensure_bank(self.spec, self.key, self.store, splits, self.device, with_train)

    @cached_property
    def _network(self) -> TrainedNetwork:
        return network_behind(self.spec, self.store, self._development, self.device)

    @cached_property
    def _test(self) -> Split:
        return load_test(self.spec.data, self.root, self.store.images)

    def _development(self) -> Development:
        return load_development(self.spec.data, self.root, self.store.images)

    def _features(self, name: str) -> ShiftedFeatures:
        test = lambda: self._test  # noqa: E731
        shift = open_set(name, self.spec.data, self.root, self.store.images, test)
        network = lambda: self._network  # noqa: E731
        return ensure_shifted(self.spec, self.key, shift, self.store, network, self.device)

    def _calibrated(self, spec: TrialSpec, split: FeatureSplit) -> Tensor:
        """Return logits (N, C) of a trial's classifier, float64."""
        if spec.hash not in self._classifiers:
            found = load_classifier(spec, self.store, self._development, self.device)
            self._classifiers[spec.hash] = found
        return self._classifiers[spec.hash].logits(split).logits[0].double()


def _finite(names: tuple[str, ...], *logits: Tensor) -> dict[str, float]:
    """Return NaN for each metric if a logit is not finite; else nothing."""
    if all(bool(each.isfinite().all()) for each in logits):
        return {}
    return dict.fromkeys(names, math.nan)
