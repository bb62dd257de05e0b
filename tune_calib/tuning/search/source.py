"""The source of the jobs of a search: its suggestions, in batches and stages."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from operator import mul
from typing import Any

from optuna.trial import FrozenTrial

from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.search.definition import SearchDefinition
from tune_calib.tuning.search.rules import Halving, Race
from tune_calib.tuning.search.stages import Stages
from tune_calib.tuning.search.state import SearchState
from tune_calib.tuning.search.study import HIDDEN
from tune_calib.tuning.work.executor import OVER, configuration
from tune_calib.tuning.work.jobs import MAX_HEAD_BATCH, Job, format_suggestions, make_plan

MIN_SHARE = 8  # heads of a batch that are trained together at least, if it has so many


def find_largest(definition: SearchDefinition, at_once: int) -> int:
    """Return how many heads of a batch are trained together at most."""
    # Every actor gets a share of a batch, unless the shares become too small; the numbers of a head
    # do not depend on its batch.
    stages = Stages(definition)
    share = ceil(stages.batch_size * stages.sizes[0] / at_once)
    return min(MAX_HEAD_BATCH, max(MIN_SHARE, share))


@dataclass
class Batch:
    """Suggestions that pass the stages of a search together."""

    suggestions: list[FrozenTrial]
    visible: set[int]  # numbers of the suggestions whose results its decisions read
    active: list[FrozenTrial]  # those that have reached the stage
    stage: int = 0
    rule: Race | Halving | None = None  # from the first decision on
    passed: dict[int, int] = field(default_factory=dict)  # stages by number


class StudySource:
    """Passes the suggestions of a study to an executor, and writes their results to the study.

    Batches of heads are suggested and settled in order, a fixed number of them at a time. The
    results behind a suggestion then do not depend on the speed of the actors, so that a search
    repeats to the last digit. One of networks does without Ray, where the number of jobs at once
    decides which results a suggestion sees; on Ray, it only does with one trial at a time.
    """

    at_once: int | None  # of ``Source``
    kinds: Mapping[str, int]

    def __init__(
        self,
        state: SearchState,
        provenance: Provenance,
        at_once: int,
        tracker: Tracker,
        is_ordered: bool = False,  # also if it trains networks
    ) -> None:
        definition, stages = state.definition, state.stages
        self.state, self.provenance, self.tracker = state, provenance, tracker
        self.title, self.at_once = f"search {definition.method}", at_once
        self.units, self.unit = state.planned, "suggestions"
        self.total = self.units * sum(stages.sizes)
        self.is_head = state.candidates.kind == "head"
        left = sum(map(mul, stages.sizes, stages.count_suggestions(state.count_left())))
        self.kinds = {"heads" if self.is_head else "networks": left}
        # Suggestions that are drawn together, and such batches that are open at the same time.
        self.size, self.lag = 1, inf
        if self.is_head or definition.halving:
            self.size = stages.batch_size
        if self.is_head:
            self.lag = definition.lag
        elif is_ordered:  # as few as keep all processes busy
            self.lag = ceil((at_once - 1) / (self.size * stages.sizes[0])) + 1
        self.is_ordered = self.is_head or is_ordered
        self.largest = find_largest(definition, at_once)
        self.suggested = 0
        self.queue: deque[Job] = deque()
        self.running: dict[str, Job] = {}
        self.open: list[Batch] = []  # batches without results

    def suggest(self, trial_id: str) -> Any:
        """Return the configuration of the next Ray trial, None to wait for others, or ``OVER``."""
        if self.state.deadline.is_over:
            return OVER
        while not self.queue:
            if len(self.open) >= self.lag:
                return None
            batch = self._draw()
            if not batch.suggestions:
                return None if self.running else OVER  # further stages may follow
            self._begin_stage(batch)
            self.open.append(batch)
            self._settle()
        job = self.running[trial_id] = self.queue.popleft()
        config = job.config()
        if replay := self.provenance.replay:
            rungs = [trial.rung for trial in job.trials]
            # The nearest unused points depend on all earlier suggestions.
            first = 0 if replay["answer"] == "nearest" else min(rungs)
            suggestions = self.state.study.suggestions(range(first, max(rungs) + 1))
            config["points"] = {item.number: item.params for item in suggestions}
        return configuration(self.provenance, config)

    def _draw(self) -> Batch:
        """Return the next batch, with suggestions of the study or new ones, if there are any."""
        first = self.suggested
        numbers, first_hidden = range(first, min(first + self.size, self.units)), None
        if self.is_ordered:
            # An extended search may have more results by now than one of this length had.
            first_hidden = max(0, first - int(self.lag - 1) * self.size)
        suggestions = self.state.study.suggestions(numbers, first_hidden)
        self.suggested += len(suggestions)
        visible = set(range(first))
        if suggestions and not self.is_head:
            visible -= set(suggestions[0].user_attrs.get(HIDDEN, ()))
        has_ended = all(s.state.is_finished() and self.state.has_ended(s) for s in suggestions)
        return Batch(suggestions, visible, active=[] if has_ended else suggestions)

    def _begin_stage(self, batch: Batch) -> None:
        """Queue the trials of the stage that a batch has reached, before those of later batches."""
        batch.passed |= dict.fromkeys((s.number for s in batch.active), batch.stage + 1)
        left, jobs = self.state.start(batch.active, batch.stage), list[Job]()
        if self.is_head:
            jobs += make_plan(left, set(), self.largest).head_batches
        else:
            # Without a network id, since suggestions of a post-hoc method share their network.
            for trial in left:
                # A worker of heads trains their network too.
                prefix = "network" if trial.spec.head is None else "heads"
                jobs.append(Job(f"{prefix}-{trial.spec.hash}", (trial,)))
        for job in reversed(jobs):
            self.queue.appendleft(replace(job, title=format_suggestions(job.trials)))

    def end(self, trial_id: str) -> None:
        self.state.collect(self.running.pop(trial_id))
        if self._settle():
            self.state.show(self.tracker)

    def _settle(self) -> bool:
        """Settle the batches that have ended, in order if it is kept; tell if any has."""
        is_new = False
        for batch in list(self.open):
            self._advance(batch)
            if not batch.active and (not self.is_ordered or batch is self.open[0]):
                for suggestion in batch.suggestions:
                    passed = batch.passed.get(suggestion.number)
                    self.state.settle(suggestion, passed, batch.rule)
                self.open.remove(batch)
                is_new = True
        return is_new

    def _advance(self, batch: Batch) -> None:
        """Begin further stages of a batch whose trials have ended, until none is active."""
        state, stages = self.state, self.state.stages
        while batch.active and all(state.has_ended(s, batch.stage) for s in batch.active):
            if batch.stage + 1 == stages.count:
                batch.active = []
                return
            # After a loss of rows, those of earlier suggestions are awaited.
            if not state.results.keys() >= batch.visible:
                return
            batch.rule = batch.rule or state.build_rule(batch.visible)
            passed = {s.number: state.summarise(s, batch.stage + 1) for s in batch.active}
            selected = batch.rule.select(passed, len(batch.suggestions))
            selected += [s.number for s in batch.active if stages.is_exempt(s.params)]
            batch.active = [s for s in batch.active if s.number in selected]
            batch.stage += 1
            self._begin_stage(batch)
