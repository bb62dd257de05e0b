"""A worker executes Ray trials one after the other, in a Ray actor or in the driver's process."""

from typing import Any

from tune_calib.tuning.ray.extra import ExtraTrainable
from tune_calib.tuning.ray.head_trainable import HeadTrainable
from tune_calib.tuning.ray.network_trainable import NetworkTrainable
from tune_calib.tuning.ray.spec_trainable import SpecTrainable

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
