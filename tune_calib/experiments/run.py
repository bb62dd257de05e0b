"""Run the ladders and searches of an experiment file one after the other."""

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tune_calib.errors import UserError, describe_os_error, find_cause, spell_settings
from tune_calib.experiments.file import ReadFile
from tune_calib.files.paths import AnyPath
from tune_calib.tuning.context import Context
from tune_calib.tuning.folder import only_driver
from tune_calib.tuning.plan import Plan, execute
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.work.executor import refuse_here


@dataclass(frozen=True)
class Ended:
    """A ladder or search of an experiment file that has ended."""

    name: str  # of its folder
    folder: AnyPath
    failures: list[str]  # a line for each crashed job, or for the error that ended the run
    stopped: str | None = None  # what a limit of time left undone; None after an error
    is_refused: bool = False  # by a user error, e.g. because its folder belongs to another run


def run_entries(file: ReadFile, plans: Sequence[Plan], context: Context) -> Iterator[Ended]:
    """Run the entries of an experiment file; one that fails does not stop the others."""
    refuse_unfit(file, plans)
    with only_driver(file.out), show_driver(file.out, context.view.tracker):
        for number, plan in enumerate(plans, start=1):
            context.view.tracker.set(entry=f"{plan.name}, {number} of {len(plans)}")
            folder = plan.run.location.out
            try:
                result = execute(plan, context)
                failures = list(map(spell_settings, result.crashed))
                yield Ended(plan.name, folder, failures, result.stopped)
            except UserError as error:
                yield Ended(plan.name, folder, [spell_settings(error)], is_refused=True)
            except Exception as error:
                reason = None
                if isinstance(error, OSError):
                    reason = describe_os_error(error)
                if reason is None:
                    # A bug in one entry must not stop the others, which may take hours.
                    traceback.print_exc()
                    reason = find_cause(f"{type(error).__name__}: {error}")
                yield Ended(plan.name, folder, [reason])


def refuse_unfit(file: ReadFile, plans: Sequence[Plan]) -> None:
    """Refuse runs that need a cluster or resources that this machine lacks."""
    for plan in plans:
        with file.source.at(plan.position):
            for stage in plan.stages:
                refuse_here(file.content.address, stage.work.needs)
