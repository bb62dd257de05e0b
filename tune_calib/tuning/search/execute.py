"""Execute suggestions: heads in batches, networks and post-hoc transforms one by one."""

from collections import deque
from dataclasses import replace
from math import ceil, inf
from typing import Any

from optuna.trial import FrozenTrial

from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.search.definition import SearchDefinition
from tune_calib.tuning.search.state import SearchState
from tune_calib.tuning.work.executor import OVER, configuration
from tune_calib.tuning.work.jobs import MAX_HEAD_BATCH, Job, format_suggestions, make_plan
from tune_calib.tuning.work.provenance import Provenance

MIN_SHARE = 8  # heads of a batch that are trained together at least, if it has so many


def find_largest(definition: SearchDefinition, at_once: int) -> int:
    """Return how many heads of a batch are trained together at most."""
    # Every actor gets a share of a batch, unless the shares become too small; the numbers of a head
    # do not depend on its batch.
    share = ceil(definition.population * len(definition.resolved.seeds.pairs()) / at_once)
    return min(MAX_HEAD_BATCH, max(MIN_SHARE, share))


class StudySource:
    """Passes the suggestions of a study to an executor, and writes their results to the study.

    Batches of heads are suggested and settled in order, a fixed number of them at a time. The
    results behind a suggestion then do not depend on the speed of the actors, so that a search
    repeats to the last digit; one of networks only does with one Ray trial at a time.
    """

    def __init__(
        self, state: SearchState, provenance: Provenance, at_once: int, tracker: Tracker
    ) -> None:
        self.tracker = tracker
        self.state, self.provenance, self.planned = state, provenance, state.planned
        definition, pairs = state.definition, len(state.definition.resolved.seeds.pairs())
        self.total = self.planned * pairs
        self.is_head = state.candidates.kind == "head"
        # Suggestions that are drawn together, and such batches that are open at the same time.
        self.size, self.lag = 1, inf
        if self.is_head:
            self.size, self.lag = definition.population, definition.lag
        self.largest = find_largest(definition, at_once)
        self.suggested = 0
        self.queue: deque[Job] = deque()
        self.running: dict[str, Job] = {}
        self.open: list[list[FrozenTrial]] = []  # batches without results

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of the next Ray trial, None to wait for others, or ``OVER``."""
        while not self.queue:
            if len(self.open) >= self.lag:
                return None
            numbers = range(self.suggested, min(self.suggested + self.size, self.planned))
            first_hidden = None
            if self.is_head:
                # An extended search may have more results by now than one of this length had.
                first_hidden = max(0, self.suggested - (self.state.definition.lag - 1) * self.size)
            batch = self.state.study.suggestions(numbers, first_hidden)
            if not batch:
                return OVER
            self.suggested += len(batch)
            left = self.state.start(item for item in batch if not self.state.has_ended(item))
            if self.is_head:
                for group in make_plan(left, set(), self.largest).head_batches:
                    self.queue.append(replace(group, title=format_suggestions(group.trials)))
            else:
                # Without a network id, since suggestions of a post-hoc method share their network.
                for trial in left:
                    title = format_suggestions([trial])
                    # A worker of heads trains their network too.
                    prefix = "network" if trial.spec.head is None else "heads"
                    self.queue.append(Job(f"{prefix}-{trial.spec.hash}", (trial,), title=title))
            self.open.append(batch)
            self._settle()
        self.running[trial_id] = self.queue.popleft()
        return configuration(self.provenance, self.running[trial_id].config())

    def end(self, trial_id: str) -> None:
        """Read the rows of a job."""
        self.state.collect(self.running.pop(trial_id))
        if self._settle():
            self.state.show(self.tracker)

    def _settle(self) -> bool:
        """Settle the batches that have ended, of heads only in their order; tell if any has."""
        is_new = False
        for batch in list(self.open):
            if all(map(self.state.has_ended, batch)):
                for suggestion in batch:
                    self.state.settle(suggestion)
                self.open.remove(batch)
                is_new = True
            elif self.is_head:
                break
        return is_new
