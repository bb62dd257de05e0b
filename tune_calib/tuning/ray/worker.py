"""A worker carries out trials one after the other, in a Ray actor or in the driver's process."""

from typing import Any

from tune_calib.tuning.ray.extra import ExtraTrainable
from tune_calib.tuning.ray.head_trainable import HeadTrainable
from tune_calib.tuning.ray.network_trainable import NetworkTrainable
from tune_calib.tuning.ray.spec_trainable import SpecTrainable

KINDS: dict[str, type[SpecTrainable]] = {
    "network": NetworkTrainable,
    "head": HeadTrainable,
    "look": ExtraTrainable,
}
"""By the ``kind`` that a configuration's ``work`` asks for."""


class Worker:
    """Carries out networks, populations and closer looks, whichever comes."""

    def __init__(self) -> None:
        self._trial: SpecTrainable | None = None

    def take_up(self, config: dict[str, Any]) -> None:
        """Begin a trial; one of the same kind as the last one finds open what it shares."""
        kind = KINDS[config["work"]["kind"]]
        if type(self._trial) is kind:
            self._trial.reset(config)
            return
        self.close()
        self._trial = kind(config)

    def step(self) -> dict[str, Any]:
        """Do a step of the trial."""
        assert self._trial is not None
        return self._trial.step()

    def close(self) -> None:
        """Free what the trial holds."""
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.cleanup()
