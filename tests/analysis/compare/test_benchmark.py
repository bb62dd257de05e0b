"""Methods are compared over many experiments with the definitions of CalArena."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

from analysis.compare.benchmark import benchmark, view

# Log losses by hand: B has none in the second experiment, and ties with the base in the third.
LOSSES = {"Base-model": [3.0, 1.0, 2.0], "A": [1.0, 2.0, 1.0], "B": [2.0, np.nan, 2.0]}
DATASETS, NETWORKS = ["d1", "d1", "d2"], ["m1", "m2", "m1"]


def files(folder, losses=LOSSES, datasets=DATASETS, networks=NETWORKS, **columns):
    folder.mkdir(exist_ok=True)
    for method, values in losses.items():
        table = {"dataset": datasets, "model": networks, f"{method}_logloss": values}
        for name in ("brier", "ece-15", "accuracy"):
            table[f"{method}_{name}"] = [0.5] * len(datasets)
        pd.DataFrame({**table, **columns}).to_csv(folder / f"{method}.csv", index=False)
    return folder


def test_scores_are_those_by_hand(tmp_path):
    result = benchmark([files(tmp_path / "results")])
    summary = result.summary
    rates, gains = summary["nll_win_rate"], summary["nll_improvement"]
    # A method without a number wins against none, and none wins against it.
    assert rates["A"] == pytest.approx((1 + 0 + 1) / 3)
    assert rates["B"] == pytest.approx((0.5 + 0 + 0) / 3)
    assert rates["Base-model"] == pytest.approx((0 + 0.5 + 0) / 3)
    assert gains.to_dict() == pytest.approx({"Base-model": 0, "A": 2 / 3, "B": 0.5})
    assert summary["nll_rank"].to_dict() == pytest.approx(
        {"A": 4 / 3, "B": 2.25, "Base-model": 6.5 / 3}
    )
    assert set(summary["brier_rank"]) == {2.0}
    assert set(summary["brier_win_rate"]) == {0.0}


@pytest.mark.parametrize("datasets", ["aabbcc", "abcdef", "aab"])
def test_a_p_over_several_models_of_a_data_set_is_said_to_be_too_small(tmp_path, datasets):
    count = len(datasets)
    losses = {"Base-model": [1.0] * count, "B": [2.0] * count, "C": [3.0 + i for i in range(count)]}
    networks = [f"m{index}" for index in range(count)]
    result = benchmark([files(tmp_path / "x", losses, datasets=list(datasets), networks=networks)])
    assert ("this p is too small" in str(view(result))) == (datasets == "aabbcc")


def test_the_last_bit_of_a_score_decides_no_win_and_no_rank(tmp_path):
    losses = {"Base-model": [0.5] * 3, "A": [0.1 + 0.2] * 3, "B": [0.3] * 3}
    summary = benchmark([files(tmp_path / "results", losses)]).summary
    assert summary["nll_win_rate"].to_dict() == {"A": 0.5, "B": 0.5, "Base-model": 0.0}
    assert summary["nll_rank"].to_dict() == {"A": 1.5, "B": 1.5, "Base-model": 3.0}


def test_a_control_and_a_method_without_some_numbers_have_no_mark(tmp_path):
    result = benchmark([files(tmp_path / "results")])
    flagged = replace(result, flags={"A": ["trivial_control"]})
    for marked, best in ((result, {"A": 1}), (flagged, {})):
        (table,) = view(marked).tables
        ranks = {row["method"].text: row["NLL improvement"].rank for row in table.records}
        assert {name: rank for name, rank in ranks.items() if rank} == best


def test_intervals_draw_data_sets_or_experiments(tmp_path):
    folder = files(tmp_path / "results")
    by_dataset, by_experiment = (
        benchmark([folder], unit=unit).summary for unit in ("datasets", "experiments")
    )
    # Draws of two data sets, of which the first has two experiments.
    low, high = (by_dataset.loc["A", f"nll_win_rate_{end}"] for end in ("low", "high"))
    assert (low, high) == (0.5, 1.0)
    assert by_experiment.loc["A", "nll_win_rate_low"] == 0.0
    gains = np.array([2.0, -1.0, 1.0])
    half = 1.96 * gains.std(ddof=1)
    assert by_dataset.loc["A", "nll_improvement_half"] == pytest.approx(half / np.sqrt(2))
    assert by_experiment.loc["A", "nll_improvement_half"] == pytest.approx(half / np.sqrt(3))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cv-binary", "cv-multiclass", "imagenet-multiclass"])
def test_published_results_of_calarena_are_reproduced(calarena_results, name):
    summary = benchmark([calarena_results / name]).summary
    tables = {
        path.stem: pd.read_csv(path) for path in sorted((calarena_results / name).glob("*.csv"))
    }
    assert set(summary.index) == set(tables)
    for metric, column in (("nll", "logloss"), ("brier", "brier")):
        scores = np.array([table[f"{method}_{column}"] for method, table in tables.items()])
        ranks = rankdata(scores, axis=0, nan_policy="omit")
        base = list(tables).index("Base-model")
        for row, method in enumerate(tables):
            wins = [(np.delete(scores, row, 0)[:, j] > scores[row, j]).mean()
                    for j in range(scores.shape[1])]  # fmt: skip
            assert summary.loc[method, f"{metric}_win_rate"] == pytest.approx(
                np.mean(wins), abs=1e-9
            )
            gain = np.nanmean(scores[base] - scores[row])
            assert summary.loc[method, f"{metric}_improvement"] == pytest.approx(gain, abs=1e-9)
            rank = np.nanmean(ranks[row])
            assert summary.loc[method, f"{metric}_rank"] == pytest.approx(rank, abs=1e-9)
