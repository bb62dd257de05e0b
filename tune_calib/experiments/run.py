"""Run the ladders and searches of an experiment file one after the other."""

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tune_calib.errors import UserError, describe_os_error
from tune_calib.experiments.entries import EntryRun, Run, count_batch
from tune_calib.experiments.file import ReadFile
from tune_calib.paths import AnyPath
from tune_calib.spec.experiment import spell_keys
from tune_calib.tuning.folder import only_driver, spent_s
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.work.executor import refuse_here
from tune_calib.tuning.run import execute_run
from tune_calib.tuning.search.outcome import SearchResult
from tune_calib.tuning.search.run import SearchRun, count_suggestions

Begin = Callable[[Run], None]


@dataclass(frozen=True)
class Ended:
    """A ladder or search of an experiment file that has ended."""

    name: str  # of its folder
    folder: AnyPath
    failures: list[str]  # a line for each crashed Ray trial, or for the error that ended the run
    found: SearchResult | None = None  # of a search
    is_refused: bool = False  # by a user error, e.g. because its folder belongs to another run


def run_entries(
    file: ReadFile, jobs: list[EntryRun], retry: str | None, begin: Begin = lambda job: None
) -> Iterator[Ended]:
    """Run the jobs of an experiment file; one that fails does not stop the others."""
    for each in jobs:
        with file.source.at(each.position):
            refuse_here(file.content.address, each.job.plan().needs)
    with only_driver(file.out), show_driver(file.out) as screen:
        for number, each in enumerate(jobs, start=1):
            screen.tracker.set(entry=f"{each.name}, {number} of {len(jobs)}")
            folder = each.job.location.out
            try:
                yield run_entry(each, retry, begin)
            except UserError as error:
                yield Ended(each.name, folder, [spell_keys(error)], is_refused=True)
            except Exception as error:
                reason = describe_os_error(error) if isinstance(error, OSError) else None
                if reason is None:
                    # A bug in one entry must not stop the others, which may take hours.
                    traceback.print_exc()
                    reason = f"{type(error).__name__}: {error}".splitlines()[0]
                yield Ended(each.name, folder, [reason])


def run_entry(each: EntryRun, retry: str | None, begin: Begin) -> Ended:
    """Run one ladder or search, skipping finished trials."""
    job, folder = each.job, each.job.location.out
    if isinstance(job, LadderRun):
        crashed = execute_run(job, begin)
        return Ended(each.name, folder, [spell_keys(line) for line in crashed])
    job = replace(job, retry=retry)
    found = execute_run(job, begin) if each.hours is None else _search_for(job, each.hours, begin)
    return Ended(each.name, folder, [spell_keys(line) for line in found.crashed], found)


def _search_for(job: SearchRun, hours: float, begin: Begin) -> SearchResult:
    """Extend a search until, by the time of its trials so far, a batch would exceed a budget."""
    batch = count_batch(job)
    before, started = spent_s(job.out) / job.at_once, time.monotonic()
    ended, _ = count_suggestions(job.out, job.study_storage) or (0, 0)
    found: SearchResult | None = None
    while True:
        spent = before + time.monotonic() - started
        more = affordable(ended, spent, 3600 * hours, batch)
        if found is not None and not more:
            return found
        longer = replace(job, length=max(1, ended + more))
        found = execute_run(longer, begin if found is None else lambda job: None)
        if len(found.state.results) <= ended:  # a grid has no more points
            return found
        ended = len(found.state.results)


def affordable(ended: int, spent_s: float, limit_s: float, batch: int) -> int:
    """Return the number of further suggestions, in whole batches, that fit into the budget."""
    if not ended:
        return batch
    fitting = int(ended * min(1.0, limit_s / spent_s - 1))
    return max(0, fitting // batch * batch)
