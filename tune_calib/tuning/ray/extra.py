"""Closer looks as Ray trials, each at some trials of one network on one shift set.

To do = asked - written: what a Ray trial finds is one file, which appears whole.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tune_calib.engine.look import Looker
from tune_calib.engine.shifts import shifted_bank_key
from tune_calib.paths import parse_path
from tune_calib.progress import report_progress
from tune_calib.results.columns import TableName
from tune_calib.results.folders import refuse_moved
from tune_calib.results.tables import write_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.slots.network import Precision
from tune_calib.tuning.progress.tracker import TRIALS
from tune_calib.tuning.ray.executor import OVER, Executor, configuration, last_line
from tune_calib.tuning.ray.plan import plain
from tune_calib.tuning.ray.progress import show_phase
from tune_calib.tuning.ray.rows import Provenance
from tune_calib.tuning.ray.spec_trainable import DONE, SpecTrainable
from tune_calib.tuning.ray.titles import rungs

TOGETHER = 64
"""Trials of one Ray trial, at most: those of one network are looked at side by side too."""

Told = Mapping[str, float]


@dataclass(frozen=True)
class ExtraTrial:
    """What one Ray trial does.

    Attributes:
        trials: finished trials of one network, and what their rows say of test.
        shift: name of a shift set; None asks for bootstrap intervals.
        resamples: draws of the samples; 0 on a shift set asks for none.
    """

    trials: tuple[tuple[PlannedTrial, Told], ...]
    shift: str | None
    resamples: int = 0

    @property
    def name(self) -> str:
        """Of its file: equal work has an equal name."""
        hashes = "".join(trial.spec.hash for trial, _ in self.trials)
        digest = hashlib.sha256(hashes.encode()).hexdigest()[:16]
        return f"{self.what.replace('/', '-')}-{digest}"

    @property
    def what(self) -> str:
        """What is looked at."""
        return self.shift or f"bootstrap/{self.resamples}"

    @property
    def threads(self) -> int:
        """CPU cores that Ray keeps for it, also its torch threads."""
        return self.trials[0][0].spec.network.threads

    @property
    def precision(self) -> Precision:
        """Of its network."""
        return self.trials[0][0].spec.network.precision

    def config(self) -> dict[str, Any]:
        """What travels to the worker, as plain JSON values."""
        return {
            "name": self.name,
            "kind": "look",
            "title": f"{self.what}: {rungs([trial for trial, _ in self.trials])}",
            "threads": self.threads,
            "trials": [plain(trial) for trial, _ in self.trials],
            "rows": [dict(told) for _, told in self.trials],
            "shift": self.shift,
            "resamples": self.resamples,
        }


def group_extra_trials(
    trials: Iterable[tuple[PlannedTrial, Told]], shift: str | None, resamples: int = 0
) -> list[ExtraTrial]:
    """Group trials by the features that they are looked at with."""
    groups: dict[str, list[tuple[PlannedTrial, Told]]] = {}
    for trial in trials:
        groups.setdefault(shifted_bank_key(trial[0].spec).identity, []).append(trial)
    return [
        ExtraTrial(tuple(group[start : start + TOGETHER]), shift, resamples)
        for group in groups.values()
        for start in range(0, len(group), TOGETHER)
    ]


class ExtraTrainable(SpecTrainable):
    """Carries out a look; the next one of the same network finds open what it needs."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take up the network of the trials."""
        super().setup(config)
        self.work = config["work"]
        key = (self.provenance.store, shifted_bank_key(self.spec))
        if getattr(self, "looks_at", None) != key:
            self.looker = Looker(self.spec, self.store, self._data_root(), self.device)
            self.looks_at = key

    def _threads(self) -> int:
        return self.spec.network.threads

    def step(self) -> dict[str, Any]:
        """ExtraTrial at every trial, and write what is found."""
        rows = []
        for number, (trial, told) in enumerate(zip(self.trials, self.work["rows"], strict=True)):
            report_progress("looking at it", number, len(self.trials))
            self.looker.refuse_other(trial.spec, told)
            if self.work["shift"] is None:
                rows += self.looker.intervals(trial.spec, self.work["resamples"])
            else:
                rows += self.looker.rows_on(self.work["shift"], trial.spec, self.work["resamples"])
        table: TableName = "intervals" if self.work["shift"] is None else "shifts"
        if rows:
            out = parse_path(self.provenance.out)
            refuse_moved(out, self.provenance.sweep)
            write_table(out, table, self.name, pa.Table.from_pylist(rows))
        return {"status": "done", DONE: True}


class ExtraFeed:
    """Hands out looks in their order: those of one network follow each other."""

    def __init__(self, looks: Sequence[ExtraTrial], provenance: Provenance) -> None:
        self.left = deque(looks)
        self.provenance = provenance

    def suggest(self, trial_id: str) -> Any:
        """The next look."""
        if not self.left:
            return OVER
        return configuration(self.provenance, self.left.popleft().config())

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """No look waits for another."""


def execute_extra(
    looks: Sequence[ExtraTrial], executor: Executor, provenance: Provenance, gpus: float
) -> list[str]:
    """Carry looks out.

    Args:
        looks: what to do.
        executor: carries them out.
        provenance: of the run.
        gpus: of each trial.

    Returns:
        One line for each Ray trial that crashed.
    """
    if not looks:
        return []
    feed = ExtraFeed(looks, provenance)
    total = sum(len(look.trials) for look in looks)
    kinds = {"looks": total}
    with show_phase("closer look", total, TRIALS, kinds, executor, provenance.board):
        errors = executor.run(feed, len(looks), provenance, gpus)
    return [last_line(error) for error in errors]
