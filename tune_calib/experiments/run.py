"""Run an experiment file: one ladder or search after the other, in folders of their own."""

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tune_calib.errors import UserError, describe_os_error
from tune_calib.experiments.entries import EntryJob, Job, count_batch
from tune_calib.experiments.file import ReadFile
from tune_calib.paths import AnyPath
from tune_calib.spec.experiment import spell_keys
from tune_calib.tuning.folder import only_driver, spent_s
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.ray.executor import refuse_here
from tune_calib.tuning.run import execute_run
from tune_calib.tuning.search.run import SearchResult, SearchRun, find_study

Begin = Callable[[Job], None]


@dataclass(frozen=True)
class Ended:
    """How one ladder or search of an experiment file ended.

    Attributes:
        name: of its folder.
        folder: its results.
        failures: one line for each Ray trial that crashed, or for what stopped all of it.
        found: what a search found.
        is_refused: nothing was done; what lies in the folder is not of this entry.
    """

    name: str
    folder: AnyPath
    failures: list[str]
    found: SearchResult | None = None
    is_refused: bool = False


def run_jobs(
    file: ReadFile, jobs: list[EntryJob], retry: str | None, begin: Begin = lambda job: None
) -> Iterator[Ended]:
    """Run an experiment file; one job that fails does not stop the others.

    Args:
        file: the experiment file.
        jobs: as ``plan_jobs`` returns them.
        retry: status of a search's trials that are tried once more, e.g. ``crashed``.
        begin: says what is about to be done of a ladder or search, where something is.
    """
    for each in jobs:
        with file.source.at(each.position):
            refuse_here(file.content.address, each.job.find_left().needs)
    with only_driver(file.out), show_driver(file.out) as screen:
        for number, each in enumerate(jobs, start=1):
            screen.tracker.set_entry(f"{each.name}, {number} of {len(jobs)}")
            folder = each.job.location.out
            try:
                yield run_job(each, retry, begin)
            except UserError as error:
                yield Ended(each.name, folder, [spell_keys(error)], is_refused=True)
            except Exception as error:
                if isinstance(error, OSError) and (line := describe_os_error(error)) is not None:
                    yield Ended(each.name, folder, [line])
                    continue
                # A defect of one entry; hours of the others must not end with it.
                traceback.print_exc()
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                yield Ended(each.name, folder, [reason])


def run_job(each: EntryJob, retry: str | None, begin: Begin) -> Ended:
    """Do what is left of one ladder or search."""
    job, folder = each.job, each.job.location.out
    if isinstance(job, LadderRun):
        crashed = execute_run(job, begin)
        return Ended(each.name, folder, [spell_keys(line) for line in crashed])
    job = replace(job, retry=retry)
    found = execute_run(job, begin) if each.hours is None else _search_for(job, each.hours, begin)
    return Ended(each.name, folder, [spell_keys(line) for line in found.crashed], found)


def _search_for(job: SearchRun, hours: float, begin: Begin) -> SearchResult:
    """Search until the next batch would not fit into some hours.

    The search is made longer step by step, at most to twice its length, by what its trials took
    so far; what earlier sessions spent is read from their rows.
    """
    batch = count_batch(job.definition, job.at_once)
    before, started = spent_s(job.out) / job.at_once, time.monotonic()
    study = find_study(job.out, job.study_storage)
    ended = study.finished() if study else 0
    found: SearchResult | None = None
    while True:
        spent = before + time.monotonic() - started
        more = affordable(ended, spent, 3600 * hours, batch)
        if found is not None and not more:
            return found
        longer = replace(job, length=max(1, ended + more))
        found = execute_run(longer, begin if found is None else lambda job: None)
        if len(found.state.results) <= ended:  # of a grid that is at its end
            return found
        ended = len(found.state.results)


def affordable(ended: int, spent_s: float, limit_s: float, batch: int) -> int:
    """Return how many suggestions, in whole batches, a search may still try.

    Args:
        ended: suggestions so far.
        spent_s: seconds that they took.
        limit_s: seconds that all may take.
        batch: suggestions of a batch.
    """
    if not ended:
        return batch
    fitting = int(ended * min(1.0, limit_s / spent_s - 1))
    return max(0, fitting // batch * batch)
