"""Find what is left to do of a ladder or a search: networks, heads, Ray trials, evaluations."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tune_calib.errors import DataNotFoundError
from tune_calib.experiments.entries import Job
from tune_calib.paths import AnyPath
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.extra import ExtraTrial, find_extra_trials, group_extra_trials
from tune_calib.tuning.folder import done, spent_s
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.ray.executor import PART
from tune_calib.tuning.ray.plan import make_plan
from tune_calib.tuning.reuse import find_rows
from tune_calib.tuning.search.run import SearchRun, find_study
from tune_calib.tuning.search.study import list_points


@dataclass(frozen=True)
class Needs:
    """Work that is left of one ladder or search."""

    job: Job
    planned: int | None  # trials, or suggestions of a search; None if hours bound them
    done: int  # of them
    at_once: int  # network trials side by side that the cores of this machine carry
    heads_at_once: int
    trials: Sequence[PlannedTrial]  # planned; of a search the baseline and one suggestion
    networks: dict[str, TrialSpec]  # by id; of a search the baseline
    searched: list[TrialSpec] = field(default_factory=list)  # networks that suggestions train
    # Network and heads of each Ray trial of heads.
    populations: list[tuple[TrialSpec, list[HeadSlot]]] = field(default_factory=list)
    # Trials that are evaluated, and how many there are like each.
    evaluated: list[tuple[TrialSpec, int]] = field(default_factory=list)
    looks: list[ExtraTrial] = field(
        default_factory=list
    )  # also at trials that are still to be done
    ray_trials: int = 0  # of networks, heads and post-hoc methods
    hours: float | None = None  # left of a budget in hours
    unseen: bool = False  # no look is counted: the files of its shift sets are not here

    @property
    def is_search(self) -> bool:
        """Return whether the job is a search, which never sees the test split."""
        return isinstance(self.job, SearchRun)

    @property
    def heads(self) -> int:
        """Return the number of heads that are left to train."""
        return sum(len(slots) for _, slots in self.populations)

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to do."""
        return not (self.ray_trials or self.looks or self.hours)

    @property
    def tuners(self) -> int:
        """Return how often processes of trials are started: a ``Tuner`` starts its own."""
        parts = math.ceil(self.ray_trials / PART) + math.ceil(len(self.looks) / PART)
        return parts + bool(self.is_search and self.networks and self.ray_trials)


def find_needs(job: Job, hours: float | None = None) -> Needs:
    """Find what is left to do; ``hours`` is the budget of a search that has one in hours."""
    return _of_ladder(job) if isinstance(job, LadderRun) else _of_search(job, hours)


def _of_ladder(job: LadderRun) -> Needs:
    planned, out = job.known_trials, job.location.out
    reused = find_rows(planned, out, job.location.among)
    finished = done(out).union(reused)
    plan = make_plan(planned, finished)
    threads = max(trial.threads for trial in make_plan(planned, set()).networks)
    left = [trial for trial in planned if trial.spec.hash not in finished]
    looks = _looks(job, left, reused)
    return Needs(
        job=job,
        planned=len(planned),
        done=len(planned) - len(left),
        at_once=job.location.at_once(threads),
        heads_at_once=job.location.at_once(),
        trials=planned,
        networks=_networks(trial.dependents[0] for trial in plan.networks),
        populations=[_heads(trial.trials) for trial in plan.populations],
        evaluated=[(trial.spec, 1) for trial in left],
        looks=looks or [],
        unseen=looks is None,
        ray_trials=len(plan.networks) + len(plan.populations),
    )


def _looks(
    job: LadderRun,
    left: Sequence[PlannedTrial],
    reused: Mapping[str, AnyPath],
) -> list[ExtraTrial] | None:
    """Return extra evaluations of trials that are done or left; None without the files."""
    try:
        sets = job.shift_sets
    except DataNotFoundError:  # for a GPU that is not here no files need be
        return None
    looks = find_extra_trials(job.extra, sets, job.known_trials, job.location.out)
    for folder in dict.fromkeys(reused.values()):
        there = [trial for trial in job.known_trials if reused.get(trial.spec.hash) == folder]
        looks += find_extra_trials(job.extra, sets, there, folder)
    later = [(trial, dict[str, float]()) for trial in left]
    looks += [look for name in sets for look in group_extra_trials(later, name)]
    draws = job.extra.bootstrap
    return looks + (group_extra_trials(later, None, draws) if draws else [])


def _of_search(job: SearchRun, hours: float | None) -> Needs:
    definition, candidates = job.definition, job.definition.candidates
    point, pairs = candidates.first()[0], len(job.resolved.seeds.pairs())
    study = find_study(job.out, job.study_storage)
    finished = study.finished() if study else 0
    suggestion, baseline = candidates.trials(point, 0), candidates.baseline()
    like = suggestion[0].spec
    rows = done(job.out)
    networks = _networks(trial for trial in baseline if trial.spec.hash not in rows)
    needs = Needs(
        job=job,
        planned=None,
        done=finished,
        at_once=min(job.at_once, job.location.at_once(like.network.threads)),
        heads_at_once=min(job.at_once, job.location.at_once()),
        trials=[*baseline, *suggestion],
        networks=networks,
        evaluated=[(spec, 1) for spec in networks.values()],
        ray_trials=len(networks),
    )
    if hours is not None:
        return replace(needs, hours=max(0.0, hours - spent_s(job.out) / job.at_once / 3600))
    planned = job.length
    if definition.sampler == "grid":
        points = list_points(candidates.space, definition.sampler, candidates.first())
        planned = min(planned, len(points))
    planned = study.planned(planned) if study else planned
    left = max(0, planned - finished)
    populations = []
    if candidates.kind == "head":
        # As if all suggestions had the shape of the defaults; other shapes share no population.
        for start in range(0, left, definition.population):
            size = min(definition.population, left - start)
            plan = make_plan([trial for _ in range(size) for trial in suggestion], set())
            # The defaults stand for suggestions, each of which is a head of its own.
            populations += [
                (own.trials[0].spec, [t.spec.head for t in own.trials if t.spec.head is not None])
                for own in plan.populations
            ]
    more = len(populations) if candidates.kind == "head" else left * pairs
    return replace(
        needs,
        planned=planned,
        searched=[like] * (left * pairs) if candidates.kind == "network" else [],
        populations=populations,
        evaluated=[*needs.evaluated, (like, left * pairs)],
        ray_trials=needs.ray_trials + more,
    )


def _networks(trials: Iterable[PlannedTrial]) -> dict[str, TrialSpec]:
    return {trial.spec.network_id: trial.spec for trial in trials}


def _heads(trials: Sequence[PlannedTrial]) -> tuple[TrialSpec, list[HeadSlot]]:
    """Return a population; a head behind several post-hoc methods is trained once."""
    slots = {canonical_json(t.spec.head): t.spec.head for t in trials if t.spec.head is not None}
    return trials[0].spec, list(slots.values())
