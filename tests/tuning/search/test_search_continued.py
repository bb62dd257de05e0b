"""Searches that go on elsewhere: longer, at the end of their space, on another machine."""

from dataclasses import replace

import pytest

from tests.support import sample
from tests.tuning.search.support import any_job, definition_of, moved, read_file, searched, stored
from tune_calib.experiments.entries import plan_entries
from tune_calib.results.tables import write_results
from tune_calib.spec.methods import METHODS
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.request import EvaluateRequest
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.describe import find_needs
from tune_calib.tuning.search.definition import SuggestionResult
from tune_calib.tuning.search.evaluate import plan_evaluation
from tune_calib.tuning.search.run import refuse_other_specs
from tune_calib.tuning.search.storage import JOURNAL
from tune_calib.tuning.search.study import search_status

SAMPLERS = ["tpe", "gp", "qmc", "random", "nsga2", "grid"]


def points(state) -> list[dict]:
    study = state.study
    return [dict(study.suggestion(number).params) for number in range(len(study.states()))]


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


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_retried_suggestions_are_added_to_an_exhausted_space(tmp_path, sampler):
    question = definition_of("temperature", sampler)
    study = searched(tmp_path / "out", question, 1).study
    study.suggestion(1)
    study.write_result(1, SuggestionResult("crashed"))
    study.retry("crashed")
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
