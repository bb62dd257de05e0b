"""Forecast the remaining work of ladders and searches: networks, heads, disk space and time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tune_calib.data.corruptions import SEVERITIES
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.extra import shifted_bank_key
from tune_calib.engine.head_batch import PER_HEAD
from tune_calib.engine.store import Store
from tune_calib.errors import DataNotFoundError
from tune_calib.experiments.forecast.rates import Rate, Rates
from tune_calib.paths import AnyPath
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.folder import done, spent_s
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.reuse import find_rows
from tune_calib.tuning.run import AnyRun
from tune_calib.tuning.search.execute import find_largest
from tune_calib.tuning.search.run import SearchRun, count_suggestions
from tune_calib.tuning.work.executor import PART, find_cluster
from tune_calib.tuning.work.jobs import (
    ExtraJob,
    RemainingWork,
    find_extra_jobs,
    group_extra_jobs,
    lacking_of_bank,
    make_plan,
)

STARTS, NETWORKS, HEADS, REPORT = "Ray startup", "networks", "heads", "report"
EVALUATION, EXTRA, SEARCHES = "evaluation", "extra evaluations", "searches with a budget in hours"
ORDER = (STARTS, NETWORKS, HEADS, EVALUATION, SEARCHES, EXTRA, REPORT)

RAY_S, TUNER_S = 6.0, 8.0
"""Seconds for starting and stopping Ray, and for the imports of its worker processes, on two idle
cores; slower disks and busy cores take longer."""

TRIAL_S, REPORT_S = 0.1, 8.0
"""Seconds of overhead of a Ray trial (scheduling, reports, writing its rows), and seconds of a
report, most of them for figures."""

CHECKPOINT_S, DISK = 0.01, 300e6
"""Seconds for writing a checkpoint of no size, and bytes written per second."""

Heads = tuple[TrialSpec, list[HeadSlot]]
"""A network, and the slots of the heads that are trained together on it."""


@dataclass(frozen=True)
class Needs:
    """Remaining work of one ladder or search."""

    run: AnyRun
    planned: int | None  # trials, or suggestions of a search; None with a budget in hours
    done: int  # number of finished ones
    at_once: int  # parallel trials of networks
    heads_at_once: int  # parallel trials of heads
    trials: Sequence[PlannedTrial]  # all; for a search, those of the baseline and of one suggestion
    networks: dict[str, TrialSpec]  # needed, by id; for a search, those of the baseline
    searched: list[TrialSpec] = field(default_factory=list)  # networks that suggestions train
    head_batches: list[Heads] = field(default_factory=list)
    # Specs to evaluate, each with the number of trials like it.
    evaluated: list[tuple[TrialSpec, int]] = field(default_factory=list)
    extra: list[ExtraJob] = field(default_factory=list)  # also those of unfinished trials
    knows_extra: bool = True  # files of shift sets are not missing
    ray_trials: int = 0  # of networks, heads and post-hoc methods; without Ray, steps of the plan
    is_least: bool = False  # heads of a suggestion may have another shape, and so another Ray trial
    hours: float | None = None  # left of a budget in hours

    @property
    def heads(self) -> int:
        """Return the number of heads that are left to train."""
        return sum(len(slots) for _, slots in self.head_batches)

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to do."""
        return not (self.ray_trials or self.extra or self.hours)


def find_needs(run: AnyRun, work: RemainingWork, hours: float | None = None) -> Needs:
    """Find the needs of what remains; ``hours`` is the budget of a search that has one in hours."""
    if isinstance(run, SearchRun):
        return _of_search(run, hours)
    assert isinstance(run, LadderRun)
    return _of_ladder(run, work)


def _at_once(run: AnyRun, threads: int = 1) -> int:
    """Return how many trials run in parallel, on a cluster that responds or on this machine."""
    cores = find_cluster(run.location.address).get("CPU", 0)
    return cores // threads or run.location.at_once(threads)


def _of_ladder(run: LadderRun, work: RemainingWork) -> Needs:
    planned, out = run.planned_trials, run.location.out
    reused = find_rows(planned, out, run.location.among)
    finished = done(out).union(reused)
    if reused:
        work = make_plan(planned, finished)
    unfinished = [trial for trial in planned if trial.spec.hash not in finished]
    networks, head_batches = [job.dependents[0].spec for job in work.networks], list[Heads]()
    for batch in work.head_batches:
        # A head that post-hoc methods share is trained once.
        slots = {canonical_json(t.spec.head): t.spec.head for t in batch.trials if t.spec.head}
        head_batches.append((batch.first.spec, list(slots.values())))
    needs = Needs(
        run=run,
        planned=len(planned),
        done=len(planned) - len(unfinished),
        at_once=_at_once(run, max(trial.spec.network.threads for trial in planned)),
        heads_at_once=_at_once(run),
        trials=planned,
        networks={spec.network_id: spec for spec in networks},
        head_batches=head_batches,
        evaluated=[(trial.spec, 1) for trial in unfinished],
        ray_trials=len(work.jobs),
    )
    try:
        return replace(needs, extra=_find_extra(run, unfinished, reused))
    except DataNotFoundError:  # a forecast for a GPU of another machine needs no files
        return replace(needs, knows_extra=False)


def _find_extra(
    run: LadderRun, left: Sequence[PlannedTrial], reused: dict[str, AnyPath]
) -> list[ExtraJob]:
    sets, draws = run.shift_sets, run.options.bootstrap
    found = find_extra_jobs(sets, draws, run.planned_trials, run.location.out)
    for folder in dict.fromkeys(reused.values()):
        there = [trial for trial in run.planned_trials if reused.get(trial.spec.hash) == folder]
        found += find_extra_jobs(sets, draws, there, folder)
    later = [(trial, dict[str, float]()) for trial in left]
    found += [extra for name in sets for extra in group_extra_jobs(later, name)]
    return found + (group_extra_jobs(later, None, draws) if draws else [])


def _of_search(run: SearchRun, hours: float | None) -> Needs:
    definition, candidates = run.definition, run.definition.candidates
    counts = count_suggestions(run.out, run.study_storage, run.length)
    finished = counts[0] if counts else 0
    # The defaults represent all suggestions, although heads of other shapes share no batch.
    suggestion, baseline = candidates.trials(candidates.first()[0], 0), candidates.baseline()
    like, rows = suggestion[0].spec, done(run.out)
    networks = {t.spec.network_id: t.spec for t in baseline if t.spec.hash not in rows}
    needs = Needs(
        run=run,
        planned=None,
        done=finished,
        at_once=min(run.at_once, _at_once(run, like.network.threads)),
        heads_at_once=min(run.at_once, _at_once(run)),
        trials=[*baseline, *suggestion],
        networks=networks,
        evaluated=[(spec, 1) for spec in networks.values()],
        ray_trials=len(networks),
    )
    if hours is not None:
        return replace(needs, hours=max(0.0, hours - spent_s(run.out) / run.at_once / 3600))
    planned = run.length
    if counts is not None:
        planned = counts[1]
    elif definition.sampler == "grid":
        planned = min(planned, len(definition.points))
    left = max(0, planned - finished)
    trials = left * len(suggestion)
    batches = _list_batches(run, suggestion, left) if candidates.kind == "head" else []
    per_head = PER_HEAD | METHODS[definition.method].per_head
    searched = {name.partition(".")[2] for name in candidates.space.settings}
    return replace(
        needs,
        planned=planned,
        searched=[like] * trials if candidates.kind == "network" else [],
        head_batches=batches,
        evaluated=[*needs.evaluated, (like, trials)],
        ray_trials=needs.ray_trials + (len(batches) or trials),
        is_least=bool(batches and searched - per_head),
    )


def _list_batches(run: SearchRun, suggestion: Sequence[PlannedTrial], left: int) -> list[Heads]:
    """List the batches of heads of suggestions that are like the given one."""
    population, batches = run.definition.population, list[Heads]()
    largest = find_largest(run.definition, run.at_once)
    for start in range(0, left, population):
        alike = [*suggestion] * min(population, left - start)
        for batch in make_plan(alike, set(), largest).head_batches:
            # These are separate heads, although all have the slot of the defaults.
            slots = [trial.spec.head for trial in batch.trials if trial.spec.head is not None]
            batches.append((batch.first.spec, slots))
    return batches


@dataclass
class Forecast:
    """Totals over ladders and searches; seconds are NaN if a rate is unknown."""

    store: Store
    rates: dict[str, Rates]  # by device, cpu or cuda
    networks: dict[str, TrialSpec] = field(default_factory=dict)  # to train once, by id
    in_store: set[str] = field(default_factory=set)
    banks: dict[str, int] = field(default_factory=dict)  # bytes of those to build, by identity
    network_bytes: int = 0
    head_bytes: int = 0  # of ladders and comparisons alone: searches store no heads
    checkpoint_bytes: int = 0  # of the networks that are in training at the same time
    # By activity, counting parallel trials once.
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ORDER, 0.0))
    sources: dict[str, str] = field(default_factory=dict)  # a line on the origin of each rate
    shifted: set[tuple[str, str]] = field(default_factory=set)  # banks by network and shift set

    def add(self, needs: Needs) -> int:
        """Add the work of a ladder or search, and return the number of networks it trains."""
        rates = self.rates["cuda" if needs.run.location.gpus else "cpu"]
        there = {i for i, spec in needs.networks.items() if has_network(spec, self.store)}
        self.in_store |= there
        new = {i: s for i, s in needs.networks.items() if i not in there | self.networks.keys()}
        self.networks |= new
        trained = [*new.values(), *needs.searched]
        if not needs.is_over:
            if needs.run.location.uses_ray:
                counts = needs.ray_trials, len(needs.extra)
                # Each ``Tuner`` starts processes of its own, and a baseline has one.
                tuners = sum(math.ceil(count / PART) for count in counts)
                tuners += bool(needs.run.is_search and needs.networks and needs.ray_trials)
                starts = RAY_S + TUNER_S * tuners
                self.seconds[STARTS] += starts + TRIAL_S * sum(counts) / needs.heads_at_once
            self.seconds[REPORT] += REPORT_S
        self._add_networks(trained, needs.at_once, rates)
        for spec, slots in needs.head_batches:
            self._add_bank(spec, slots[0], needs, rates)
            rate = rates.heads(spec, slots)
            self._note(f"heads of {slots[0].method} on {spec.data.dataset}", rate)
            self.seconds[HEADS] += rate.seconds * slots[0].epochs / needs.heads_at_once
        for spec, count in needs.evaluated:
            sizes = rates.sizes(spec.data)
            samples = sizes.select + sizes.calib + (0 if needs.run.is_search else sizes.test)
            seconds = rates.evaluation_s(spec, samples) * count
            self.seconds[EVALUATION] += seconds / needs.heads_at_once
            if spec.head is not None and not needs.run.is_search:
                self.head_bytes += rates.head_bytes(spec, spec.head)
        for extra in needs.extra:
            self.seconds[EXTRA] += self._extra_s(extra, rates) / needs.at_once
        self.seconds[SEARCHES] += 3600 * (needs.hours or 0.0)
        return sum(not spec.network.is_frozen for spec in trained)

    @property
    def parts(self) -> dict[str, float]:
        """Return the seconds of each activity that takes time, in order."""
        return {what: seconds for what, seconds in self.seconds.items() if seconds}

    @property
    def whole(self) -> float:
        """Return the total seconds; NaN if some are unknown."""
        return sum(self.seconds.values())

    def _add_networks(self, specs: Sequence[TrialSpec], at_once: int, rates: Rates) -> None:
        seconds = [0.0]
        for spec in specs:
            sizes = rates.sizes(spec.data)
            weights, state = rates.network_bytes(spec)
            self.network_bytes += weights
            # A finished network is evaluated on each image once.
            every = sizes.train + sizes.select + sizes.calib + sizes.test
            seconds.append(every * rates.image_s(spec))
            if not spec.network.is_frozen:
                state_of_all = state * min(at_once, len(specs))
                self.checkpoint_bytes = max(self.checkpoint_bytes, state_of_all)
                rate = rates.network(spec)
                self._note(f"{spec.network.backbone} on {spec.data.dataset}", rate)
                epoch_s = rate.seconds + CHECKPOINT_S + state / DISK
                seconds[-1] += epoch_s * spec.network.epochs
        # Parallel training takes at least as long as the longest network. A first NaN stays in max.
        self.seconds[NETWORKS] += max(sum(seconds) / at_once, max(seconds))

    def _add_bank(self, spec: TrialSpec, head: HeadSlot, needs: Needs, rates: Rates) -> None:
        key = bank_key(spec, head)
        lacks = lacking_of_bank(key.identity, self.store, needs.run.is_search)
        if spec.data.imported is not None or not lacks or key.identity in self.banks:
            return
        sizes = rates.sizes(spec.data)
        count = max(1, key.views) * sizes.train + sizes.select + sizes.calib
        count += 0 if needs.run.is_search else sizes.test
        width = rates.width(spec)
        # Features and logits in 4 bytes each, the label in 8.
        self.banks[key.identity] = count * (4 * (width + spec.data.info.classes) + 8)
        image_s = rates.image_s(spec)
        if not math.isnan(image_s):
            self.seconds[HEADS] += count * image_s / needs.heads_at_once

    def _extra_s(self, extra: ExtraJob, rates: Rates) -> float:
        spec, samples = extra.first.spec, rates.sizes(extra.first.spec.data).test
        if extra.shift is not None and not extra.shift.startswith("ood/"):
            samples *= len(SEVERITIES)
        seconds = rates.evaluation_s(spec, samples, extra.resamples) * len(extra.trials)
        bank = shifted_bank_key(spec).identity, extra.shift or ""
        if extra.shift is not None and bank not in self.shifted:
            self.shifted.add(bank)
            seconds += samples * rates.image_s(spec)
        return seconds

    def _note(self, what: str, rate: Rate) -> None:
        is_known = not math.isnan(rate.seconds)
        source = f"{rate.seconds:.3g} s an epoch, {rate.source}" if is_known else rate.source
        self.sources.setdefault(what, f"  {what}: {source}")
