"""What is left to do of a ladder or a search: networks, heads, Ray trials, evaluations, looks."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tune_calib.errors import DataNotFoundError
from tune_calib.experiments.entries import Work
from tune_calib.experiments.file import ReadFile
from tune_calib.experiments.run import ladder_job, search_job
from tune_calib.paths import AnyPath
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.ablate import LadderJob, sweep_manifest
from tune_calib.tuning.extra import lacking_looks
from tune_calib.tuning.folder import done, spent_s
from tune_calib.tuning.ray.executor import PART
from tune_calib.tuning.ray.extra import ExtraTrial, group_extra_trials
from tune_calib.tuning.ray.plan import make_plan
from tune_calib.tuning.reuse import find_rows
from tune_calib.tuning.search.driver import refuse_asked, study_so_far
from tune_calib.tuning.search.job import Question, SearchJob
from tune_calib.tuning.search.manifest import search_manifest
from tune_calib.tuning.search.study import points_of

Job = LadderJob | SearchJob


@dataclass
class Needs:
    """What is left to do of one ladder or search.

    Attributes:
        name: of its folder.
        planned: trials (suggestions of a search); None if hours bound them.
        done: of them.
        gpus: of a Ray trial.
        at_once: network trials side by side that the cores of this machine carry.
        heads_at_once: head trials side by side.
        networks: that it needs, by id; of a search the baseline.
        trials: of a ladder, planned; of a search the baseline, and one suggestion.
        searched: networks that suggestions train, each like ``like``.
        like: a suggestion of a search, with the method's defaults.
        populations: network and heads of each Ray trial of heads.
        evaluated: trials that are evaluated, and how many there are like each.
        looks: closer looks, also at trials that are still to be done.
        ray_trials: network, head and post-hoc trials.
        uses_ray: whether Ray carries them out.
        hours: that are left of a budget in hours.
        question: of a search.
        unseen: whether the files of the shift sets are not here, so that no look is counted.
    """

    name: str
    planned: int | None
    done: int
    gpus: float
    at_once: int
    heads_at_once: int
    networks: dict[str, TrialSpec]
    trials: Sequence[PlannedTrial] = ()
    searched: int = 0
    like: TrialSpec | None = None
    populations: list[tuple[TrialSpec, list[HeadSlot]]] = field(default_factory=list)
    evaluated: list[tuple[TrialSpec, int]] = field(default_factory=list)
    looks: list[ExtraTrial] = field(default_factory=list)
    ray_trials: int = 0
    uses_ray: bool = True
    hours: float | None = None
    question: Question | None = None
    unseen: bool = False

    @property
    def heads(self) -> int:
        """Heads that are left to train."""
        return sum(len(slots) for _, slots in self.populations)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.ray_trials or self.looks or self.hours)

    @property
    def crews(self) -> int:
        """How often processes of trials are started: a ``Tuner`` starts its own."""
        parts = math.ceil(self.ray_trials / PART) + math.ceil(len(self.looks) / PART)
        return parts + bool(self.question and self.networks and self.ray_trials)


def needs_of(job: Job, hours: float | None = None) -> Needs:
    """What is left to do of one ladder or search.

    Args:
        job: the ladder or search.
        hours: the budget of a search that has one in hours.

    Raises:
        UserError: the study cannot be opened.
    """
    return _of_ladder(job) if isinstance(job, LadderJob) else _of_search(job, hours)


def needs_of_work(file: ReadFile, work: Work) -> Needs:
    """What is left to do of one ladder or search of a sweep file."""
    if work.search is None:
        return needs_of(ladder_job(file, work, ""))
    return needs_of(search_job(file, work, ""), work.search.hours)


def refuse(job: Job) -> None:
    """Refuse what can be refused by reading alone, as the job itself would.

    Raises:
        UserError: the data are not there, or the folder holds something else.
    """
    if isinstance(job, LadderJob):
        planned = job.planned()
        DATASETS[planned[0].spec.data.dataset].locate(job.site.data_root)
        job.look.list_sets(planned[0].spec.data, job.site.data_root)
        sweep_manifest(job, planned)
        return
    refuse_asked(job)
    candidates = job.question.candidates()
    candidates.refuse_empty()
    DATASETS[candidates.baseline()[0].spec.data.dataset].locate(job.site.data_root)
    search_manifest(job)


def _of_ladder(job: LadderJob) -> Needs:
    planned, out = job.planned(), job.site.out
    taken = find_rows(planned, out, job.site.among)
    finished = done(out).union(taken)
    plan = make_plan(planned, finished)
    threads = max(trial.threads for trial in make_plan(planned, set()).networks)
    left = [trial for trial in planned if trial.spec.hash not in finished]
    looks = _looks(job, planned, left, taken)
    return Needs(
        name=out.name,
        planned=len(planned),
        done=len(planned) - len(left),
        gpus=job.site.gpus,
        uses_ray=job.site.uses_ray,
        at_once=job.site.at_once(threads),
        heads_at_once=job.site.at_once(),
        trials=planned,
        networks=_networks(trial.dependents[0] for trial in plan.networks),
        populations=[_heads(trial.trials) for trial in plan.populations],
        evaluated=[(trial.spec, 1) for trial in left],
        looks=looks or [],
        unseen=looks is None,
        ray_trials=len(plan.networks) + len(plan.populations),
    )


def _looks(
    job: LadderJob,
    planned: Sequence[PlannedTrial],
    left: Sequence[PlannedTrial],
    taken: Mapping[str, AnyPath],
) -> list[ExtraTrial] | None:
    """Closer looks at trials that are done, here or elsewhere, and at those that are left.

    Returns:
        None without files.
    """
    try:
        sets = job.look.list_sets(planned[0].spec.data, job.site.data_root)
    except DataNotFoundError:  # for a GPU that is not here no files need be
        return None
    looks = lacking_looks(job.look, sets, planned, job.site.out)
    for folder in dict.fromkeys(taken.values()):
        there = [trial for trial in planned if taken.get(trial.spec.hash) == folder]
        looks += lacking_looks(job.look, sets, there, folder)
    later = [(trial, dict[str, float]()) for trial in left]
    looks += [look for name in sets for look in group_extra_trials(later, name)]
    return looks + (
        group_extra_trials(later, None, job.look.bootstrap) if job.look.bootstrap else []
    )


def _of_search(job: SearchJob, hours: float | None) -> Needs:
    question, candidates = job.question, job.question.candidates()
    point, pairs = candidates.first()[0], len(question.asked.seeds.pairs())
    study = study_so_far(job.out, job.study_storage)
    finished = study.finished() if study else 0
    planned = None if hours is not None else job.suggestions
    if planned is not None:
        if question.sampler == "grid":
            points = points_of(candidates.space, question.sampler, candidates.first())
            planned = min(planned, len(points))
        planned = study.planned(planned) if study else planned
    suggestion, baseline = candidates.trials(point, 0), candidates.baseline()
    threads = suggestion[0].spec.network.threads
    rows = done(job.out)
    needs = Needs(
        name=job.out.name,
        planned=planned,
        done=finished,
        gpus=job.site.gpus,
        uses_ray=job.site.uses_ray,
        at_once=min(job.at_once, job.site.at_once(threads)),
        heads_at_once=min(job.at_once, job.site.at_once()),
        trials=[*baseline, *suggestion],
        networks=_networks(trial for trial in baseline if trial.spec.hash not in rows),
        like=suggestion[0].spec,
        question=question,
    )
    needs.ray_trials = len(needs.networks)
    needs.evaluated = [(spec, 1) for spec in needs.networks.values()]
    if hours is not None:
        needs.hours = max(0.0, hours - spent_s(job.out) / job.at_once / 3600)
        return needs
    assert planned is not None
    left = max(0, planned - finished)
    needs.evaluated.append((suggestion[0].spec, left * pairs))
    if candidates.kind == "head":
        # As if all suggestions had the shape of the defaults; other shapes share no population.
        for start in range(0, left, question.population):
            size = min(question.population, left - start)
            plan = make_plan([trial for _ in range(size) for trial in suggestion], set())
            # The defaults stand for suggestions, each of which is a head of its own.
            needs.populations += [
                (own.trials[0].spec, [t.spec.head for t in own.trials if t.spec.head is not None])
                for own in plan.populations
            ]
        needs.ray_trials += len(needs.populations)
    else:
        needs.searched = left * pairs if candidates.kind == "network" else 0
        needs.ray_trials += left * pairs
    return needs


def _networks(trials: Iterable[PlannedTrial]) -> dict[str, TrialSpec]:
    return {trial.spec.network_id: trial.spec for trial in trials}


def _heads(trials: Sequence[PlannedTrial]) -> tuple[TrialSpec, list[HeadSlot]]:
    """A population; a head that several post-hoc methods stand behind is trained once."""
    slots = {canonical_json(t.spec.head): t.spec.head for t in trials if t.spec.head is not None}
    return trials[0].spec, list(slots.values())
