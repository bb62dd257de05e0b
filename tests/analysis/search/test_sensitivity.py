"""Sensitivity of a metric to its settings, on rows that are generated."""

import numpy as np
import pandas as pd
import pytest

from analysis.load import read_trials
from analysis.search import tables
from tune_calib.results.tables import write_results


def row(gamma, lr=0.01, ece=np.nan, width=64):
    return {"head.gamma": gamma, "head.lr": lr, "head.width": width, "mean": ece}


@pytest.fixture
def searched():
    """Sixty random points of (gamma, lr), one of which diverged."""
    draw = np.random.default_rng(0)
    gammas, rates = draw.uniform(0.7, 1, 60), 10 ** draw.uniform(-4, -1, 60)
    eces = 0.02 + abs(gammas - 0.9) / 4 + abs(np.log10(rates) + 2) / 50
    rows = [row(g, lr, ece=e) for g, lr, e in zip(gammas, rates, eces, strict=True)]
    return pd.DataFrame([*rows, row(0.99, 0.3)])


def test_a_heat_map_of_a_grid_has_its_values():
    rows = [row(g, lr, ece=g * lr) for g in (1, 2) for lr in (0.1, 0.2, 0.3)]
    grid = tables.heat_map(pd.DataFrame(rows), "head.gamma", "head.lr")["mean"]
    assert grid.shape == (2, 3)
    assert grid.loc[2.0, 0.3] == pytest.approx(0.6)


def test_a_heat_map_of_a_search_is_cut_into_parts(searched):
    grid = tables.heat_map(searched, "head.gamma", "head.lr", bins=5)["mean"]
    assert grid.shape == (5, 5)
    rates = np.log10(list(grid.columns))
    # The learning rates span three decades, so the parts are equal on a logarithmic scale.
    assert np.diff(rates).tolist() == pytest.approx([np.diff(rates).mean()] * 4, abs=0.05)


def test_where_more_is_better_the_distance_counts_down_from_the_largest():
    table = pd.DataFrame({"mean": [0.5, 0.9, 0.88]})
    assert tables.distances(table, "accuracy").tolist() == pytest.approx([0.4, 0, 0.02])


def test_a_trend_is_of_parts_with_equally_many_suggestions(searched):
    curve = tables.trend(searched, "head.lr", bins=5)
    assert curve["suggestions"].tolist() == [12] * 5
    assert curve["value"].is_monotonic_increasing
    # The best learning rate is in the middle, so the ends are worse.
    assert curve["median"].idxmin() not in (0, 4)
    assert (curve["low"] <= curve["median"]).all()
    assert (curve["median"] <= curve["high"]).all()


def test_a_trend_has_no_part_without_suggestions():
    gammas = (1, 2, 2, 2, 2, 3, 6, 7)  # the second and the third part begin at a tie
    curve = tables.trend(pd.DataFrame([row(gamma, ece=0.1) for gamma in gammas]), "head.gamma", 3)
    assert curve["suggestions"].tolist() == [5, 3]
    assert curve["value"].tolist() == [2, 6]


def test_a_trend_of_few_values_and_of_texts_has_each_of_them():
    by_gamma = pd.DataFrame([row(gamma, ece=0.1) for gamma in (0.8, 0.9, 1.0)])
    assert tables.trend(by_gamma, "head.gamma")["value"].tolist() == [0.8, 0.9, 1.0]
    table = pd.DataFrame([row(1, width="null", ece=0.1), row(1, width=64, ece=0.2)])
    assert tables.trend(table, "head.width")["value"].tolist() == ["64", "null"]


def test_numbers_beside_other_values_are_in_the_order_of_numbers():
    widths = [512, "null", 64, True, 128, 256]
    order = ["64", "128", "256", "512", "True", "null"]
    assert tables.sort_texts(pd.Series(widths)) == order
    table = pd.DataFrame([row(1, width=width, ece=0.1) for width in [*widths, 64]])
    table["head.lr"] = range(7)
    curve = tables.trend(table, "head.width")
    assert curve["value"].tolist() == order
    assert curve["suggestions"].tolist() == [2, 1, 1, 1, 1, 1]
    grid = tables.heat_map(table, "head.lr", "head.width", bins=7)["mean"]
    assert list(grid.columns) == order


def test_trials_are_read_from_a_folder_and_a_retried_one_counts_once(tmp_path):
    def trial(name, status):
        return {"schema_version": 1, "spec_hash": name, "rung": 0, "status": status}

    write_results(tmp_path, "a", {"trials": [trial("x", "crashed"), trial("y", "done")]})
    write_results(tmp_path, "b", {"trials": [trial("x", "done")]})
    trials = read_trials(tmp_path)
    assert sorted(trials["spec_hash"]) == ["x", "y"]
    assert set(trials["status"]) == {"done"}
