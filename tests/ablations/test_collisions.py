"""Rungs that a setting makes equal, settings that change nothing, plans that are too large."""

import json
import re
from dataclasses import replace

import pytest

from tests.support import job_in, sample
from tune_calib.errors import UserError
from tune_calib.results.manifests import VERSION, ReadRecord, SearchEvaluated
from tune_calib.results.selection import CHOSEN, DEFAULTS
from tune_calib.spec.ladder import LADDERS, expand
from tune_calib.spec.request import EvaluateRequest
from tune_calib.spec.resolved import LARGEST_PLAN, ResolvedRequest, Seeds, refuse_large
from tune_calib.tuning.context import Context
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.plan import execute_run
from tune_calib.tuning.search.definition import Candidates, Objective, SearchDefinition
from tune_calib.tuning.search.evaluate import build_run
from tune_calib.tuning.search.run import SearchRun

SEEDS = {
    "paired": Seeds((0, 1), (0, 1), is_paired=True),
    "crossed": Seeds((0, 1), (0, 1, 2), is_paired=False),
}


def own_settings(name: str) -> list[tuple[str, str, object]]:
    """Every setting by which rungs of a ladder differ, with every value that a rung gives it."""
    settings = {
        (slot, key, json.dumps(value)): (slot, key, value)
        for rung in LADDERS[name].rungs
        for slot, asked in rung.slots.items()
        for key, value in asked.items()
        if key != "method"
    }
    return list(settings.values())


CROSSED = [
    (name, setting, seeds, with_controls)
    for name in LADDERS
    for setting in own_settings(name)
    for seeds in SEEDS
    for with_controls in (False, True)
]


@pytest.mark.parametrize(("name", "setting", "seeds", "with_controls"), sample(CROSSED, 100))
def test_overridden_settings_preserve_every_rung_or_name_the_equal_ones(
    name, setting, seeds, with_controls
):
    slot, key, value = setting
    ladder, overrides = LADDERS[name], {slot: {key: value}}
    expected = {i for i, rung in enumerate(ladder.rungs) if with_controls or rung.kind != "control"}
    message = ""
    try:
        planned = expand(ladder, ResolvedRequest(overrides, SEEDS[seeds], controls=with_controls))
    except UserError as error:
        message = str(error)
    if not message:
        assert {trial.rung for trial in planned} == expected
        return
    assert sum(repr(rung.label) in message for rung in ladder.rungs) >= 2
    assert f"{slot}.{key}={value}" in message
    assert "\n" not in message


def test_a_rung_without_head_is_one_trial_under_several_head_seeds():
    planned = expand(LADDERS["mac_cal"], ResolvedRequest(seeds=SEEDS["crossed"]))
    assert [trial.rung for trial in planned].count(0) == 2
    assert [trial.rung for trial in planned].count(1) == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["mac_cal", "--set", "head.shape=linear"],
            "every rung with the setting head.shape sets it",
        ),
        (["mac_cal", "--set", "head.gradient=dense"], "head.gradient sets it itself"),
        (["fedlas_indicator", "--set", "network.indicator=max_prob"], "sets it itself"),
        (["fedlas", "--head-epochs", "3"], "no rung has a setting head.epochs"),
        (["fedlas_gate", "--set", "posthoc.fit=nll"], "no rung has a setting posthoc.fit"),
    ],
)
def test_a_setting_that_changes_no_rung_is_refused(arguments, message, refusal, tmp_path):
    assert message in refusal("ablate", *arguments, "--out", tmp_path / "out")
    ladder, _, setting = arguments[0], *arguments[1:]
    if "=" in setting:
        slot, key, value = re.split("[.=]", setting)
        file = tmp_path / "experiment.yaml"
        content = f"entries: {{a: {{ladder: {ladder}, set: {{{slot}: {{{key}: {value}}}}}}}}}"
        file.write_text(content)
        assert message in refusal("run", file)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("method", ["ce", "ls", "mac_cal", "temperature"])
@pytest.mark.parametrize("is_default", [True, False])
def test_the_evaluation_of_a_search_has_no_two_equal_rungs(method, is_default, tmp_path):
    """The defaults of ce are the baseline."""
    candidates = Candidates(method, ResolvedRequest())
    defaults = candidates.first()[0]
    point = defaults if is_default else {**defaults, **dict([last_choice(candidates)])}
    question = SearchDefinition(method, ResolvedRequest(), Objective(("ece",), 0.01))
    job = SearchRun(question, 4, RunLocation(tmp_path, tmp_path / "store"))
    reads = [ReadRecord(seeds=2, command="again")]
    choice = SearchEvaluated(version=VERSION, trial=0, settings=point, rule="any", reads=reads)
    asked = build_run(job, choice, EvaluateRequest(out=str(tmp_path)), "again")
    planned = asked.planned_trials
    labels = [rung.label for rung in asked.ladder.rungs]
    assert len({trial.rung for trial in planned}) == len(labels)
    is_baseline = method == "ce"
    assert (CHOSEN in labels) == (not (is_default and is_baseline))
    assert (DEFAULTS in labels) == (not is_default and not is_baseline)


def last_choice(candidates: Candidates) -> tuple[str, object]:
    """A setting of the space, and a value of it that is not the default."""
    name, setting = list(candidates.space.settings.items())[-1]
    return name, next(v for v in setting.levels() if v != candidates.defaults[name])


@pytest.mark.parametrize(
    "counts", [(10**9, None, None), (10**30, None, None), (None, 10**5, 10**5), (None, 10**9, None)]
)
def test_a_plan_that_is_too_large_is_refused_by_its_counts(counts):
    with pytest.raises(UserError, match=f"at most {LARGEST_PLAN:,}"):
        Seeds.count(*counts)


def test_the_limit_counts_rungs():
    seeds = Seeds.count(LARGEST_PLAN // 2, None, None)
    with pytest.raises(UserError, match="300,000 trials are planned"):
        expand(LADDERS["mac_cal"], ResolvedRequest(seeds=seeds))
    refuse_large(LARGEST_PLAN)


@pytest.mark.parametrize("changed", [0, 3])
@pytest.mark.parametrize("seeds", [1, 2])
def test_a_sweep_that_was_begun_with_other_defaults_is_not_extended(changed, seeds, tmp_path):
    out = tmp_path / "out"
    job = job_in(out)
    manifest = job.build_manifest()
    other = replace(manifest.planned[changed], spec_hash="of an earlier version")
    manifest.planned[changed] = other
    manifest.write(out)
    files_before = fake_results_tree(out)
    label = job.ladder.rungs[changed].label
    with pytest.raises(UserError, match="other defaults") as caught:
        execute_run(job_in(out, seeds=seeds), Context())
    assert repr(label) in str(caught.value)
    assert "name another `out`" in str(caught.value)
    assert fake_results_tree(out) == files_before


def fake_results_tree(out) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}
