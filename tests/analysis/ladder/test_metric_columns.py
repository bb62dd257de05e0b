"""The table of a run with metrics that were asked for, and with intervals over the samples."""

import re

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from analysis.ladder import tables
from analysis.ladder.means import interval_cell as cell
from analysis.ladder.means import ladder_table, usual_metrics
from analysis.load import load
from analysis.report import write_report
from analysis.tables.render import markdown
from tests import fake_results
from tune_calib.cli import app
from tune_calib.errors import UserError
from tune_calib.results.tables import read_table, write_table
from tune_calib.spec.metrics import METRICS, metrics_of_trials


def heads(out):
    return (out / "tables" / "ladder.md").read_text().splitlines()[0]


def set_metrics(out, **values):
    """Give every trial further metrics, one and the same value."""
    for path in (out / "trials").glob("*.parquet"):
        fake_results.set_cells(path, {f"test/{name}": value for name, value in values.items()})


def test_a_table_has_its_usual_columns_or_the_requested_ones(tmp_path):
    fake_results.write(tmp_path)
    set_metrics(tmp_path, ks_error=0.0123, conformal_coverage=0.9, aurc=0.02)
    write_report(tmp_path)
    usual = usual_metrics(load(tmp_path).trials)
    assert [METRICS[name].head in heads(tmp_path) for name in metrics_of_trials()] == [
        name in usual for name in metrics_of_trials()
    ]
    text = write_report(tmp_path, metrics=["ks_error", "conformal_coverage", "ks_error"])
    assert re.findall(r"\| (\S[^|]*?) *(?=\|)", heads(tmp_path))[1:3] == [
        "KS error (%) ↓", "Coverage at 90 % (%)",
    ]  # fmt: skip
    assert "1.23" in text
    assert "ΔECE" in heads(tmp_path)
    # Where no value is the best, none is marked.
    assert "**90.00" not in (tmp_path / "tables" / "ladder.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert "--metric ks_error --metric conformal_coverage" in page


def test_gain_of_nll_and_flat_confidence_are_relative_to_the_base(tmp_path):
    fake_results.write(tmp_path, kinds=("base", "variant", "variant", "variant"))
    for path in (tmp_path / "trials").glob("*.parquet"):
        rung = int(path.stem.split("-")[0])
        nll, sharpness = [0.4, 0.35, 0.3, 0.45][rung], [0.02, 0.01, 0.0021, 0.0019][rung]
        part = 0.1 if rung == 0 else 0.001  # only that of the base counts
        values = {"test/nll": nll, "test/nll_calibration": part, "test/sharpness": sharpness}
        fake_results.set_cells(path, values)
    records = tables.ladder(load(tmp_path)).records
    assert [record["NLL gain (%)"].text for record in records] == ["-", "50", "100", "-50"]
    assert [record["rung"].text for record in records][2:] == ["+ two", "control ≈"]
    for path in (tmp_path / "trials").glob("0-*.parquet"):
        fake_results.set_cells(path, {"test/nll_calibration": 0.0004})
    table = tables.ladder(load(tmp_path))
    assert all(record["NLL gain (%)"].is_blank for record in table.records)
    assert "a dash where that part is 0" in table.full_caption


def test_a_head_of_mac_cal_whose_mask_is_gone_is_marked(tmp_path):
    fake_results.write(tmp_path, seeds=3)
    ladder = load(tmp_path).trials
    of_two = ladder["spec_hash"][ladder["rung"] == 2].tolist()
    # Gone in the epoch that is evaluated, in another one, and in a method without masks.
    heads_of_two, gone_in = ("mac_cal", "mac_cal", "retrain"), (3, 2, None)
    for spec_hash, head, gone in zip(of_two, heads_of_two, gone_in, strict=True):
        for name in ("trials", "curves"):
            table = read_table(tmp_path, name, spec_hash)
            rows = table.to_pylist()
            for row in rows:
                if name == "trials":
                    row |= {"head_method": head, "epoch": 3}
                elif row["name"] == "q" and row["epoch"] == gone:
                    row["value"] = 1.0
            changed = pa.Table.from_pylist(rows, table.schema)
            write_table(tmp_path, name, spec_hash, changed)
    trials = load(tmp_path).trials.set_index("spec_hash")
    assert trials["flags"].str.contains("mask_gone").loc[of_two].tolist() == [True, False, False]
    names = [record["rung"].text for record in tables.ladder(load(tmp_path)).records]
    assert "+ two ×" in names  # noqa: RUF001


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metric", "kserror"], "unknown metric 'kserror'; did you mean 'ks_error'"),
        (["--metric", "ks_error"], "no trial has KS error on test"),
        (["--metric", "auroc"], "AUROC needs foreign images besides the test split"),
        (["--intervals"], "no trial has intervals; run the command again with"),
    ],
)
def test_a_metric_of_no_result_is_refused_in_one_line(tmp_path, options, message):
    fake_results.write(tmp_path)
    done = CliRunner().invoke(app, ["report", str(tmp_path), *options])
    assert done.exit_code != 0
    with pytest.raises(UserError, match=re.escape(message)) as refused:
        write_report(
            tmp_path, metrics=options[1:] if "--metric" in options else (),
            intervals="--intervals" in options,
        )  # fmt: skip
    assert "\n" not in str(refused.value)


def test_requested_intervals_follow_the_means(tmp_path):
    fake_results.write(tmp_path)
    fake_results.add_intervals(tmp_path, ["ece", "accuracy"])
    assert "[" not in markdown(tables.ladder(load(tmp_path))).split("\n\n")[0]
    text = write_report(tmp_path, intervals=True)
    sweep = load(tmp_path)
    means = ladder_table(sweep, ["ece", "accuracy", "nll"]).set_index(["rung", "metric"])["mean"]
    for metric, half in (("ece", 0.1), ("accuracy", 0.2)):
        mean = means[0, metric]
        shown = f"{100 * mean:.2f} [{100 * (mean - half):.2f}, {100 * (mean + half):.2f}]"
        assert cell(sweep, 0, metric, mean).text == shown
        assert shown in (tmp_path / "tables" / "ladder.md").read_text()
    # What has none is shown without.
    assert cell(sweep, 0, "nll", means[0, "nll"]).text == f"{means[0, 'nll']:.3f}"
    assert "Brackets: 95 % intervals over the test samples (1000 bootstrap draws)" in text
    assert "with their ends averaged over the trials" in text


def test_a_rung_of_which_one_trial_has_no_interval_has_none(tmp_path):
    fake_results.write(tmp_path)
    fake_results.add_intervals(tmp_path, ["ece"], but=1)
    sweep = load(tmp_path)
    texts = [cell(sweep, rung.index, "ece", 0.1).text for rung in sweep.rungs]
    assert sum("[" not in text for text in texts) == 1


def test_the_larger_of_two_counts_of_draws_is_used(tmp_path):
    fake_results.write(tmp_path)
    fake_results.add_intervals(tmp_path, ["ece"], 5000)
    fake_results.add_intervals(tmp_path, ["ece"], 100)
    sweep = load(tmp_path)
    assert set(sweep.intervals["resamples"]) == {5000}
    assert sweep.intervals.index.is_unique
