"""Ray trials on the screen: what is carried out, what runs, and how it ended."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from tune_calib.tuning.loggers.follow import report_rows
from tune_calib.tuning.progress.screen import current_tracker, screen
from tune_calib.tuning.ray.executor import Executor


@contextlib.contextmanager
def show_phase(
    title: str, total: int, unit: str, kinds: Mapping[str, int], executor: Executor, board: str
) -> Iterator[None]:
    """Show Ray trials while the block carries them out.

    Args:
        title: what they do, e.g. ``networks and heads``.
        total: what the bar goes to.
        unit: what it counts, e.g. ``trials``.
        kinds: how much there is to do of each kind (``kind_of``), in the units of ``weight_of``.
        executor: carries them out.
        board: where their workers say what they do.
    """
    try:
        with (
            screen() as shown,
            shown.phase(title, total, unit, kinds, lambda names: executor.told(board, names)),
        ):
            yield
    finally:
        executor.forget(board)


def begun(work: Mapping[str, Any]) -> None:
    """Show that a Ray trial begins.

    Args:
        work: its configuration, as ``plan.RayTrial.config`` gives it.
    """
    if (shown := current_tracker()) is not None:
        kind = str(work["kind"])
        weight = 1 if kind == "network" else len(work["trials"])
        shown.start(work["name"], work["title"], f"{kind}s", weight)


def ended(work: Mapping[str, Any], statuses: Mapping[str, int]) -> None:
    """Show that a Ray trial has ended, and send its rows to the loggers.

    Args:
        work: its configuration.
        statuses: how its trials ended.
    """
    report_rows(work["name"])
    if (shown := current_tracker()) is not None:
        shown.end(work["name"], statuses)


def statuses_of(work: Mapping[str, Any], result: Mapping[str, Any]) -> Mapping[str, int]:
    """How the trials of a Ray trial ended, by what it reported last."""
    own = {result.get("status", "stopped"): len(work["trials"])}
    told: Mapping[str, int] = result.get("statuses", own)
    return told


def crashed(work: Mapping[str, Any]) -> None:
    """Show that a Ray trial crashed: what needs its network will never run."""
    ended(work, {"crashed": max(len(work["trials"]), len(work.get("dependents", ())))})
