"""Ray trials on the screen: what is carried out, what runs, and how it ended."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ray import tune

from tune_calib.progress import activity
from tune_calib.tuning.progress.screen import screen, working
from tune_calib.tuning.ray import board


@contextlib.contextmanager
def carried_out(
    title: str, total: int, unit: str, kinds: Mapping[str, int], board_name: str
) -> Iterator[None]:
    """Show Ray trials while the block carries them out.

    Args:
        title: what they do, e.g. ``networks and heads``.
        total: what the bar goes to.
        unit: what it counts, e.g. ``trials``.
        kinds: how much there is to do of each kind (``kind_of``), in the units of ``weight_of``.
        board_name: where their workers say what they do.
    """
    activity("starting workers")
    try:
        with (
            screen() as shown,
            shown.phase(title, total, unit, kinds, lambda names: board.told(board_name, names)),
        ):
            yield
    finally:
        board.clear(board_name)


class Progress(tune.Callback):
    """Tells the screen what a ``Tuner`` begins and ends."""

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Ray pickles its callbacks for a restore, which is not used."""
        return {}

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """A worker takes it up."""
        begun(trial.config["work"])

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """It ended by itself, or a scheduler ended it."""
        work, result = trial.config["work"], trial.last_result
        own = {result.get("status", "stopped"): len(work["trials"])}
        ended(work, result.get("statuses", own))

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """It crashed, and what needs its network will never run."""
        work = trial.config["work"]
        ended(work, {"crashed": max(len(work["trials"]), len(work.get("dependents", ())))})


def begun(work: Mapping[str, Any]) -> None:
    """Show that a Ray trial begins.

    Args:
        work: its configuration, as ``plan.RayTrial.config`` gives it.
    """
    if (shown := working()) is not None:
        kind = str(work["kind"])
        weight = 1 if kind == "network" else len(work["trials"])
        shown.start(work["name"], work["told"], f"{kind}s", weight)


def ended(work: Mapping[str, Any], statuses: Mapping[str, int]) -> None:
    """Show that a Ray trial has ended.

    Args:
        work: its configuration.
        statuses: how its trials ended.
    """
    if (shown := working()) is not None:
        shown.end(work["name"], statuses)
