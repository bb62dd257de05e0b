"""Run an experiment file: one ladder or search after the other, in folders of their own."""

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tune_calib.errors import UserError, as_key, describe_os_error
from tune_calib.experiments.entries import EntryJob, Job, count_batch
from tune_calib.experiments.file import ReadFile
from tune_calib.paths import AnyPath
from tune_calib.spec.names import SEARCH_MANIFEST
from tune_calib.tuning.ablate import LadderJob, ablate
from tune_calib.tuning.folder import done, only_driver, spent_s
from tune_calib.tuning.progress.screen import show_driver, show_entry
from tune_calib.tuning.ray.execution import resources_of
from tune_calib.tuning.ray.executor import Resources, refuse_here
from tune_calib.tuning.ray.plan import make_plan
from tune_calib.tuning.search.driver import Found, search, study_so_far
from tune_calib.tuning.search.job import SearchJob

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
    found: Found | None = None
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
            refuse_here(file.content.address, _resources(each.job))
    with only_driver(file.out), show_driver(file.out):
        for number, each in enumerate(jobs, start=1):
            show_entry(f"{each.name}, {number} of {len(jobs)}")
            folder = each.job.site.out
            try:
                yield run_job(each, retry, begin)
            except UserError as error:
                yield Ended(each.name, folder, [as_key(error)], is_refused=True)
            except Exception as error:
                if isinstance(error, OSError) and (line := describe_os_error(error)) is not None:
                    yield Ended(each.name, folder, [line])
                    continue
                # A defect of one entry; hours of the others must not end with it.
                traceback.print_exc()
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                yield Ended(each.name, folder, [reason])


def _resources(job: Job) -> list[Resources]:
    """Return the resources of the Ray trials left; a search that is begun finds out itself."""
    out, gpus = job.site.out, job.site.gpus
    if isinstance(job, LadderJob):
        return resources_of(make_plan(job.planned(), done(out)), gpus)
    if (out / SEARCH_MANIFEST).exists():
        return []
    first = job.question.candidates().trials({}, 0)
    return resources_of(make_plan(first, set()), gpus)


def run_job(each: EntryJob, retry: str | None, begin: Begin) -> Ended:
    """Do what is left of one ladder or search."""
    job, folder = each.job, each.job.site.out
    if isinstance(job, LadderJob):
        crashed = ablate(job, begin)
        return Ended(each.name, folder, [as_key(line) for line in crashed])
    if each.hours is None:
        found = search(job, retry, begin)
    else:
        found = _search_for(job, each.hours, retry, begin)
    return Ended(each.name, folder, [as_key(line) for line in found.crashed], found)


def _search_for(job: SearchJob, hours: float, retry: str | None, begin: Begin) -> Found:
    """Search until the next batch would not fit into some hours.

    The search is made longer step by step, at most to twice its length, by what its trials took
    so far; what earlier sessions spent is read from their rows.
    """
    batch = count_batch(job.question, job.at_once)
    before, started = spent_s(job.out) / job.at_once, time.monotonic()
    study = study_so_far(job.out, job.study_storage)
    ended = study.finished() if study else 0
    found: Found | None = None
    while True:
        spent = before + time.monotonic() - started
        more = affordable(ended, spent, 3600 * hours, batch)
        if found is not None and not more:
            return found
        longer = replace(job, suggestions=max(1, ended + more))
        found = search(longer, retry, begin if found is None else lambda job: None)
        if len(found.ledger.standings) <= ended:  # of a grid that is at its end
            return found
        ended = len(found.ledger.standings)


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
