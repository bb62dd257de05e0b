"""Searches that go on elsewhere: longer, at the end of their space, on another machine."""

import itertools
from dataclasses import replace

import pytest

from tests.support import sample
from tests.tuning.search.support import (
    any_job,
    definition_of,
    moved,
    read_file,
    searched,
    stored,
)
from tune_calib.api import runs
from tune_calib.engine import machine
from tune_calib.experiments.entries import plan_entries
from tune_calib.results.tables import write_results
from tune_calib.spec.methods import METHODS
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.request import EvaluateRequest, SearchRequest, build_request
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.space import SPACES
from tune_calib.tuning.forecast import find_needs
from tune_calib.tuning.search.definition import Candidates, SuggestionResult
from tune_calib.tuning.search.evaluate import plan_evaluation
from tune_calib.tuning.search.manifest import refuse_other_specs
from tune_calib.tuning.search.storage import JOURNAL
from tune_calib.tuning.search.study import search_status

SAMPLERS = ["tpe", "random", "nsga2", "grid"]


def points(state) -> list[dict]:
    study = state.study
    return [dict(study.suggestion(number).point) for number in range(len(study.states()))]


@pytest.mark.parametrize("metrics", sample([(("ece",),), (("ece", "accuracy"),)], 1))
# The second generation of nsga2 begins at 50.
@pytest.mark.parametrize(
    ("sampler", "lengths"),
    sample([*((sampler, (2, 9, 18, 27, 30)) for sampler in SAMPLERS), ("nsga2", (52, 58))], 1),
)
def test_a_search_that_was_made_longer_is_the_search_of_that_length(
    tmp_path, sampler, lengths, metrics
):
    question = definition_of("mac_cal", sampler, metrics=metrics)
    complete = searched(tmp_path / "whole", question, lengths[-1])
    for length in lengths:
        longer = searched(tmp_path / "longer", question, length)
    assert points(longer) == points(complete)
    assert longer.results == complete.results


FEW = 10


def few_points(method) -> dict:
    """Settings that leave a method only some that are no real numbers, with few points."""
    settings = {"network": {"backbone": "small_cnn", "epochs": 1}}
    candidates = Candidates(method, ResolvedRequest())
    fixed = [n for n, s in candidates.space.settings.items() if s.choices() is None]
    left = candidates.space.without({name: candidates.defaults[name] for name in fixed})
    while left.size > FEW:
        fixed.append(next(iter(left.settings)))
        left = left.without({fixed[-1]: candidates.defaults[fixed[-1]]})
    for name in fixed:
        slot, _, key = name.partition(".")
        settings.setdefault(slot, {})[key] = candidates.defaults[name]
    return settings


# Each method under one sampler, and each sampler under a quarter of them; all pairs are slow.
PAIRS = list(zip(SPACES, itertools.cycle(SAMPLERS), strict=False))


@pytest.mark.parametrize(
    "pairs",
    [
        pytest.param(PAIRS, id="each"),
        pytest.param(
            [pair for pair in itertools.product(SPACES, SAMPLERS) if pair not in PAIRS],
            id="others",
            marks=[pytest.mark.slow, pytest.mark.timeout(600)],
        ),
    ],
)
def test_a_finite_space_is_exhausted(tmp_path, pairs):
    for method, sampler in pairs:
        comes_to_its_end(tmp_path / f"{method}-{sampler}", method, sampler)


def comes_to_its_end(tmp_path, method, sampler):
    tmp_path.mkdir()
    question = definition_of(method, sampler, few_points(method))
    state = searched(tmp_path / "out", question, 200)
    space, study = state.candidates.space, state.study
    assert space.size <= FEW
    suggestions = points(state)
    assert len({tuple(point.items()) for point in suggestions}) == space.size
    assert len(study.finished()) == len(suggestions) == study.planned(200) == space.size
    for length in (1, max(1, space.size - 1), 300):
        again = searched(tmp_path / "in-steps", question, length)
        assert len(points(again)) == again.study.planned(length) == min(length, space.size)
    assert points(again) == suggestions
    again = searched(tmp_path / "out", question, 300)
    assert points(again) == suggestions
    assert again.study.planned(300) == len(suggestions)
    assert again.objective.choose(again.results) == state.objective.choose(state.results)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_retried_suggestions_are_added_to_an_exhausted_space(tmp_path, sampler):
    question = definition_of("temperature", sampler)
    study = searched(tmp_path / "out", question, 1).study
    study.suggestion(1)
    study.write_result(1, SuggestionResult("crashed"))
    assert study.retry("crashed") == [2]
    suggestions = points(searched(tmp_path / "out", question, 50))
    assert suggestions[2] == suggestions[1]
    assert {point["posthoc.fit"] for point in suggestions} == {"nll", "grid_ece", "grid_nll"}


@pytest.mark.parametrize("asked", [2, 60])
@pytest.mark.parametrize("sampler", sample(SAMPLERS, 2))
@pytest.mark.parametrize("method", sample(["temperature", "ls", "mac_cal"], 2))
def test_status_and_dry_run_count_suggestions_and_come_to_done(tmp_path, method, sampler, asked):
    text = (
        f"out: {tmp_path / 'out'}\nentries: {{a: {{methods: [{method}], "
        f"search: {{trials: {asked}, sampler: {sampler}}}}}}}"
    )
    read = read_file(tmp_path, text)
    job = plan_entries(read, "it")[0].run
    job.out.mkdir(parents=True)
    job.build_manifest().write(job.out)
    state = searched(job.out, job.definition, asked)
    write_results(job.out, "all", {"trials": [stored(h, r) for h, r in state.rows.items()]})
    left = find_needs(job, job.plan())
    assert left.planned == left.done == len(points(state)) <= asked
    assert (left.heads, left.searched) == (0, [])
    status = search_status(job.out)
    assert f"{left.done} of {left.done} suggestions ended ({left.done} done)" in status
    assert "finished" in status
    assert "go on" not in status
    assert ("no more points" in status) == (left.done < asked)
    replace(job, length=99).build_manifest().write(job.out)
    is_at_end = state.study.planned(99) == left.done
    assert ("continue with: tune-calib resume" in search_status(job.out)) != is_at_end


def test_a_planned_evaluation_writes_nothing(tmp_path):
    question = definition_of("mac_cal")
    job = replace(any_job(tmp_path / "out"), definition=question, length=4)
    job.out.mkdir()
    job.build_manifest().write(job.out)
    state = searched(job.out, question, 4)
    write_results(job.out, "all", {"trials": [stored(h, r) for h, r in state.rows.items()]})
    times = {path: path.stat().st_mtime_ns for path in job.out.rglob("*")}
    planned = plan_evaluation(EvaluateRequest(out=str(job.out), seeds=3), "it")
    assert {path: path.stat().st_mtime_ns for path in job.out.rglob("*")} == times
    assert planned.run.resolved.seeds.network == (1, 2, 3)
    needs = find_needs(planned.run, planned.stages[0].work)
    assert (needs.done, needs.planned, len(needs.networks)) == (0, 9, 3)


SEARCHES = """
out: OUT
entries:
  few: {methods: [mac_cal, ls, temperature], search: {trials: 8}}
  one: {methods: [mac_cal, ls], search: {trials: 8, at_once: 1}}
  heads: {methods: [mac_cal], search: {heads: 8}, set: {network: {threads: 2}}}
  timed: {methods: [mac_cal, fl], search: {hours: 1, population: 3}}
"""
MACHINES = [1, 64]


def searches_on(cores, tmp_path, monkeypatch):
    """The searches of an experiment file and of the command line on a machine with some cores."""
    monkeypatch.setattr(machine, "count_cores", lambda: cores)
    read = read_file(tmp_path, SEARCHES.replace("OUT", str(tmp_path / "out")))
    asked = {entry.name: entry.run for entry in plan_entries(read, "it")}
    for at_once in (None, 1, 3):
        fields = {"method": "mac_cal", "at_once": at_once, "out": tmp_path / "typed"}
        request = build_request(SearchRequest, fields)
        asked[f"typed {at_once}"] = runs.plan_search(request, "it").run
    return asked


@pytest.mark.parametrize("second_cores", MACHINES)
@pytest.mark.parametrize("first_cores", MACHINES)
def test_a_search_goes_on_on_a_machine_with_other_cores(
    tmp_path, monkeypatch, first_cores, second_cores
):
    begun = searches_on(first_cores, tmp_path, monkeypatch)
    elsewhere = searches_on(second_cores, tmp_path, monkeypatch)
    assert len(begun) == 11
    for name, job in begun.items():
        out = tmp_path / "at" / name
        out.mkdir(parents=True)
        manifest = moved(job, out=out).build_manifest()
        manifest.write(out)
        again = moved(elsewhere[name], out=out).build_manifest()
        assert again.search == manifest.search
        assert again.question == manifest.question
    assert len({job.definition.lag for job in begun.values()}) == 1


CHANGES = {
    "a setting that is searched": ("mac_cal", {"head": {"lr": 0.013}}),
    "its recipe": ("mac_cal", {"head": {"batch_size": 3}}),
    "the baseline": ("ce", {"network": {"lr": 0.2}}),
}


@pytest.mark.parametrize("change", [None, *CHANGES])
def test_a_search_of_a_version_with_other_defaults_is_refused(
    tmp_path, monkeypatch, capsys, refusal, change
):
    """By resume, by evaluate and by the report of what has ended."""
    out = tmp_path / "out"
    # By the authors' recipes, which are defaults of the program and no part of the question.
    request = ResolvedRequest({"network": {"epochs": 1}}, own_recipes=True)
    question = replace(definition_of("mac_cal"), resolved=request)
    state = searched(out, question, 3)
    job = replace(any_job(out), definition=question, length=9)
    moved(job, out=tmp_path / "new").build_manifest().write(out)
    rungs = {t.spec.hash: -1 for t in state.candidates.baseline()}
    rungs |= {state.hashes(state.study.suggestion(n))[0]: n for n in range(3)}
    rows = [{**stored(h, r), "rung": rungs[h]} for h, r in state.rows.items()]
    write_results(out, "all", {"trials": rows})
    if change is None:
        refuse_other_specs(out, question.candidates)
        return
    name, settings = CHANGES[change]
    other = replace(RECIPES["focal"], name="other", settings=settings)
    monkeypatch.setitem(RECIPES._records, "other", other)
    monkeypatch.setitem(METHODS._records, name, replace(METHODS[name], recipe="other"))
    stored_bytes = (out / JOURNAL).read_bytes()
    capsys.readouterr()
    for command in ("resume", "evaluate", "report"):
        message = refusal(command, out)
        assert "other settings, and trials of both" in message
        assert ("the baseline" in message) == (change == "the baseline")
    assert (out / JOURNAL).read_bytes() == stored_bytes
