"""A sweep file, carried out: one ladder or search after the other, in folders of their own."""

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tune_calib.errors import UserError, as_key, describe_os_error
from tune_calib.experiments.entries import Work, works_of
from tune_calib.experiments.file import ReadFile
from tune_calib.paths import AnyPath
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.names import SEARCH_MANIFEST
from tune_calib.spec.yaml_text import Position
from tune_calib.tuning.ablate import LadderJob, ablate
from tune_calib.tuning.folder import done, only_driver, spent_s
from tune_calib.tuning.progress.screen import show_driver, show_entry
from tune_calib.tuning.ray.execution import resources_of
from tune_calib.tuning.ray.executor import Resources, refuse_here
from tune_calib.tuning.ray.plan import make_plan
from tune_calib.tuning.resolve import resolve_files
from tune_calib.tuning.search.driver import Found, search, study_so_far
from tune_calib.tuning.search.job import Question, SearchJob
from tune_calib.tuning.search.objective import Objective
from tune_calib.tuning.search.storage import journal_file
from tune_calib.tuning.site import Site

Begin = Callable[[LadderJob | SearchJob], None]


@dataclass(frozen=True)
class Ended:
    """How one ladder or search of a sweep file ended.

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


def planned_works(file: ReadFile, needs_data: bool = True, is_dry: bool = False) -> list[Work]:
    """Everything that a sweep file asks for, checked: settings, resources, data.

    Args:
        file: the sweep file.
        needs_data: whether the files of the data sets must be there.
        is_dry: write nothing.

    Raises:
        UserError: something is wrong.
    """
    works, at = works_of(file), file.source.at
    for index, work in enumerate(works):
        with at(_position(file, work, "resources")):
            Resources(1, work.gpus)
        with at(("data_root",)):
            if needs_data:
                DATASETS[work.asked.overrides["data"]["dataset"]].locate(file.content.data_root)
        with at(work.position):
            asked = resolve_files(work.asked, file.content.data_root, file.store, is_dry)
        works[index] = replace(work, asked=asked)
        with at(_position(file, work, "shift")):
            if needs_data:
                work.look.list_sets(asked.spec().data, file.content.data_root)
        if work.search is not None and file.content.study_storage is None:
            with at(("out",)):
                journal_file(file.out)
    return works


def _position(file: ReadFile, work: Work, key: str) -> Position:
    """Return where a key of an entry stands: in it, or at the top of the file."""
    own = getattr(file.content.entries[str(work.position[1])], key)
    return (*(() if own is None else work.position[:2]), key)


def run_sweep(
    file: ReadFile,
    works: list[Work],
    command: str,
    retry: str | None,
    begin: Begin = lambda job: None,
) -> Iterator[Ended]:
    """Carry a sweep out; one that fails does not stop the others.

    Args:
        file: the sweep file.
        works: what it asks for.
        command: to do the same again.
        retry: status of a search's trials that are tried once more, e.g. ``crashed``.
        begin: says what is about to be done of a ladder or search, where something is.

    Raises:
        UserError: another program runs on the folder.
    """
    out = file.out
    for work in works:
        with file.source.at(work.position):
            refuse_here(file.content.address, _resources(work, out / work.name))
    with only_driver(out), show_driver(out):
        for number, work in enumerate(works, start=1):
            show_entry(f"{work.name}, {number} of {len(works)}")
            try:
                yield carry_out(file, work, command, retry, begin)
            except UserError as error:
                yield Ended(work.name, out / work.name, [as_key(error)], is_refused=True)
            except Exception as error:
                if isinstance(error, OSError) and (line := describe_os_error(error)) is not None:
                    yield Ended(work.name, out / work.name, [line])
                    continue
                # A defect of one entry; hours of the others must not end with it.
                traceback.print_exc()
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                yield Ended(work.name, out / work.name, [reason])


def _resources(work: Work, out: AnyPath) -> list[Resources]:
    """What the Ray trials need that are left; of a search that is begun, it finds out itself."""
    if work.search is None:
        plan = make_plan(work.planned(), done(out))
        return resources_of(plan, work.gpus)
    if (out / SEARCH_MANIFEST).exists():
        return []
    first = work.candidates().trials({}, 0)
    return resources_of(make_plan(first, set()), work.gpus)


def carry_out(
    file: ReadFile, work: Work, command: str, retry: str | None, begin: Begin = lambda job: None
) -> Ended:
    """Do what is left of one ladder or search."""
    folder = file.out / work.name
    if work.search is None:
        crashed = ablate(ladder_job(file, work, command), begin)
        return Ended(work.name, folder, [as_key(line) for line in crashed])
    job, hours = search_job(file, work, command), work.search.hours
    found = search(job, retry, begin) if hours is None else _search_for(job, hours, retry, begin)
    return Ended(work.name, folder, [as_key(line) for line in found.crashed], found)


def ladder_job(file: ReadFile, work: Work, command: str) -> LadderJob:
    """A ladder as ``ablate`` takes it."""
    assert work.ladder is not None
    return LadderJob(work.ladder, work.asked, _site(file, work, command), work.look)


def search_job(file: ReadFile, work: Work, command: str) -> SearchJob:
    """A search as ``search`` takes it; of a budget in hours, the first batch."""
    assert work.search is not None
    question, site = question_of(work), _site(file, work, command)
    threads = work.candidates().trials({}, 0)[0].spec.network.threads
    at_once = work.search.at_once or site.at_once(threads)
    suggestions = work.search.trials
    if work.search.heads is not None:
        suggestions = max(1, work.search.heads // len(work.asked.seeds.pairs()))
    return SearchJob(
        question=question,
        suggestions=suggestions or batch_of(question, at_once),
        site=site,
        at_once=at_once,
        study_storage=file.content.study_storage,
    )


def _site(file: ReadFile, work: Work, command: str) -> Site:
    content = file.content
    folder = file.out / work.name
    where = folder, file.store, content.data_root, content.address, work.gpus, command
    return Site(*where, among=file.among)


def question_of(work: Work) -> Question:
    """What a search asks."""
    assert work.search is not None
    how = work.search
    return Question(
        method=work.method,
        asked=work.asked,
        objective=Objective(how.metric, how.guard),
        sampler=how.sampler,
        sampler_seed=how.sampler_seed,
        scheduler=how.scheduler,
        population=how.population,
    )


def batch_of(question: Question, at_once: int) -> int:
    """Suggestions that keep the machine busy once."""
    is_head = question.candidates().kind == "head"
    return question.population * at_once if is_head else at_once


def _search_for(
    job: SearchJob, hours: float, retry: str | None, begin: Callable[[SearchJob], None]
) -> Found:
    """Search until the next batch would not fit into some hours.

    The search is made longer step by step, at most to twice its length, by what its trials took
    so far; what earlier sessions spent is read from their rows.
    """
    batch = batch_of(job.question, job.at_once)
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
    """Suggestions, in whole batches, by which a search may grow and stay within its time.

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
