"""Ray Tune Trainables: thin wrappers of the engine, reusable actors, no mathematics.

``trainable("mac_cal")`` returns the class of a method, for use in any ``tune.Tuner``::

    tune.Tuner(
        trainable("mac_cal"),
        param_space={
            "head": {"gamma": tune.uniform(0.7, 1.0)},
            "run": {"out": "/tmp/own/results", "store": "/tmp/own/store"},
        },
    )

Other settings have the defaults of the command line.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from ray import tune

from tune_calib.spec import plugins
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.ray.channel import send_events
from tune_calib.tuning.ray.spec_trainable import SpecTrainable
from tune_calib.tuning.ray.worker import KINDS, Worker


class PlanTrainable(tune.Trainable):
    """Executes the Ray trials of a plan, of any kind."""

    def setup(self, config: dict[str, Any]) -> None:
        """Begin the first trial."""
        self.worker = Worker()
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial."""
        send_events(new_config["run"]["channel"], new_config["work"]["name"])
        self.worker.begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """Do a step of the trial."""
        return self.worker.step()

    def cleanup(self) -> None:
        """Free what the trial holds."""
        self.worker.close()


class MethodTrainable(tune.Trainable):
    """A method, for a ``Tuner`` of your own; ``trainable`` makes a class of each."""

    kind: ClassVar[type[SpecTrainable]]

    def _setup_logdir(self) -> None:
        """Make no folder without a Tuner: Ray would leave an empty one in the user's home."""
        if self._storage:
            super()._setup_logdir()  # type: ignore[no-untyped-call]

    @classmethod
    def bound(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Resolve the trial of a configuration."""
        return cls.kind.bound(config)

    @property
    def spec(self) -> TrialSpec:
        """Return the spec of the trial."""
        return self.trial.spec

    def setup(self, config: dict[str, Any]) -> None:
        """Begin the first trial."""
        self.trial = self.kind(config, self.trial_id)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Begin another trial, as a fresh actor would."""
        self.trial.reset(new_config, self.trial_id)
        return True

    def step(self) -> dict[str, Any]:
        """Do a step of the trial."""
        return self.trial.step()

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save what the trial needs to continue."""
        self.trial.save_checkpoint(checkpoint_dir)

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load a saved checkpoint."""
        self.trial.load_checkpoint(checkpoint)

    def cleanup(self) -> None:
        """Free what the trial holds."""
        self.trial.cleanup()


def trainable(name: str) -> type[MethodTrainable]:
    """Return the Trainable of a method, e.g. ``MacCalTrainable``.

    A post-hoc method follows the network's own head; behind another head it is the ``posthoc``
    slot in the configuration of that head's class.

    Args:
        name: a name of the method registry.

    Raises:
        UserError: the method is unknown.
    """
    about = METHODS[name]
    title = "".join(part.capitalize() for part in name.split("_")) + "Trainable"
    base = KINDS["head" if about.kind == "head" else "network"]
    kind = type(title, (base,), {"method": name, "plugins": plugins.in_use()})
    return type(title, (MethodTrainable,), {"kind": kind, "__doc__": about.title})
