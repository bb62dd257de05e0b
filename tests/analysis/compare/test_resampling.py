"""Intervals of trials over the test samples."""

import pandas as pd

from analysis.compare.intervals import over_samples
from analysis.load import load
from analysis.report import write_report
from tests import fake_results


def test_the_report_has_the_bootstrap_intervals_of_trials(tmp_path):
    fake_results.write(tmp_path, seeds=2)
    assert over_samples(load(tmp_path)).empty
    fake_results.add_intervals(tmp_path, ["ece"])
    run = load(tmp_path)
    drawn = over_samples(run)
    of_ece = run.intervals.xs("ece", level="metric")
    assert sorted(drawn["ece_low"]) == sorted(of_ece["lower"])
    assert sorted(drawn["ece_high"]) == sorted(of_ece["upper"])
    assert drawn["accuracy_low"].isna().all()
    write_report(tmp_path)
    table = pd.read_csv(tmp_path / "tables" / "intervals.csv")
    assert sorted(table["ece"]) == sorted(run.done["test/ece"])
    assert (table["samples"] > 0).all()
