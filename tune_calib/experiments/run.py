"""Run the ladders and searches of an experiment file one after the other."""

import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tune_calib.errors import UserError, describe_os_error, find_cause
from tune_calib.experiments.entries import EntryRun, count_batch
from tune_calib.experiments.file import ReadFile
from tune_calib.paths import AnyPath
from tune_calib.spec.experiment import spell_keys
from tune_calib.tuning.folder import only_driver, spent_s
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.run import Begin, Result, execute_run
from tune_calib.tuning.search.outcome import SearchResult
from tune_calib.tuning.search.run import SearchRun, count_suggestions
from tune_calib.tuning.tuned import execute_tuned
from tune_calib.tuning.work.executor import refuse_here


@dataclass(frozen=True)
class Ended:
    """A ladder or search of an experiment file that has ended."""

    name: str  # of its folder
    folder: AnyPath
    failures: list[str]  # a line for each crashed job, or for the error that ended the run
    result: Result | None = None  # None after an error
    is_refused: bool = False  # by a user error, e.g. because its folder belongs to another run

    @property
    def stopped(self) -> str:
        """Return what a limit of time left undone, in words; "" if nothing."""
        if self.result is None:
            return ""
        return self.result.stopped


def run_entries(
    file: ReadFile, entries: list[EntryRun], begin: Begin = lambda run: None
) -> Iterator[Ended]:
    """Run the entries of an experiment file; one that fails does not stop the others."""
    for entry in entries:
        with file.source.at(entry.position):
            refuse_here(file.content.address, entry.run.plan().needs)
    with only_driver(file.out), show_driver(file.out) as screen:
        for number, entry in enumerate(entries, start=1):
            screen.tracker.set(entry=f"{entry.name}, {number} of {len(entries)}")
            folder = entry.run.location.out
            try:
                yield run_entry(entry, begin)
            except UserError as error:
                yield Ended(entry.name, folder, [spell_keys(error)], is_refused=True)
            except Exception as error:
                reason = None
                if isinstance(error, OSError):
                    reason = describe_os_error(error)
                if reason is None:
                    # A bug in one entry must not stop the others, which may take hours.
                    traceback.print_exc()
                    reason = find_cause(f"{type(error).__name__}: {error}")
                yield Ended(entry.name, folder, [reason])


def run_entry(entry: EntryRun, begin: Begin) -> Ended:
    """Run one ladder or search, skipping finished trials."""
    if entry.hours is None:
        result = execute_tuned(entry.run, begin)
    else:
        assert isinstance(entry.run, SearchRun)
        result = _search_for(entry.run, entry.hours, begin)
    failures = list(map(spell_keys, result.crashed))
    return Ended(entry.name, entry.run.location.out, failures, result=result)


def _search_for(run: SearchRun, hours: float, begin: Begin) -> SearchResult:
    """Extend a search until, by the time of its trials so far, a batch would exceed a budget."""
    batch = count_batch(run)
    earlier_s, started = spent_s(run.out) / run.at_once, time.monotonic()
    ended, _ = count_suggestions(run.out, run.location.study_storage) or (0, 0)
    result: SearchResult | None = None
    while True:
        spent = earlier_s + time.monotonic() - started
        further = affordable(ended, spent, 3600 * hours, batch=batch)
        if result is not None and not further:
            return result
        longer = replace(run, length=max(1, ended + further))
        result = execute_run(longer, begin) if result is None else execute_run(longer)
        if len(result.state.results) <= ended:  # there are no more points
            return result
        ended = len(result.state.results)


def affordable(ended: int, spent_s: float, limit_s: float, batch: int) -> int:
    """Return the number of further suggestions, in whole batches, that fit into the budget."""
    if not ended:
        return batch
    fitting = int(ended * min(1.0, limit_s / spent_s - 1))
    return max(0, fitting // batch * batch)
