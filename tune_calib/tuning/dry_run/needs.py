"""What is left to do of a ladder or search of a sweep file: networks, heads, Ray trials."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tune_calib.ladder import PlannedTrial
from tune_calib.places import Place
from tune_calib.slots.head import HeadSlot
from tune_calib.spec import TrialSpec
from tune_calib.tuning.backend.plan import make_plan
from tune_calib.tuning.folder import done, spent_s
from tune_calib.tuning.search.driver import study_so_far
from tune_calib.tuning.search.job import Question
from tune_calib.tuning.search.study import points_of
from tune_calib.tuning.sweep.entries import Work
from tune_calib.tuning.sweep.run import at_once, question_of, suggestions, threads_of


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
        searched: networks that suggestions train, each like ``like``.
        like: a suggestion of a search, with the method's defaults.
        populations: network and heads of each Ray trial of heads.
        ray_trials: network, head and post-hoc trials.
        hours: that are left of a budget in hours.
        question: of a search.
    """

    name: str
    planned: int | None
    done: int
    gpus: float
    at_once: int
    heads_at_once: int
    networks: dict[str, TrialSpec]
    searched: int = 0
    like: TrialSpec | None = None
    populations: list[tuple[TrialSpec, list[HeadSlot]]] = field(default_factory=list)
    ray_trials: int = 0
    hours: float | None = None
    question: Question | None = None

    @property
    def heads(self) -> int:
        """Heads that are left to train."""
        return sum(len(slots) for _, slots in self.populations)


def needs_of(work: Work, out: Place, study_storage: str | None = None) -> Needs:
    """What is left to do of one ladder or search.

    Args:
        work: the ladder or search.
        out: its folder.
        study_storage: URL of the database of a search's study; none is a journal file.

    Raises:
        UserError: the study cannot be opened.
    """
    return _of_ladder(work, out) if work.search is None else _of_search(work, out, study_storage)


def _of_ladder(work: Work, out: Place) -> Needs:
    planned = work.planned()
    finished = done(out)
    plan = make_plan(planned, finished)
    threads = max(trial.threads for trial in make_plan(planned, set()).networks)
    return Needs(
        name=work.name,
        planned=len(planned),
        done=sum(trial.spec.hash in finished for trial in planned),
        gpus=work.gpus,
        at_once=max(1, _cores() // threads),
        heads_at_once=_cores(),
        networks=_networks(trial.dependents[0] for trial in plan.networks),
        populations=[_heads(trial.trials) for trial in plan.populations],
        ray_trials=len(plan.networks) + len(plan.populations),
    )


def _of_search(work: Work, out: Place, study_storage: str | None) -> Needs:
    assert work.search is not None
    question, candidates = question_of(work), work.candidates()
    point, pairs = candidates.first()[0], len(work.asked.seeds.pairs())
    study, planned = study_so_far(out, study_storage), suggestions(work)
    finished = study.finished() if study else 0
    if planned is not None:
        if question.sampler == "grid":
            points = points_of(candidates.space, question.sampler, candidates.first())
            planned = min(planned, len(points))
        planned = study.planned(planned) if study else planned
    suggestion = candidates.trials(point, 0)
    needs = Needs(
        name=work.name,
        planned=planned,
        done=finished,
        gpus=work.gpus,
        at_once=min(at_once(work), max(1, _cores() // threads_of(work))),
        heads_at_once=min(at_once(work), _cores()),
        networks=_networks(
            trial for trial in candidates.baseline() if trial.spec.hash not in done(out)
        ),
        like=suggestion[0].spec,
        question=question,
    )
    needs.ray_trials = len(needs.networks)
    if planned is None:
        spent = spent_s(out) / at_once(work) / 3600
        needs.hours = max(0.0, (work.search.hours or 0.0) - spent)
        return needs
    left = max(0, planned - finished)
    if candidates.kind == "head":
        # As if all suggestions had the shape of the defaults; other shapes share no population.
        for start in range(0, left, question.population):
            size = min(question.population, left - start)
            plan = make_plan(_repeated(suggestion, size), set())
            needs.populations += [_heads(trial.trials) for trial in plan.populations]
        needs.ray_trials += len(needs.populations)
    else:
        needs.searched = left * pairs if candidates.kind == "network" else 0
        needs.ray_trials += left * pairs
    return needs


def _repeated(suggestion: Sequence[PlannedTrial], size: int) -> list[PlannedTrial]:
    return [trial for _ in range(size) for trial in suggestion]


def _networks(trials: Iterable[PlannedTrial]) -> dict[str, TrialSpec]:
    return {trial.spec.network_id: trial.spec for trial in trials}


def _heads(trials: Sequence[PlannedTrial]) -> tuple[TrialSpec, list[HeadSlot]]:
    return trials[0].spec, [trial.spec.head for trial in trials if trial.spec.head is not None]


def _cores() -> int:
    return os.cpu_count() or 1
