"""The path from the published to the chosen settings of a search."""

import shutil
from pathlib import Path

import pytest

from analysis.compare.effects import compute_effects
from analysis.load import load
from tests.support import QUICK, here, rows
from tune_calib.results.manifests import SearchEvaluated
from tune_calib.results.tables import read_table
from tune_calib.tuning import plan

pytestmark = pytest.mark.slow

# In one epoch, a head that continues the network's own has a lower NLL than a fresh one, and the
# weight decay hardly acts.
GRID = ["--grid", "head.start=continued", "--grid", "head.weight_decay=1e-6"]
SEARCH = ["retrain", "--sampler", "grid", *GRID, "--metric", "nll", "--guard", "1"]
SEARCH += [*QUICK, "--epochs", "8", "--head-epochs", "1"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A search whose chosen settings are those of the grid."""
    out = tmp_path_factory.mktemp("path") / "search"
    done = here("search", *SEARCH, "--out", out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def complete(finished, tmp_path_factory):
    """The search with its path, and what was printed."""
    out = tmp_path_factory.mktemp("complete") / "search"
    shutil.copytree(finished, out)
    done = here("ablate", "--path", out, "--seeds", 2)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_the_path_finds_the_setting_that_carries_the_gain(complete):
    out, printed = complete
    run = load(out / "path")
    assert [factor.name for factor in run.manifest.design.factors] == [
        "head.start",
        "head.weight_decay",
    ]
    labels = [rung.label for rung in run.rungs]
    assert labels == [
        "baseline",
        "published",
        "+ head.start",
        "+ head.weight_decay",
        "all but head.start",
    ]
    assert "is carried by 1 of 2 factors: head.start" in printed
    assert "head.start fresh to continued" in printed
    effects = {(effect.kind, effect.name): effect for effect in compute_effects(run, "nll")}
    means = run.trials.groupby("rung_label")["test/nll"].mean()
    change = effects["path", "head.start"].decision.difference
    assert change == pytest.approx(means["+ head.start"] - means["published"], abs=1e-12)
    change = effects["removed", "head.start"].decision.difference
    assert change == pytest.approx(
        means["+ head.weight_decay"] - means["all but head.start"], abs=1e-12
    )


def test_steps_have_seeds_of_their_own_and_only_the_points_read_test(complete):
    out, _ = complete
    step, points = read_table(out / "path" / "step-1", "trials"), read_table(out / "path", "trials")
    assert not any(name.startswith("test/") for name in step.column_names)
    assert set(step["network_seed"].to_pylist()) == {2000, 2001}
    assert points["test/nll"].null_count == 0
    assert set(points["network_seed"].to_pylist()) == {1, 2}
    (read,) = SearchEvaluated.read(out).reads
    assert (read.points, read.seeds) == (5, 2)
    assert here("evaluate", out, "--seeds", 2).returncode == 0
    assert [read.points for read in SearchEvaluated.read(out).reads] == [5, 0]


def test_a_stopped_path_continues_to_the_same_rows(finished, complete, tmp_path, monkeypatch):
    out = tmp_path / "search"
    shutil.copytree(finished, out)
    execute_run = plan.execute_run

    def stop(run, *further):
        if run.location.out.name == "path":
            raise KeyboardInterrupt
        return execute_run(run, *further)

    monkeypatch.setattr(plan, "execute_run", stop)
    assert here("ablate", "--path", out, "--seeds", 2).returncode == 130
    assert not (out / "evaluated.json").exists()
    monkeypatch.undo()
    (out / "path" / "step-1" / "trials").rename(out / "trials-of-step")
    assert here("ablate", "--path", out, "--seeds", 2).returncode == 0
    for folder in ("path", "path/step-1"):
        assert rows(out / folder) == rows(complete[0] / folder)


def test_impossible_paths_are_refused(finished, complete, refusal, tmp_path):
    assert "contains no search.json" in refusal("ablate", "--path", tmp_path)
    assert "give exactly one of LADDER and --path" in refusal("ablate")
    message = refusal("ablate", "--path", finished, "--dataset", "cifar10")
    assert "--path takes --dataset from its search; leave it out" in message
    message = refusal("ablate", "--path", complete[0], "--seeds", 3)
    assert "test was read once, with 5 points of a path and 2 fresh seeds" in message
    out = tmp_path / "search"
    shutil.copytree(finished, out)
    next(iter((out / "trials").glob("heads-*"))).unlink()
    assert "the search is not finished" in refusal("ablate", "--path", out)
    alone = tmp_path / "alone"
    words = [*QUICK, "--epochs", "8", "--metric", "nll", "--guard", "1", "--trials", "1"]
    assert here("search", "retrain", *words, "--out", alone).returncode == 0
    assert "the chosen settings are the published ones" in refusal("ablate", "--path", alone)
