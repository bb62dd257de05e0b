"""Extra evaluations as Ray trials: each of some trials of one network, on one shift set."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tune_calib.engine.extra import ExtraEvaluation
from tune_calib.engine.shifts import shifted_bank_key
from tune_calib.paths import parse_path
from tune_calib.progress import report_progress
from tune_calib.results.columns import TableName
from tune_calib.results.folders import refuse_moved
from tune_calib.results.tables import write_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.tuning.ray.plan import RayTrial
from tune_calib.tuning.ray.spec_trainable import DONE, SpecTrainable
from tune_calib.tuning.ray.titles import rungs

TOGETHER = 64
"""Trials of one Ray trial, at most: the evaluations of one network run side by side too."""

Measured = Mapping[str, float]


@dataclass(frozen=True)
class ExtraTrial(RayTrial):
    """Extra evaluations of finished trials of one network.

    Attributes:
        measured: of each trial, what its row says of ``test``.
        shift: name of a shift set; None asks for bootstrap intervals.
        resamples: draws of the samples; 0 on a shift set asks for none.
    """

    measured: tuple[Measured, ...] = ()
    shift: str | None = None
    resamples: int = 0

    @property
    def kind(self) -> str:
        """Return the kind of worker that executes it."""
        return "extra"

    def config(self) -> dict[str, Any]:
        """Return what its worker gets, as plain JSON values."""
        extra = {"shift": self.shift, "resamples": self.resamples}
        return {**super().config(), **extra, "measured": [dict(each) for each in self.measured]}


def group_extra_trials(
    trials: Iterable[tuple[PlannedTrial, Measured]], shift: str | None, resamples: int = 0
) -> list[ExtraTrial]:
    """Group trials by the features that they are evaluated on."""
    groups: dict[str, list[tuple[PlannedTrial, Measured]]] = {}
    for trial in trials:
        groups.setdefault(shifted_bank_key(trial[0].spec).identity, []).append(trial)
    return [
        _extra_trial(group[start : start + TOGETHER], shift, resamples)
        for group in groups.values()
        for start in range(0, len(group), TOGETHER)
    ]


def _extra_trial(
    group: list[tuple[PlannedTrial, Measured]], shift: str | None, resamples: int
) -> ExtraTrial:
    trials, measured = zip(*group, strict=True)
    what = shift or f"bootstrap/{resamples}"
    hashes = "".join(trial.spec.hash for trial in trials)
    return ExtraTrial(
        # Of its file: equal work has an equal name.
        name=f"{what.replace('/', '-')}-{hashlib.sha256(hashes.encode()).hexdigest()[:16]}",
        trials=trials,
        title=f"{what}: {rungs(trials)}",
        measured=measured,
        shift=shift,
        resamples=resamples,
    )


class ExtraTrainable(SpecTrainable):
    """Executes extra evaluations; the next ones of the same network reuse what is open."""

    def setup(self, config: dict[str, Any]) -> None:
        """Open the network of the trials."""
        super().setup(config)
        self.work = config["work"]
        key = (self.provenance.store, shifted_bank_key(self.spec))
        if getattr(self, "opened", None) != key:
            self.evaluation = ExtraEvaluation(self.spec, self.store, self.data_root, self.device)
            self.opened = key

    def _threads(self) -> int:
        return self.spec.network.threads

    def step(self) -> dict[str, Any]:
        """Evaluate every trial, and write one file, which appears whole."""
        shift, resamples, rows = self.work["shift"], self.work["resamples"], []
        trials = zip(self.trials, self.work["measured"], strict=True)
        for number, (trial, measured) in enumerate(trials):
            report_progress("evaluating", number, len(self.trials))
            self.evaluation.refuse_other(trial.spec, measured)
            if shift is None:
                rows += self.evaluation.intervals(trial.spec, resamples)
            else:
                rows += self.evaluation.rows_on(shift, trial.spec, resamples)
        table: TableName = "intervals" if shift is None else "shifts"
        if rows:
            out = parse_path(self.provenance.out)
            refuse_moved(out, self.provenance.sweep)
            write_table(out, table, self.name, pa.Table.from_pylist(rows))
        return {"status": "done", DONE: True}
