"""A worker executes Ray trials one after the other, in a Ray actor or in the driver's process."""

from typing import Any

import pyarrow as pa

from tune_calib.engine.extra import ExtraEvaluation, shifted_bank_key
from tune_calib.paths import parse_path
from tune_calib.progress import report_progress
from tune_calib.results.folders import refuse_moved
from tune_calib.results.tables import write_table
from tune_calib.tuning.ray.spec_trainable import DONE, SpecTrainable
from tune_calib.tuning.ray.training import HeadTrainable, NetworkTrainable


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
        if rows:
            out = parse_path(self.provenance.out)
            refuse_moved(out, self.provenance.sweep)
            table = pa.Table.from_pylist(rows)
            write_table(out, "intervals" if shift is None else "shifts", self.name, table)
        return {"status": "done", DONE: True}


KINDS: dict[str, type[SpecTrainable]] = {
    "network": NetworkTrainable,
    "head": HeadTrainable,
    "extra": ExtraTrainable,
}
"""By ``plan.RayTrial.kind``."""


class Worker:
    """Executes trials of any kind; those of the same kind share what is open."""

    def __init__(self) -> None:
        self._trial: SpecTrainable | None = None

    @property
    def trial(self) -> SpecTrainable:
        """Return the trial that runs."""
        assert self._trial is not None
        return self._trial

    def begin(self, config: dict[str, Any]) -> None:
        """Begin a trial."""
        kind = KINDS[config["work"]["kind"]]
        if self._trial is not None and type(self._trial) is kind:
            self._trial.reset(config)
            return
        self.close()
        self._trial = kind(config)

    def step(self) -> dict[str, Any]:
        """Do a step of the trial."""
        return self.trial.step()

    def close(self) -> None:
        """Free what the trial holds."""
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.cleanup()
