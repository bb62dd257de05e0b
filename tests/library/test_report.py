"""The report of logits and labels: every metric with its interval, a table and a figure."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import binom

import tune_calib
from tests.metrics.test_without_bins import case
from tune_calib.metrics.bootstrap import bootstrap
from tune_calib.metrics.summary import evaluate


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor, np.float32, torch.Tensor.tolist])
def test_a_report_accepts_arrays_and_tensors(kind):
    logits, labels = case(300, 4)
    given = kind(logits)
    report = tune_calib.calibration_report(given, labels.tolist(), resamples=40, seed=2)
    told = report.metrics.set_index("metric")
    exact = torch.as_tensor(np.asarray(given, dtype=np.float64))
    values = evaluate(exact, labels)
    intervals = bootstrap(exact[None], labels, 40, 2)
    assert list(report.metrics) == ["metric", "value", "lower", "upper"]
    assert set(told.index) == set(values)
    for name, row in told.iterrows():
        assert row["value"] == pytest.approx(float(values[name]), abs=1e-12)
        assert row["lower"] == pytest.approx(float(intervals[name].lower), abs=1e-12)
        assert row["upper"] == pytest.approx(float(intervals[name].upper), abs=1e-12)


def test_a_report_has_a_table_a_figure_and_a_notebook_page():
    logits, labels = case(300, 4)
    report = tune_calib.calibration_report(logits, labels, resamples=40)
    table = report.table()
    lines = str(report).splitlines()
    assert [line.split()[0] for line in lines[2:6]] == ["Accuracy", "NLL", "Brier", "ECE"]
    assert list(report.metrics["metric"][:4]) == ["accuracy", "nll", "brier", "ece"]
    assert "300 samples" in str(report)
    ece = report.metrics.set_index("metric").loc["ece"]
    shown = f"{100 * ece['value']:.2f}"
    assert table.count("\n|") == len(report.metrics) + 1
    (line,) = (line for line in table.splitlines() if line.startswith("| ECE (%) ↓ "))
    assert shown in line
    assert f"{100 * ece['lower']:.2f}, {100 * ece['upper']:.2f}" in line
    figure = report.figure()
    upper, lower = figure.axes
    assert shown in upper.get_title()
    bars = {round(bar.get_x(), 6): bar.get_height() for bar in upper.containers[0]}
    confidence, predicted = logits.softmax(-1).max(-1)
    inside = confidence > 14 / 15
    accuracy = (predicted == labels)[inside].double().mean()
    assert bars[round(14 / 15, 6)] == pytest.approx(float(accuracy))
    lines = {round(line[0][0], 6): line[:, 1] for line in upper.collections[0].get_segments()}
    chance = binom(int(inside.sum()), float(confidence[inside].double().mean()))
    wanted = [chance.ppf(end) / int(inside.sum()) for end in (0.025, 0.975)]
    assert lines[round(29 / 30, 6)] == pytest.approx(wanted)
    assert "95 % of chance" in [text.get_text() for text in figure.legends[0].get_texts()]
    assert lower.get_yscale() == "log"
    html = report._repr_html_()
    assert "<img" in html
    assert f"<td>{shown}</td>" in html


@pytest.mark.parametrize(("scale", "is_explained"), [(1, True), (0.2, False)])
def test_intervals_that_end_at_their_value_are_noted_once(scale, is_explained):
    # The labels of ``case`` are drawn at two thirds of its logits.
    logits, labels = case(600, 4)
    report = tune_calib.calibration_report(logits / 1.5 * scale, labels, resamples=40)
    for text in (report.table(), report._repr_html_()):
        assert text.count("Where the interval of a distance ends at the value") == is_explained


def test_a_table_in_latex_and_json_is_one_call():
    report = tune_calib.calibration_report(
        np.eye(3)[[0, 1, 2, 0]] * 3, np.array([0, 1, 2, 1]), resamples=5
    )
    text = report.table("latex")
    assert r"\toprule" in text
    assert text.isascii()
    assert r"Accuracy (\%) $\uparrow$ & 75.00 &" in " ".join(text.split())
    rows = json.loads(report.table("json"))
    assert rows[0] == report.metrics.iloc[0].to_dict()
    assert [row["metric"] for row in rows] == list(report.metrics["metric"])
    with pytest.raises(ValueError, match="form must be markdown, latex or json, got 'html'"):
        report.table("html")


def test_weights_of_a_report_repeat_samples_and_classes_name_the_columns():
    logits, labels = case(60, 3)
    counts = torch.arange(60) % 3
    expected = tune_calib.calibration_report(
        logits.repeat_interleave(counts, 0), labels.repeat_interleave(counts)
    )
    names = np.array(["c", "a", "b"])
    found = tune_calib.calibration_report(
        logits, names[labels], classes=names, sample_weight=counts
    )
    assert found.values == pytest.approx(expected.values, abs=1e-12, nan_ok=True)
    assert "metrics" not in vars(found)  # no interval is computed yet
    with pytest.raises(ValueError, match="a report counts samples"):
        tune_calib.calibration_report(logits, labels, sample_weight=counts / 2)
