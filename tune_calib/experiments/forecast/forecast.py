"""What is left to do of planned runs, and the time and disk space that it takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
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
from tune_calib.tuning.work.executor import find_cluster
from tune_calib.tuning.work.jobs import (
    ExtraJob,
    RemainingWork,
    find_extra_jobs,
    group_extra_jobs,
    lacking_of_bank,
    make_plan,
)

NETWORKS, HEADS, SEARCHES = "networks", "heads", "searches with a budget in hours"

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
    extra: list[ExtraJob] = field(default_factory=list)  # also those of unfinished trials
    knows_extra: bool = True  # files of shift sets are not missing
    stored_heads: list[TrialSpec] = field(default_factory=list)  # searches store none
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
        return _find_needs_of_search(run, hours)
    assert isinstance(run, LadderRun)
    return _find_needs_of_ladder(run, work)


def _count_parallel(run: AnyRun, threads: int = 1) -> int:
    """Count the trials that run in parallel, on a cluster that responds or on this machine."""
    cores = find_cluster(run.location.address).get("CPU", 0)
    return cores // threads or run.location.at_once(threads)


def _find_needs_of_ladder(run: LadderRun, work: RemainingWork) -> Needs:
    planned, out = run.planned_trials, run.location.out
    reused = find_rows(planned, out, run.location.among)
    finished = done(out).union(reused)
    if reused:
        work = make_plan(planned, finished)
    unfinished = [trial for trial in planned if trial.spec.hash not in finished]
    networks = {job.first.spec.network_id: job.first.spec for job in work.networks}
    needs = Needs(
        run=run,
        planned=len(planned),
        done=len(planned) - len(unfinished),
        at_once=_count_parallel(run, max(trial.spec.network.threads for trial in planned)),
        heads_at_once=_count_parallel(run),
        trials=planned,
        networks=networks,
        head_batches=_list_heads(work),
        stored_heads=[trial.spec for trial in unfinished if trial.spec.head is not None],
        ray_trials=len(work.jobs),
    )
    try:
        return replace(needs, extra=_find_extra(run, unfinished, reused))
    except DataNotFoundError:  # a forecast for a GPU of another machine needs no files
        return replace(needs, knows_extra=False)


def _list_heads(work: RemainingWork) -> list[Heads]:
    """List the heads of each batch; one that post-hoc methods share is trained once."""
    batches: list[Heads] = []
    for job in work.head_batches:
        slots = {canonical_json(t.spec.head): t.spec.head for t in job.trials if t.spec.head}
        batches.append((job.first.spec, list(slots.values())))
    return batches


def _find_extra(
    run: LadderRun, unfinished: Sequence[PlannedTrial], reused: dict[str, AnyPath]
) -> list[ExtraJob]:
    sets, draws = run.shift_sets, run.options.bootstrap
    jobs = find_extra_jobs(sets, draws, run.planned_trials, out=run.location.out)
    for folder in dict.fromkeys(reused.values()):
        trials = [trial for trial in run.planned_trials if reused.get(trial.spec.hash) == folder]
        jobs += find_extra_jobs(sets, draws, trials, out=folder)
    unmeasured = [(trial, dict[str, float]()) for trial in unfinished]
    for name in sets:
        jobs += group_extra_jobs(unmeasured, name)
    if draws:
        jobs += group_extra_jobs(unmeasured, None, draws)
    return jobs


def _find_needs_of_search(run: SearchRun, hours: float | None) -> Needs:
    definition, candidates = run.definition, run.definition.candidates
    counts = count_suggestions(run.out, run.study_storage, run.length)
    ended, planned = counts or (0, run.length)
    # The defaults represent all suggestions, although heads of other shapes share no batch.
    suggestion, baseline = candidates.trials(candidates.first()[0], 0), candidates.baseline()
    example, rows = suggestion[0].spec, done(run.out)
    networks = {t.spec.network_id: t.spec for t in baseline if t.spec.hash not in rows}
    needs = Needs(
        run=run,
        planned=None,
        done=ended,
        at_once=min(run.at_once, _count_parallel(run, example.network.threads)),
        heads_at_once=min(run.at_once, _count_parallel(run)),
        trials=[*baseline, *suggestion],
        networks=networks,
        ray_trials=len(networks),
    )
    if hours is not None:
        return replace(needs, hours=max(0.0, hours - spent_s(run.out) / run.at_once / 3600))
    if counts is None and definition.sampler == "grid":
        planned = min(planned, len(definition.points))
    left = max(0, planned - needs.done)
    needs = replace(needs, planned=planned, ray_trials=needs.ray_trials + left * len(suggestion))
    if candidates.kind == "network":
        needs = replace(needs, searched=[example] * left * len(suggestion))
    if "head" not in candidates.slots:
        return needs
    batches, per_head = _list_batches(run, suggestion, left), PER_HEAD
    if candidates.kind == "network":  # each head is trained in the Ray trial of its network
        return replace(needs, head_batches=batches)
    searched = {name.partition(".")[2] for name in candidates.space.settings if "head." in name}
    for name in candidates.names:
        per_head |= METHODS[name].per_head
    return replace(
        needs,
        head_batches=batches,
        ray_trials=len(networks) + len(batches),
        is_least=bool(batches and searched - per_head),
    )


def _list_batches(run: SearchRun, suggestion: Sequence[PlannedTrial], left: int) -> list[Heads]:
    """List the batches of heads of suggestions that are like the given one."""
    population, batches = run.definition.population, list[Heads]()
    largest = find_largest(run.definition, run.at_once)
    for start in range(0, left, population):
        alike = [*suggestion] * min(population, left - start)
        for job in make_plan(alike, set(), largest).head_batches:
            # These are separate heads, although all have the slot of the defaults.
            slots = [trial.spec.head for trial in job.trials if trial.spec.head is not None]
            batches.append((job.first.spec, slots))
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
    head_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # counting parallel trials once
    sources: dict[str, str] = field(default_factory=dict)  # a line on the origin of each rate

    def add(self, needs: Needs) -> int:
        """Add the work of a ladder or search, and return the number of networks it trains."""
        rates = self.rates["cpu"]
        if needs.run.location.gpus:
            rates = self.rates["cuda"]
        new: dict[str, TrialSpec] = {}
        for network_id, spec in needs.networks.items():
            if has_network(spec, self.store):
                self.in_store.add(network_id)
            elif network_id not in self.networks:
                new[network_id] = spec
        self.networks |= new
        trained = [*new.values(), *needs.searched]
        self._add_networks(trained, needs.at_once, rates)
        for spec, slots in needs.head_batches:
            self._add_bank(spec, slots[0], needs, rates=rates)
            rate = rates.heads(spec, slots)
            self._note(f"heads of {slots[0].method} on {spec.data.dataset}", rate)
            self._add_seconds(HEADS, rate.seconds * slots[0].epochs / needs.heads_at_once)
        self.head_bytes += sum(map(rates.head_bytes, needs.stored_heads))
        self._add_seconds(SEARCHES, 3600 * (needs.hours or 0.0))
        return sum(not spec.network.is_frozen for spec in trained)

    @property
    def total(self) -> float:
        """Return the total seconds; NaN if some are unknown."""
        return sum(self.seconds.values())

    def _add_seconds(self, activity: str, seconds: float) -> None:
        if seconds:
            self.seconds[activity] = self.seconds.get(activity, 0.0) + seconds

    def _add_networks(self, specs: Sequence[TrialSpec], at_once: int, rates: Rates) -> None:
        seconds = [0.0]
        for spec in specs:
            sizes = rates.sizes(spec.data)
            self.network_bytes += rates.network_bytes(spec)
            # A finished network is evaluated on each image once.
            images = sizes.train + sizes.select + sizes.calib + sizes.test
            network_s = images * rates.image_s(spec)
            if not spec.network.is_frozen:
                rate = rates.network(spec)
                self._note(f"{spec.network.backbone} on {spec.data.dataset}", rate)
                network_s += rate.seconds * spec.network.epochs
            seconds.append(network_s)
        # Parallel training takes at least as long as the longest network. A first NaN stays in max.
        self._add_seconds(NETWORKS, max(sum(seconds) / at_once, max(seconds)))

    def _add_bank(self, spec: TrialSpec, head: HeadSlot, needs: Needs, rates: Rates) -> None:
        key = bank_key(spec, head)
        is_built = not lacking_of_bank(key.identity, self.store, needs.run.is_search)
        if spec.data.imported is not None or is_built or key.identity in self.banks:
            return
        sizes = rates.sizes(spec.data)
        count = max(1, key.views) * sizes.train + sizes.select + sizes.calib
        if not needs.run.is_search:
            count += sizes.test
        # Features and logits in 4 bytes each, the label in 8.
        self.banks[key.identity] = count * (4 * (rates.width(spec) + spec.data.info.classes) + 8)
        image_s = rates.image_s(spec)
        if not math.isnan(image_s):
            self._add_seconds(HEADS, count * image_s / needs.heads_at_once)

    def _note(self, subject: str, rate: Rate) -> None:
        source = rate.source
        if not math.isnan(rate.seconds):
            source = f"{rate.seconds:.3g} s an epoch, {source}"
        self.sources.setdefault(subject, f"  {subject}: {source}")
