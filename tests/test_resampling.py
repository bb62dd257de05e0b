"""Intervals over test samples: their coverage on a network whose calibration is known."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import analysis
from analysis.load import load
from analysis.report import write_report
from analysis.resampling import over_samples
from tests import fake_results
from tune_calib.names import column


def sweep_of(gap: float, samples: int, chance: np.random.Generator, bins: int = 15):
    """A trial whose true accuracy is ``gap`` below its confidence in every bin."""
    confidence = chance.uniform(0.3, 1.0, samples)
    is_right = chance.random(samples) < confidence - gap
    place = np.ceil(confidence * bins).astype(int) - 1
    frame = pd.DataFrame({"bin": place, "confidence": confidence, "accuracy": is_right})
    told = frame.groupby("bin").agg(
        count=("accuracy", "size"), confidence=("confidence", "mean"), accuracy=("accuracy", "mean")
    )
    trial = {"spec_hash": "a", "rung": 0, "network_seed": 0, "head_seed": None, "status": "done"}
    return SimpleNamespace(
        bins=told.assign(spec_hash="a", split="test"),
        trials=pd.DataFrame([trial]),
        rungs=[{"index": 0, "label": "one"}],
    )


def test_the_intervals_cover_what_is_true_about_as_often_as_they_say():
    chance = np.random.default_rng(1)
    hits = {"ece": 0, "accuracy": 0}
    for _ in range(200):
        (row,) = over_samples(sweep_of(0.1, 2000, chance)).to_dict("records")
        hits["ece"] += row["ece_low"] <= 0.1 <= row["ece_high"]
        hits["accuracy"] += row["accuracy_low"] <= 0.55 <= row["accuracy_high"]
    assert hits["ece"] / 200 > 0.9
    assert 0.9 < hits["accuracy"] / 200 <= 1


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


def test_the_report_has_an_interval_of_every_trial_that_is_done(tmp_path):
    fake_results.write(tmp_path, seeds=2)
    write_report(tmp_path)
    table = pd.read_csv(tmp_path / "tables" / "intervals.csv")
    assert len(table) == len(list((tmp_path / "trials").glob("*.parquet")))
