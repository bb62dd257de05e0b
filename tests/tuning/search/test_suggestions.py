"""Suggestions that are asked for together: those that would be asked for one by one."""

import contextlib
import itertools
import random

import pytest

from tests.support import sample
from tests.tuning.search.support import GIVEN, definition_of, open_untrained, run_source, study_in
from tune_calib.spec.space import Space, choice, uniform
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.search import study as study_module
from tune_calib.tuning.search.definition import Objective, SearchDefinition, SuggestionResult
from tune_calib.tuning.search.source import StudySource
from tune_calib.tuning.search.storage import JOURNAL
from tune_calib.tuning.search.study import SearchStudy
from tune_calib.tuning.work.jobs import Job

COUNT, LAG = 32, 2
METRICS = [("ece",), ("accuracy",), ("ece", "accuracy")]


def result_of(number, point, metrics) -> SuggestionResult:
    """Some end well, some lose accuracy, diverge or are stopped."""
    chance = random.Random(number)
    if chance.random() < 0.2:
        return SuggestionResult("diverged" if chance.random() < 0.5 else "crashed")
    values = [(point["head.lr"] - 0.1) ** 2, chance.random()][: len(metrics)]
    return SuggestionResult("done", tuple(values), 0.02 * chance.random())


def suggested(out, objective, sampler, size, how, count=COUNT):
    """Suggestions of a search in batches, each told when the one behind the next is asked for."""
    points = []

    def opened() -> SearchStudy:
        return study_in(out, sampler, objective=objective)

    study = opened()
    for start in range(0, count, size):
        for number in range(max(0, start - LAG * size), start - (LAG - 1) * size):
            if not study.suggestion(number).state.is_finished():
                standing = result_of(number, points[number], objective.metrics)
                study.write_result(number, standing)
        numbers, ended = range(start, min(start + size, count)), max(0, start - size)
        if how == "together":
            suggestions = study.suggestions(numbers, ended)
        elif how == "one by one":
            suggestions = [study.suggestions([number], ended)[0] for number in numbers]
        else:  # each by a process of its own
            suggestions = [opened().suggestions([number], ended)[0] for number in numbers]
            study = opened()
        assert [suggestion.number for suggestion in suggestions] == list(numbers)
        points += [dict(suggestion.params) for suggestion in suggestions]
    return points


@pytest.mark.parametrize(
    ("sampler", "metrics", "guard"),
    sample(
        [
            *(("tpe", metrics, guard) for metrics in METRICS for guard in (0.005, 1.0)),
            ("random", METRICS[0], 1.0),
            ("nsga2", METRICS[0], 0.005),
            ("nsga2", METRICS[2], 1.0),
        ],
        1,
    ),
)
def test_a_batch_equals_single_suggestions(tmp_path, sampler, metrics, guard):
    objective = Objective(metrics, guard)
    together = suggested(tmp_path / "together", objective, sampler, 8, "together")
    assert suggested(tmp_path / "single", objective, sampler, 8, "one by one") == together
    assert suggested(tmp_path / "anew", objective, sampler, 8, "anew") == together


@pytest.mark.parametrize("metrics", sample(zip(METRICS), 1))
def test_a_batch_cut_at_any_byte_is_finished_as_it_would_have_been(tmp_path, metrics):
    objective = Objective(metrics, 0.01)
    uninterrupted = suggested(tmp_path / "whole", objective, "tpe", 8, "together")
    journal = (tmp_path / "whole" / JOURNAL).read_bytes()
    chance = random.Random(0)
    for cut in sorted(chance.randrange(len(journal)) for _ in range(8)):
        out = tmp_path / f"cut-{cut}"
        out.mkdir()
        (out / JOURNAL).write_bytes(journal[:cut])
        assert suggested(out, objective, "tpe", 8, "together") == uninterrupted, cut


def test_a_study_shorter_than_its_batch_and_a_later_search_agree(tmp_path):
    """A search of 13 that is made longer to 32: its last batch was cut short."""
    objective = Objective(("ece",), 0.01)
    uninterrupted = suggested(tmp_path / "whole", objective, "tpe", 8, "together")
    suggested(tmp_path / "longer", objective, "tpe", 8, "together", count=13)
    study = study_in(tmp_path / "longer", objective=objective)
    for number in range(13):
        if not study.suggestion(number).state.is_finished():
            study.write_result(number, result_of(number, uninterrupted[number], objective.metrics))
    assert suggested(tmp_path / "longer", objective, "tpe", 8, "together") == uninterrupted


STEPS = {
    "x": choice(0.1, 0.3, 0.5, 0.7),
    "n": choice(2, 5, 8),
    "k": choice(None, True, n=(5,)),
    "one": choice(0.3),
}
HALF = {"mode": choice("off", "on"), "rate": uniform(0.0, 1.0, mode=("on",))}


@pytest.fixture
def study_over(tmp_path, monkeypatch):
    """The study of a space, without published points."""

    def open_study(settings, sampler) -> SearchStudy:
        monkeypatch.setattr(study_module, "restrict_space", lambda *_: Space("any", settings))
        monkeypatch.setattr(SearchDefinition, "points", [])
        return study_in(tmp_path / sampler, sampler)

    return open_study


def suggest_all(study, count):
    """Suggestions one by one, each with its result, which prefers a single point."""
    suggestions = []
    for number in range(count):
        suggestions += study.suggestions([number])
        if len(suggestions) == number:
            break
        study.write_result(number, SuggestionResult("done", (float(number > 0),), 0.0))
    return [dict(suggestion.params) for suggestion in suggestions]


@pytest.mark.parametrize("draws", [1, 10])
@pytest.mark.parametrize("sampler", ["tpe", "gp", "qmc", "random", "nsga2"])
def test_each_point_of_a_finite_space_is_suggested_once(study_over, monkeypatch, sampler, draws):
    monkeypatch.setattr(study_module, "DRAWS", draws)
    study = study_over(STEPS, sampler)
    assert study.planned(50) == 16
    suggestions = suggest_all(study, 50)
    assert len(suggestions) == 16
    every = list(Space("any", STEPS).points())
    assert sorted(suggestions, key=repr) == sorted(every, key=repr)


@pytest.mark.parametrize("sampler", ["tpe", "gp", "qmc", "random", "nsga2"])
def test_a_space_with_a_continuous_setting_is_never_exhausted(study_over, sampler):
    study = study_over(HALF, sampler)
    suggestions = suggest_all(study, 40)
    assert study.planned(400) == 400
    assert len({tuple(point.items()) for point in suggestions}) == len(suggestions) == 40
    assert suggestions.count({"mode": "off"}) <= 1


def test_a_point_that_is_tried_again_leaves_the_others_to_be_suggested(study_over):
    study = study_over(STEPS, "random")
    study.suggestions([0])
    study.write_result(0, SuggestionResult("crashed"))
    study.retry("crashed")
    assert study.planned(50) == 17
    assert len(study.suggestions(range(50))) == 17


def search_networks(out, order, is_ordered, dies_after=10**6):
    """Search networks, three at a time, which end in a random order; return the points."""
    definition = definition_of("ls", given={"network": GIVEN["network"]})
    state = open_untrained(out, definition)
    state.length = 18
    for number in range(len(state.study.states())):  # of an earlier session, all of them ended
        planned = state.candidates.trials(state.study.suggestion(number).params, number)
        state.collect(Job("network", tuple(planned)))
    chance, left = random.Random(order), itertools.count()

    def end(running):
        if next(left) == dies_after:
            raise KeyboardInterrupt
        number = chance.choice(list(running))
        running.pop(number)
        return number

    run = Provenance("out", "store", git_revision=None)
    with contextlib.suppress(KeyboardInterrupt):
        run_source(StudySource(state, run, 3, Tracker(""), is_ordered=is_ordered), end)
    return [dict(state.study.suggestion(n).params) for n in range(len(state.study.states()))]


def test_networks_in_order_are_suggested_from_the_same_results_whichever_ends_first(tmp_path):
    points = search_networks(tmp_path / "0", 0, is_ordered=True)
    assert len(points) == 18
    assert search_networks(tmp_path / "1", 1, is_ordered=True) == points
    assert len(search_networks(tmp_path / "2", 2, is_ordered=True, dies_after=13)) < 18
    assert search_networks(tmp_path / "2", 3, is_ordered=True) == points
    assert search_networks(tmp_path / "3", 1, is_ordered=False) != points
