"""Searches of pipelines: the settings of all methods, and values behind the post-hoc fit."""

import pytest

from tests.support import QUICK, here, rows
from tune_calib.errors import UserError
from tune_calib.results.manifests import SearchOutcome
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.space import SPACES
from tune_calib.tuning.search.definition import Candidates


@pytest.mark.parametrize(
    ("pipeline", "overrides", "kind"),
    [
        ("mac_cal+temperature", {}, "head"),
        ("ls+mac_cal", {}, "network"),
        ("ls+temperature", {}, "network"),
        ("ls+mac_cal", {"network": {"alpha": 0.1, "lr": 0.1, "weight_decay": 0.0}}, "head"),
        ("retrain+vector", {}, "head"),
        ("ls+temperature", {"network": {"alpha": 0.1, "lr": 0.1, "weight_decay": 0.0}}, "posthoc"),
    ],
)
def test_the_space_of_a_pipeline_is_that_of_its_methods(pipeline, overrides, kind):
    candidates = Candidates(pipeline, ResolvedRequest(overrides).with_recipe())
    searched = set()
    for name in set(pipeline.split("+")) & set(SPACES):
        searched |= set(SPACES[name].settings)
    searched -= {f"network.{key}" for key in overrides.get("network", {})}
    assert set(candidates.space.settings) == searched
    assert candidates.kind == kind
    for point in candidates.first():
        (trial,) = candidates.trials(point, 0)
        for name, value in point.items():
            slot, _, key = name.partition(".")
            filled = getattr(trial.spec, slot)
            assert getattr(filled.params, key, getattr(filled, key, None)) == value


def test_two_methods_of_a_slot_are_refused():
    with pytest.raises(UserError, match="two head methods"):
        Candidates("mac_cal+retrain", ResolvedRequest({}).with_recipe())


@pytest.mark.slow
def test_the_value_on_select_is_that_behind_the_posthoc_fit(tmp_path):
    """The same trial in a comparison has the same value; the head alone has another."""
    options = [*QUICK, "--store", tmp_path / "store"]
    done = here(
        "search", "retrain+temperature", "--trials", 1, *options, "--out", tmp_path / "search"
    )
    assert done.returncode == 0, done.stderr
    done = here(
        "compare", "retrain", "retrain+temperature", *options, "--out", tmp_path / "compare"
    )
    assert done.returncode == 0, done.stderr
    of_search = {row["spec_hash"]: row for row in rows(tmp_path / "search")}
    alone, fitted = sorted(rows(tmp_path / "compare"), key=lambda row: row["rung"])
    (spec,) = SearchOutcome.read(tmp_path / "search").suggestions[0].specs
    assert spec == fitted["spec_hash"]
    assert of_search[spec]["select/nll"] == fitted["select/nll"] != alone["select/nll"]


@pytest.mark.slow
def test_a_network_that_diverges_below_a_head_is_a_diverged_suggestion(tmp_path):
    out = tmp_path / "search"
    done = here(
        "search", "ce+retrain", "--sampler", "grid", "--grid", "network.lr=1.0e+9", *QUICK,
        "--out", out,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [entry.status for entry in SearchOutcome.read(out).suggestions] == ["done", "diverged"]
    (diverged,) = (row for row in rows(out) if row["status"] == "diverged")
    assert diverged["message"].startswith("network: ")
