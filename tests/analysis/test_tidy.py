import json
from dataclasses import replace

import pandas as pd
import pyarrow.parquet as pq
import pytest

from analysis.load import load
from analysis.published import compare_with, describe_published, published
from analysis.report import write_report
from analysis.tidy import (
    COLUMNS,
    RESULTS,
    as_columns,
    choose,
    complaints,
    find_split,
    planned_trials,
    tidy,
    write_results_file,
)
from tests import fake_results
from tune_calib.errors import UserError


@pytest.fixture
def out(tmp_path):
    fake_results.write(tmp_path)
    return tmp_path


def test_our_results_and_published_ones_have_equal_columns(out):
    ours, theirs = tidy(load(out)), published("fedlas/table1")
    assert list(ours) == list(theirs) == list(COLUMNS)
    assert (ours.dtypes == theirs.dtypes).all()


def test_a_row_for_each_trial_and_metric(out):
    frame = tidy(load(out))
    assert len(frame) == 12 * 8
    row = choose(frame, method="+ two", metric="ece", network_seed=1).iloc[0]
    assert row["value"] == pytest.approx(fake_results.value(2, 1))
    assert row[["dataset", "variant", "backbone", "split", "status"]].tolist() == [
        "digits", "label_noise=0.2", "small_cnn", "test", "done",
    ]  # fmt: skip


def test_trials_without_numbers_stay_in_the_frame_and_are_listed(tmp_path):
    bad = "diverged"
    fake_results.write(tmp_path, bad=bad)
    (tmp_path / "trials" / "1-2.parquet").unlink()
    sweep = load(tmp_path)
    frame = tidy(sweep, metrics=["ece"], split="test")
    assert len(frame) == 12
    assert frame["value"].notna().equals(frame["status"] == "done")
    missing = planned_trials(sweep).query("status == 'missing'").iloc[0]
    assert missing[["method", "network_seed", "spec_hash"]].tolist() == ["+ one", 2, "1-2"]
    assert complaints(sweep) == [
        "+ one: 1 of 3 missing (network seed/head seed 2/2)",
        f"+ two: 3 of 3 {bad} (network seed/head seed 0/0, 1/1, 2/2)",
    ]


def test_a_finished_trial_without_the_metric_is_listed(out):
    sweep = load(out)
    sweep.trials.loc[4, "test/ece"] = float("nan")
    told = ["+ one: 1 of 3 done without ECE (network seed/head seed 1/1)"]
    assert complaints(sweep, "ece") == told
    assert complaints(sweep) == complaints(sweep, "nll") == []
    assert len(tidy(sweep, ["ece"], "test")) == 11


def test_a_split_has_the_metric_and_is_not_that_of_the_network(out):
    fake_results.add_network_check(out)
    run = load(out)
    assert find_split(run, "confidence_gap") == "test"
    for metric, split in (("ece", "calib"), ("confidence_gap", "base/test")):
        with pytest.raises(UserError, match=f"no result has .* on '{split}'"):
            find_split(run, metric, split)


def test_published_tables_are_complete_and_ood_metrics_have_their_split():
    assert len(describe_published()) == 22
    row = choose(published("fedlas/table3"), dataset="cifar10", split="ood/svhn").iloc[0]
    assert (row["metric"], row["status"]) == ("auroc", "published")
    assert set(published("maccal/table2")["split"]) == {"ood/average"}
    assert choose(published("tst/reproduction"), dataset="cifar100")["value"].max() == 0.2382


def test_a_benchmark_of_maps_has_all_columns_and_agrees_with_a_paper_on_its_networks():
    rows = published("hcalibration")
    scores = rows[rows["metric"] == "ece"].pivot(
        index="method", columns=["dataset", "backbone"], values="value"
    )
    assert scores.shape == (21, 15)
    assert scores.notna().all(axis=None)
    printed = choose(published("iop/table1"), metric="ece").pivot(
        index="method", columns=["dataset", "backbone"], values="value"
    )
    network = ("cifar10", "resnet110")
    assert scores.loc["DIAG", network] == pytest.approx(0.0071, abs=5e-5)
    assert printed.loc["DIAG", network] == 0.0057  # of another fit
    shared = scores.loc["uncalibrated"].drop(("imagenet", "swintiny"))
    assert sorted(shared) == pytest.approx(sorted(printed.loc["uncalibrated"]), abs=6e-5)


def test_a_run_is_compared_with_another_published_table(out):
    sweep = load(out)
    rungs = [*sweep.manifest.rungs]
    rungs[1] = rungs[1].model_copy(update={"label": "fedlas_ls"})
    sweep = replace(sweep, manifest=sweep.manifest.model_copy(update={"rungs": rungs}))
    shown = compare_with(sweep, "fedlas/table1")
    assert [rung.published for rung in shown.rungs] == [None, "FeDLaS-LS", None, None]
    with pytest.raises(UserError, match="has none of the methods of this run"):
        compare_with(load(out), "fedlas/table4")
    assert "printed in maccal/table5" in write_report(out, "maccal/table5")


@pytest.mark.parametrize("bad", [None, "diverged"])
def test_the_results_file_has_the_same_columns_whatever_a_run_has(tmp_path, bad):
    fake_results.write(tmp_path, bad=bad)
    if bad is None:
        fake_results.add_intervals(tmp_path, ["ece"])
        fake_results.add_shifts(tmp_path, ["ood/noise"])
    write_results_file(tmp_path, tmp_path / "results.parquet")
    content = pq.read_table(tmp_path / "results.parquet")
    assert content.schema.equals(RESULTS)
    mark = json.loads(content.schema.metadata[b"tune_calib"])
    assert mark == {"table": "results", "version": 1}
    rows, frame = content.to_pandas(), tidy(load(tmp_path))
    assert rows["value"].tolist() == pytest.approx(frame["value"].tolist(), abs=0, nan_ok=True)
    has_interval = rows["lower"].notna()
    expected = (rows["split"] == "test") & (rows["metric"] == "ece") & (bad is None)
    assert has_interval.equals(expected)
    assert (rows["upper"] - rows["value"])[has_interval].tolist() == pytest.approx(
        [0.1] * 12 * (bad is None)
    )
    assert set(rows["resamples"].dropna()) == ({1000} if bad is None else set())


def test_columns_of_several_types_are_texts_and_others_stay():
    frame = pd.DataFrame(
        {"width": [64, "null", None], "number": [1, 2.5, None], "flag": [True, False, True]},
        dtype=object,
    )
    columns = as_columns(frame)
    assert columns["width"].tolist()[:2] == ["64", "null"]
    assert columns["width"].isna().tolist() == [False, False, True]
    assert [str(kind) for kind in columns.dtypes[1:]] == ["float64", "bool"]
