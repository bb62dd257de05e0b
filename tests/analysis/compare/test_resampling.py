"""Intervals over test samples: their coverage on a network whose calibration is known."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import analysis
from analysis.compare.intervals import ece_interval, over_samples
from analysis.load import load
from tests import fake_results
from tests.support import sample
from tune_calib.spec.metrics import column


def sweep_of(gap: float, samples: int, chance: np.random.Generator, bins: int = 15):
    """A trial whose true accuracy is ``gap`` below its confidence in every bin."""
    confidence = chance.uniform(0.3, 1.0, samples)
    is_right = chance.random(samples) < confidence - gap  # beyond 0 and 1: all wrong, all right
    place = np.ceil(confidence * bins).astype(int) - 1
    frame = pd.DataFrame({"bin": place, "confidence": confidence, "accuracy": is_right})
    groups = frame.groupby("bin").agg(
        count=("accuracy", "size"), confidence=("confidence", "mean"), accuracy=("accuracy", "mean")
    )
    trial = {"spec_hash": "a", "rung": 0, "network_seed": 0, "head_seed": None, "split_seed": None}
    return SimpleNamespace(
        bins=groups.assign(spec_hash="a", split="test"),
        done=pd.DataFrame([trial]),
        intervals=pd.DataFrame(
            columns=["lower", "upper"], index=pd.MultiIndex.from_arrays([[], []])
        ),
        labels={0: "one"},
        has_groups=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("samples", sample([300, 2000], 1))
@pytest.mark.parametrize("gap", sample([0.0, 0.1, -0.03], 2))
def test_the_intervals_have_about_their_nominal_coverage(gap, samples):
    # A calibrated network too: there each bootstrap interval of an ECE fails.
    chance = np.random.default_rng(1)
    repeats, hits = 60, {"ece": 0, "accuracy": 0}
    for _ in range(repeats):
        (row,) = over_samples(sweep_of(gap, samples, chance)).to_dict("records")
        hits["ece"] += row["ece_low"] <= abs(gap) + 1e-9 and abs(gap) <= row["ece_high"]
        hits["accuracy"] += row["accuracy_low"] <= 0.65 - gap <= row["accuracy_high"]
    assert hits["ece"] / repeats >= 0.9
    assert hits["accuracy"] / repeats >= 0.9


@pytest.mark.parametrize("samples", sample([1, 2, 20, 500], 2))
@pytest.mark.parametrize("gap", sample([-1.0, -0.1, 0.0, 0.1, 1.0], 3))
def test_every_interval_holds_its_estimate_and_stays_in_the_unit_range(gap, samples):
    for seed in range(4):
        sweep = sweep_of(gap, samples, np.random.default_rng(seed))
        (row,) = over_samples(sweep).to_dict("records")
        for metric in ("accuracy", "ece"):
            low, high = row[f"{metric}_low"], row[f"{metric}_high"]
            assert 0 <= low <= row[metric] <= high <= 1
            assert high > low  # also where every sample is right


@pytest.mark.parametrize("right", [50, 80])
def test_the_interval_of_a_one_bin_ece_is_that_of_the_accuracy(right):
    bin_ = (np.array([100.0]), np.array([right / 100]), np.array([0.9]))
    wilson = stats.binomtest(right, 100).proportion_ci(method="wilson")
    interval = ece_interval(*bin_)
    assert interval == pytest.approx(
        (0.9 - right / 100, 0.9 - wilson.high, 0.9 - wilson.low), abs=0.01
    )


def test_more_samples_give_narrower_intervals():
    widths = []
    for samples in (500, 8000):
        (row,) = over_samples(sweep_of(0.1, samples, np.random.default_rng(2))).to_dict("records")
        widths.append(row["ece_high"] - row["ece_low"])
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.3)


def test_the_bins_of_real_trials_give_their_ece():
    sweep = load(Path(analysis.__file__).parent / "example" / "ladder")
    table = over_samples(sweep)
    done = sweep.trials[sweep.trials["status"] == "done"]
    assert len(table) == len(done) > 0
    assert sorted(table["ece"]) == pytest.approx(sorted(done[column("test", "ece")]), abs=1e-6)
    assert (table["ece_low"] <= table["ece_high"]).all()


def test_a_trial_with_intervals_of_the_bootstrap_has_no_others(tmp_path):
    fake_results.write(tmp_path, seeds=2)
    plain = over_samples(load(tmp_path))
    fake_results.add_intervals(tmp_path, ["ece"])
    sweep = load(tmp_path)
    drawn = over_samples(sweep)
    of_ece = sweep.intervals.xs("ece", level="metric")
    assert sorted(drawn["ece_low"]) == sorted(of_ece["lower"])
    assert sorted(drawn["ece_high"]) == sorted(of_ece["upper"])
    untouched = ["accuracy_low", "accuracy_high", "ece"]
    pd.testing.assert_frame_equal(drawn[untouched], plain[untouched])
