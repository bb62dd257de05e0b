"""Show Ray trials on the screen, and send their rows to the loggers."""

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tune_calib.tuning.loggers.follow import report_rows
from tune_calib.tuning.progress.screen import current_tracker, screen
from tune_calib.tuning.ray.executor import Executor


@contextlib.contextmanager
def show_phase(
    title: str, total: int, unit: str, kinds: Mapping[str, int], executor: Executor, channel: str
) -> Iterator[None]:
    """Show Ray trials while the block executes them; see ``Screen.phase``."""
    read_events = partial(executor.read_events, channel)
    try:
        with screen() as own, own.phase(title, total, unit, kinds, read_events):
            yield
    finally:
        executor.clear_events(channel)


def show_begin(work: Mapping[str, Any]) -> None:
    """Show that a Ray trial begins, by its configuration (``plan.RayTrial.config``)."""
    if (tracker := current_tracker()) is not None:
        tracker.start(work["name"], work["title"], f"{work['kind']}s", work["weight"])


def show_end(work: Mapping[str, Any], statuses: Mapping[str, int]) -> None:
    """Show how the trials of a Ray trial ended, and send their rows to the loggers."""
    report_rows(work["name"])
    if (tracker := current_tracker()) is not None:
        tracker.end(work["name"], statuses)


def show_result(work: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Show how a Ray trial ended, by its last report; without a status a scheduler stopped it."""
    own = {result.get("status", "stopped"): len(work["trials"])}
    show_end(work, result.get("statuses", own))


def show_crash(work: Mapping[str, Any]) -> None:
    """Show that a Ray trial crashed: what needs its network will never run."""
    show_end(work, {"crashed": max(len(work["trials"]), len(work.get("dependents", ())))})
