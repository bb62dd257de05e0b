import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from analysis.compare.gather import collect
from analysis.compare.ranks import rank, view
from analysis.published import published
from analysis.tidy import COLUMNS
from tests import fake_results
from tune_calib.cli import app
from tune_calib.errors import UserError
from tune_calib.results.folders import read_run_manifest
from tune_calib.spec.names import CHANCE

# Averages of MaC-Cal's table 3 that are not the means of its table 1, in percent: table 1's mean
# and the print. All others agree to half a unit of the last digit.
TABLE3_DIFFERS = {
    ("DFL", "cifar100"): (3.19, 3.15),
    ("MIT", "cifar100"): (8.1325, 8.05),
    ("mixup", "cifar100"): (4.8675, 4.86),
}


def frame(values, metric="ece", n=1, **columns):
    """A tidy frame of {method: [value of each backbone]}."""
    rows = [
        {
            "source": "s", "method": method, "dataset": "d", "variant": "", "backbone": f"b{place}",
            "split": "test", "metric": metric, "value": value, "status": "done", "note": "",
            "network_seed": seed, "head_seed": None, "spec_hash": f"{method}{place}{seed}",
            **columns,
        }
        for method, row in values.items()
        for place, value in enumerate(row)
        for seed in range(n)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


def run(*arguments):
    result = CliRunner().invoke(
        app, ["analyze", "ranks", *map(str, arguments)], catch_exceptions=True
    )
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.mark.parametrize("metric", ["ece", "aece"])
@pytest.mark.parametrize("table", ["fedlas/table1", "fedlas/table2"])
def test_the_printed_ranks_are_reproduced_for_every_method(table, metric):
    everything = published(table)
    printed = everything[everything["metric"] == f"rank_{metric}"].set_index("method")["value"]
    ours = rank(everything, metric).summary["mean_rank"]
    assert {m: f"{r:.2f}" for m, r in ours.items()} == {m: f"{r:.2f}" for m, r in printed.items()}
    entries = json.loads(run("--published", table, "--metric", metric, "--json"))
    assert {e["method"]: f"{e['mean_rank']:.2f}" for e in entries} == {
        method: f"{value:.2f}" for method, value in printed.items()
    }


def test_the_averages_of_mac_cal_table_3_are_means_of_table_1():
    values = rank(published("maccal/table1"), "ece").values.T
    means = values.groupby(level=["dataset", "variant", "split"]).mean().T
    table3 = published("maccal/table3")
    compared = 0
    for row in table3[table3["metric"] == "ece"].itertuples():
        # Tiny-ImageNet's average is over networks that table 1 does not have.
        if row.method in means.index and row.dataset != "tiny_imagenet":
            mean = 100 * means.loc[row.method, (row.dataset, "", "test")]
            expected = TABLE3_DIFFERS.get((row.method, row.dataset), (100 * row.value,) * 2)
            assert mean == pytest.approx(expected[0], abs=0.00501)
            assert 100 * row.value == pytest.approx(expected[1])
            compared += 1
    assert compared == 20


@pytest.mark.parametrize(
    ("ranking", "places"), [("competition", [1, 1, 3]), ("average", [1.5, 1.5, 3])]
)
def test_tied_methods_share_a_rank(ranking, places):
    table = rank(frame({"a": [0.1], "b": [0.1], "c": [0.2]}), "ece", ranking)
    assert table.summary["mean_rank"].tolist() == places
    assert table.summary["wins"].tolist() == [1, 1, 0]


def test_equal_printed_values_tie_in_the_direction_of_the_metric():
    values = {"a": [0.90001], "b": [0.90002], "c": [0.8]}
    assert rank(frame(values, "accuracy"), "accuracy").summary["mean_rank"].tolist() == [1, 1, 3]
    assert rank(frame(values, "ece"), "ece").summary["mean_rank"].to_dict() == {
        "c": 1, "a": 2, "b": 2
    }  # fmt: skip


@pytest.mark.parametrize(("metric", "best"), [("ece", 0.1), ("accuracy", 0.9)])
def test_methods_at_chance_are_ranked_last(metric, best):
    values = frame({"a": [best, best], "b": [0.2, 0.2], "c": [0.3, 0.3]}, metric)
    is_chance = (values["method"] == "a") & (values["backbone"] == "b0")
    table = rank(values.assign(flags=is_chance.map({True: CHANCE, False: ""})), metric)
    assert table.ranks.loc["a"].tolist() == [3, 1]
    assert table.summary["wins"]["a"] == 1
    assert (
        "a method at chance in a column, or a trivial control, is ranked last there" in table.notes
    )


def test_an_incomplete_column_is_left_out_and_named():
    nan = float("nan")
    table = rank(frame({"a": [0.1, 0.2, 0.1], "b": [0.2, nan, 0.2], "c": [nan] * 3}), "ece")
    assert table.summary["columns"].tolist() == [2, 2]
    assert table.summary["wins"].tolist() == [2, 0]
    assert table.notes == (
        "left out, without any number: c",
        "d b1 does not count: no number for b",
    )
    assert "d b1 does not count" in view(table).render("plain")


def test_seeds_are_averaged_before_ranking_and_counted():
    table = rank(frame({"a": [0.1], "b": [0.2]}, n=3), "ece")
    assert table.n.to_numpy().tolist() == [[3], [3]]
    assert "n = 3 per cell" in view(table).render("plain")


def test_ranks_are_over_the_seeds_that_all_methods_have():
    rows = frame({"a": [0.1, 0.1], "b": [0.1, 0.2], "c": [0.3, 0.3]}, n=3)
    # The third seed is harder for all; b diverged there in the first column.
    rows["value"] += 0.09 * (rows["network_seed"] == 2)
    is_lost = (rows["method"] == "b") & (rows["backbone"] == "b0") & (rows["network_seed"] == 2)
    rows.loc[is_lost, ["value", "status"]] = [float("nan"), "diverged"]
    table = rank(rows, "ece")
    assert table.values.round(4).to_numpy().tolist() == [[0.1, 0.13], [0.1, 0.23], [0.3, 0.33]]
    assert table.n.to_numpy().tolist() == [[2, 3]] * 3
    assert table.ranks.to_numpy().tolist() == [[1, 1], [1, 2], [3, 3]]
    assert "d b0: means are over the 2 of 3 seeds that all methods have" in table.notes


def test_a_label_with_two_meanings_is_refused():
    first = frame({"a": [0.1], "b": [0.2]})
    other = first.assign(spec_hash=first["spec_hash"] + "x", source="t")
    with pytest.raises(UserError, match="'a' is two different methods on d b0"):
        rank(pd.concat([first, other]), "ece")
    same = rank(pd.concat([first, first.assign(source="t")]), "ece")
    assert same.n.max(axis=None) == 1


@pytest.mark.parametrize("order", [1, -1])
def test_a_trial_that_crashed_in_one_sweep_and_is_done_in_another_has_its_number(order):
    whole = frame({"a": [0.1, 0.1], "b": [0.2, 0.3]}, n=2)
    crashed = whole.assign(source="t")
    crashed.loc[whole["method"] == "b", ["value", "status"]] = [float("nan"), "crashed"]
    table = rank(pd.concat([whole, crashed][::order]), "ece")
    assert table.values.loc["b"].tolist() == [0.2, 0.3]
    assert table.n.to_numpy().tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize(
    ("values", "metric", "ranking", "message"),
    [
        ({"a": [0.1]}, "eec", "competition", "unknown metric 'eec'; did you mean 'ece'"),
        ({"a": [0.1]}, "ece", "dense", "unknown ranking 'dense'; known: competition, average"),
        ({"a": [0.1]}, "nll", "competition", "no column of these results has NLL"),
        ({"a": [float("nan")]}, "ece", "competition", "no column of these results has ECE"),
        ({}, "ece", "competition", "no column of these results has ECE"),
        (
            {"a": [0.1, float("nan")], "b": [float("nan"), 0.1]},
            "ece", "competition", "no column has a number for every method",
        ),
    ],
)  # fmt: skip
def test_an_empty_ranking_is_refused_in_one_line(values, metric, ranking, message):
    with pytest.raises(UserError, match=message) as told:
        rank(frame(values), metric, ranking)
    assert "\n" not in str(told.value)


def test_sweeps_are_ranked_together_and_missing_trials_are_listed(tmp_path):
    fake_results.write(tmp_path / "one")
    fake_results.write(tmp_path / "two", bad="diverged")
    table, notes, *_ = collect([tmp_path / "one", tmp_path / "two"], None, "ece")
    assert len(table) == 24
    assert notes[-1] == "INCOMPLETE: + two: 3 of 3 diverged (network seed/head seed 0/0, 1/1, 2/2)"
    assert notes[:-1] == ["one, two: the over-confidence of the base network was not recorded"]
    text = run(tmp_path / "one")
    assert text.startswith("method")
    assert read_run_manifest(tmp_path / "one").sweep not in text


def test_folders_with_different_numbers_of_a_trial_are_not_ranked(tmp_path):
    for name, ece in (("a", 0.05), ("b", 0.05), ("c", 0.06)):
        fake_results.write(tmp_path / name)
        file = next((tmp_path / name / "trials").iterdir())
        fake_results.set_cells(file, {"test/ece": ece})
    run(str(tmp_path / "a"), str(tmp_path / "b"), "--json")
    with pytest.raises(UserError, match=r"has different numbers in .*/a and .*/c"):
        run(str(tmp_path / "a"), str(tmp_path / "c"), "--json")


def test_negative_values_are_ranked():
    values = {"a": [-0.1], "b": [0.2], "c": [-0.3]}
    assert rank(frame(values, "nll"), "nll").summary["mean_rank"].to_dict() == {
        "c": 1,
        "a": 2,
        "b": 3,
    }
