"""Sensitivity of a metric to its settings, on rows that are generated."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from analysis import style
from analysis.search import axes as drawn
from analysis.search import sensitivity
from tune_calib.errors import UserError
from tune_calib.results.tables import write_results


def row(gamma, lr=0.01, seed=0, ece=None, width=None, status="done"):
    params = {"gamma": gamma, "width": width}
    return {
        "schema_version": 1,
        "spec_hash": f"{gamma}-{lr}-{seed}-{width}",
        "rung": 0,
        "data": '{"dataset":"digits"}',
        "head": json.dumps({"lr": lr, "method": "mac_cal", "params": params, "seed": seed}),
        "network_seed": 0,
        "head_seed": seed,
        "status": status,
        "select/ece": ece,
    }


def table_of(*rows):
    return sensitivity.fillings(pd.DataFrame(rows))


@pytest.fixture
def by_gamma():
    """Three gammas with three seeds each: ECE = |gamma - 0.9| + 0.01 seed."""
    gammas = (0.8, 0.9, 1.0)
    rows = [row(g, seed=s, ece=abs(g - 0.9) + 0.01 * s) for g in gammas for s in range(3)]
    return table_of(*rows)


@pytest.fixture
def searched():
    """Sixty random points of (gamma, lr), one of which diverged."""
    draw = np.random.default_rng(0)
    gammas, rates = draw.uniform(0.7, 1, 60), 10 ** draw.uniform(-4, -1, 60)
    eces = 0.02 + abs(gammas - 0.9) / 4 + abs(np.log10(rates) + 2) / 50
    rows = [row(g, lr, ece=e) for g, lr, e in zip(gammas, rates, eces, strict=True)]
    return table_of(*rows, row(0.99, 0.3, status="diverged"))


def test_seeds_are_no_setting_and_are_averaged(by_gamma):
    assert [name for name in by_gamma if "." in name] == ["head.gamma"]
    assert by_gamma["n"].tolist() == [3, 3, 3]
    assert by_gamma["mean"].tolist() == pytest.approx([0.11, 0.01, 0.11])
    assert by_gamma["sd"].tolist() == pytest.approx([0.01] * 3)


def test_a_curve_over_one_setting_has_the_band_of_its_seeds(by_gamma):
    curve = sensitivity.against(by_gamma, "head.gamma")
    assert curve["value"].tolist() == [0.8, 0.9, 1.0]
    assert curve["low"].tolist() == pytest.approx([0.10, 0.00, 0.10])
    assert curve["high"].tolist() == pytest.approx([0.12, 0.02, 0.12])


def test_with_other_settings_the_band_is_theirs_until_they_are_held():
    rows = [row(g, lr, ece=g * lr) for g in (1, 2) for lr in (0.1, 0.2)]
    table = table_of(*rows)
    curve = sensitivity.against(table, "head.gamma")
    assert curve["fillings"].tolist() == [2, 2]
    assert curve["low"].tolist() == pytest.approx([0.1, 0.2])
    assert curve["high"].tolist() == pytest.approx([0.2, 0.4])
    held = sensitivity.against(sensitivity.hold(table, **{"head.lr": 0.2}), "head.gamma")
    assert held["mean"].tolist() == pytest.approx([0.2, 0.4])
    assert held["low"].isna().all()  # one seed has no spread


def test_none_is_a_value_of_its_own_beside_numbers():
    table = table_of(row(1, width=None, ece=0.1), row(1, width=64, ece=0.2))
    assert sensitivity.against(table, "head.width")["value"].tolist() == ["null", 64]


def test_a_heat_map_of_a_grid_has_its_values():
    rows = [row(g, lr, ece=g * lr) for g in (1, 2) for lr in (0.1, 0.2, 0.3)]
    grid = sensitivity.heat_map(table_of(*rows), "head.gamma", "head.lr")
    assert grid.shape == (2, 3)
    assert grid.loc[2.0, 0.3] == pytest.approx(0.6)


def test_a_heat_map_of_a_search_is_cut_into_parts(searched):
    grid = sensitivity.heat_map(searched, "head.gamma", "head.lr", bins=5)
    assert grid.shape == (5, 5)
    rates = np.log10(list(grid.columns))
    # The learning rates span three decades, so the parts are equal on a logarithmic scale.
    assert np.diff(rates).tolist() == pytest.approx([np.diff(rates).mean()] * 4, abs=0.05)


def test_the_share_within_counts_what_diverged_against_it(searched):
    shares = sensitivity.share_within(searched, margins=[0.0, 0.01, 1.0])
    assert shares["within"].tolist()[::2] == [1, 60]
    assert shares["share"].tolist()[::2] == pytest.approx([1 / 61, 60 / 61])
    best = searched["mean"].min()
    assert shares["within"][1] == (searched["mean"] <= best + 0.01).sum()


def test_where_more_is_better_the_distance_counts_down_from_the_largest():
    table = table_of(*(row(g, ece=e) for g, e in ((0.7, 0.5), (0.8, 0.9), (0.9, 0.88))))
    shares = sensitivity.share_within(table, "accuracy", [0.0, 0.02])
    assert shares["within"].tolist() == [1, 2]


def test_a_trend_is_of_parts_with_equally_many_fillings(searched):
    curve = sensitivity.trend(searched, "head.lr", bins=5)
    assert curve["fillings"].tolist() == [12] * 5
    assert curve["value"].is_monotonic_increasing
    # The best learning rate is in the middle, so the ends are worse.
    assert curve["median"].idxmin() not in (0, 4)
    assert (curve["low"] <= curve["median"]).all()
    assert (curve["median"] <= curve["high"]).all()


def test_a_trend_of_few_values_and_of_texts_has_each_of_them(by_gamma):
    assert sensitivity.trend(by_gamma, "head.gamma")["value"].tolist() == [0.8, 0.9, 1.0]
    table = table_of(row(1, width=None, ece=0.1), row(1, width=64, ece=0.2))
    assert sensitivity.trend(table, "head.width")["value"].tolist() == ["64", "null"]


def test_mistakes_are_one_line(by_gamma):
    with pytest.raises(UserError, match=r"head\.gamma"):
        sensitivity.against(by_gamma, "head.gama")
    with pytest.raises(UserError, match=r"no filling has head\.gamma 7"):
        sensitivity.hold(by_gamma, **{"head.gamma": 7})
    with pytest.raises(UserError, match="no NLL on select"):
        sensitivity.fillings(pd.DataFrame([row(1, ece=0.1)]), "nll")
    with pytest.raises(UserError, match="unknown metric"):
        sensitivity.fillings(pd.DataFrame([row(1, ece=0.1)]), "ecce")


def test_trials_are_read_from_a_folder_and_a_retried_one_counts_once(tmp_path):
    crashed = {**row(1), "status": "crashed"}
    write_results(tmp_path, "a", {"trials": [crashed, row(2, ece=0.2)]})
    write_results(tmp_path, "b", {"trials": [row(1, ece=0.1)]})
    trials = sensitivity.trials_of(tmp_path)
    assert sorted(trials["select/ece"]) == [0.1, 0.2]
    assert set(trials["status"]) == {"done"}
    with pytest.raises(UserError, match="holds no result"):
        sensitivity.trials_of(tmp_path / "absent")


def test_the_figures_say_what_they_are_of(by_gamma, searched, tmp_path):
    style.apply()
    figure, axes = plt.subplots(1, 3, figsize=(style.TEXT_IN, 2.4))
    curve = sensitivity.against(by_gamma, "head.gamma")
    drawn.draw_against(axes[0], curve, "head.gamma", default=0.95)
    assert axes[0].get_xlabel() == "head.gamma"
    assert axes[0].get_title() == "band: mean ± sd over seeds; n = 9"
    assert [text.get_text() for text in axes[0].texts] == ["default"]
    grid = sensitivity.heat_map(searched, "head.gamma", "head.lr", bins=4)
    default = {"head.gamma": 0.95, "head.lr": 0.01}
    drawn.draw_heat_map(axes[1], grid, default=default)
    assert len(axes[1].patches) == 1
    drawn.draw_share(axes[2], searched)
    assert axes[2].lines[0].get_ydata()[-1] == pytest.approx(100 * 60 / 61)
    figure.savefig(tmp_path / "figure.png", dpi=150)
    plt.close(figure)
