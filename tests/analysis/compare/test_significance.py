import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.compare import intervals
from analysis.compare.gather import Matched, over_columns, over_seeds
from analysis.compare.hypotheses import compare, friedman
from analysis.compare.intervals import hodges_lehmann, signed_rank_interval
from analysis.compare.ranks import rank
from analysis.compare.significance import for_report, judge, spreads_of, view
from analysis.ladder.figures.tradeoff import draw_critical_difference
from analysis.ladder.files import describe_best
from analysis.ladder.tables import ladder
from analysis.load import load
from analysis.published import published
from tests import fake_results
from tests.support import sample
from tune_calib.files.documents import seal

RIVALS = ("base", "variant", "variant", "variant")

# Table 6 of Demsar, JMLR 7 (2006): AUC of four variants of C4.5 on 14 data sets. In the row before
# the last he ranks two values that print as 0.975 apart, so the first is given a digit more.
DEMSAR = [
    [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
    [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
    [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
    [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
    [0.972, 0.981, 0.97501, 0.975], [0.957, 0.978, 0.946, 0.970],
]  # fmt: skip


def matched(values, metric="ece"):
    return Matched(metric, "seed", pd.DataFrame(values))


def row(values, test, method="b"):
    return compare(matched(values), "a", test).set_index("method").loc[method]


def test_mean_sd_and_students_interval():
    values = np.random.default_rng(1).normal(0.1, 0.02, 5)
    told = spreads_of(matched({"a": values})).iloc[0]
    assert told["mean"] == pytest.approx(values.mean())
    assert told["sd"] == pytest.approx(values.std(ddof=1))
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert told[["low", "high"]].tolist() == pytest.approx([low, high])


def test_an_interval_of_a_mean_stays_within_what_the_metric_can_be():
    near = spreads_of(matched({"a": [0.001, 0.0, 0.02], "b": [0.999, 1.0, 0.98]}))
    assert near["low"][0] == 0
    assert near["high"][1] == 1


@pytest.mark.parametrize("test", ["t", "wilcoxon"])
@pytest.mark.parametrize("n", sample([3, 5, 6, 7, 10, 20, 60], 3))
@pytest.mark.parametrize("shift", sample([0.0, 0.5, 1.0, 2.0], 2))
def test_an_interval_excludes_zero_if_p_is_significant_and_contains_its_estimate(test, n, shift):
    rng = np.random.default_rng(n)
    a = rng.normal(0.1, 0.01, n)
    others = {f"b{k}": a + 0.01 * (rng.standard_t(2, n) + shift) for k in range(8)}
    for told in compare(matched({"a": a, **others}), "a", test).to_dict("records"):
        if told["statement"]:
            assert np.isnan([told["p"], told["low"], told["high"]]).all()
            assert test == "wilcoxon"
            assert n < 6
        else:
            assert told["low"] <= told["difference"] <= told["high"]
            assert (told["p"] < 0.05) == (not told["low"] <= 0 <= told["high"])


def test_the_signed_rank_interval_is_that_of_the_textbook():
    # Hollander and Wolfe: depression scores of nine patients before and after tranquillizers,
    # the estimate -0.46 and the interval from -0.786 to -0.010 of at least 95 %.
    before = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
    after = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
    told = row({"a": before, "b": after}, "wilcoxon")
    assert told["difference"] == pytest.approx(-0.46, abs=0.001)
    assert told["low"] == pytest.approx(-0.786, abs=0.001)
    assert told["high"] == pytest.approx(-0.010, abs=0.001)
    assert told["p"] == pytest.approx(0.039, abs=0.001)


def test_intervals_of_many_and_few_differences_agree(monkeypatch):
    values = np.random.default_rng(0).normal(0.1, 1.0, 400)
    center, (low, high) = hodges_lehmann(values), signed_rank_interval(values)
    monkeypatch.setattr(intervals, "MOST_EXACT", 100)
    assert hodges_lehmann(values) == pytest.approx(center, abs=1e-14)
    # The normal approximation of the rank sums moves an end by a few of 80,200 pair means.
    assert signed_rank_interval(values) == pytest.approx((low, high), abs=1e-3)
    assert signed_rank_interval(values) != (low, high)


@pytest.mark.parametrize("d", [[0, 1, 2, 3, 4, 5, 6], [1, 1, 2, 3, 4, 5, 6], [-1, 1, 2, 3, 4, 5]])
def test_zeros_and_ties_have_a_p_and_a_sentence_instead_of_an_interval(d):
    a = np.linspace(0.1, 0.2, len(d))
    verdict = judge(matched({"a": a, "b": a + 0.01 * np.array(d)}), "wilcoxon", "a")
    (told,) = verdict.comparisons.to_dict("records")
    assert 0 < told["p"] < 0.1
    assert np.isnan(told["low"])
    assert "No interval if differences are 0 or tie" in view(verdict).render("plain")
    assert "No interval if" not in view(judge(verdict.matched, "t", "a")).render("plain")


def test_wilcoxon_is_exact():
    a = np.linspace(0.1, 0.2, 6)
    told = row({"a": a, "b": a - [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]}, "wilcoxon")
    assert told["p"] == pytest.approx(2 / 2**6)
    assert told[["pairs", "better"]].tolist() == [6, 6]
    assert told["difference"] == pytest.approx(-0.035)


def test_t_agrees_with_the_textbook_formula():
    d = np.array([0.01, 0.03, -0.01, 0.02, 0.02])
    statistic = d.mean() / (d.std(ddof=1) / np.sqrt(5))
    told = row({"a": np.full(5, 0.1), "b": 0.1 + d}, "t")
    assert told["p"] == pytest.approx(2 * stats.t.sf(statistic, 4))


def test_holm_multiplies_the_smallest_p_most():
    rng = np.random.default_rng(0)
    a = rng.normal(0.1, 0.01, 8)
    table = compare(
        matched({"a": a, "b": a + 0.01 + rng.normal(0, 0.002, 8), "c": a[::-1]}), "a", "t"
    )
    small, large = sorted(table["p"])
    assert sorted(table["p_holm"]) == pytest.approx([2 * small, max(2 * small, large)])
    # Two that are nearly alike: false discovery rates would be smaller.
    alike = a + 0.001 + rng.normal(0, 0.002, 8)
    table = compare(matched({"a": a, "b": alike, "c": alike + 1e-5 * a}), "a", "t")
    small, large = sorted(table["p"])
    assert 2 * small > large
    assert table["p_holm"].tolist() == pytest.approx([2 * small, 2 * small])


def test_better_follows_the_direction_of_the_metric():
    values = {"a": [0.5] * 6, "b": [0.6] * 6}
    assert compare(matched(values, "accuracy"), "a", "t")["better"].item() == 6
    assert compare(matched(values, "ece"), "a", "t")["better"].item() == 0


@pytest.mark.parametrize(
    ("a", "b", "test", "statement"),
    [
        ([0.1] * 5, [0.2, 0.3, 0.4, 0.5, 0.6], "wilcoxon", "too few pairs that differ (5)"),
        ([0.1] * 6, [0.1, 0.3, 0.4, 0.5, 0.6, 0.7], "wilcoxon", "too few pairs that differ (5)"),
        ([0.1], [0.2], "t", "too few pairs (1) for a t test, which needs at least 3"),
        ([0.1, 0.2], [0.2, 0.4], "t", "too few pairs (2)"),
        ([0.1] * 4, [0.2] * 4, "t", "all 4 differences are equal"),
        ([0.1, 0.2, 0.3], [0.2, 0.3, 0.4], "t", "all 3 differences are equal"),
        ([0.1] * 7, [0.1] * 7, "wilcoxon", "all 7 pairs are equal"),
        ([0.1] * 7, [0.1] * 7, "t", "all 7 pairs are equal"),
        ([0.1, np.nan], [np.nan, 0.1], "t", "no pair"),
        ([np.nan] * 3, [0.1] * 3, "wilcoxon", "no pair"),
    ],
)
def test_too_little_data_gives_a_statement_instead_of_a_p(a, b, test, statement):
    told = row({"a": a, "b": b}, test)
    assert told["statement"].startswith(statement)
    assert np.isnan(told["p"])
    assert np.isnan(told["p_holm"])


def test_friedman_gives_the_ranks_and_the_critical_difference_of_demsar():
    verdict = friedman(matched(dict(zip("abcd", np.array(DEMSAR).T, strict=True)), "auroc"))
    assert verdict.ranks.round(3).tolist() == [3.143, 2.0, 2.893, 1.964]
    assert verdict.critical_difference == pytest.approx(1.25, abs=0.005)
    # He prints 9.28 without the correction for ties, which SciPy makes.
    uncorrected = 12 * 14 / (4 * 5) * ((verdict.ranks**2).sum() - 4 * 25 / 4)
    assert uncorrected == pytest.approx(9.28, abs=0.01)
    assert verdict.statistic > uncorrected
    assert verdict.p < 0.05


def test_nemenyi_separates_methods_beyond_the_critical_difference():
    table = rank(published("fedlas/table1"), "ece")
    verdict = friedman(over_columns(table))
    apart = np.abs(np.subtract.outer(verdict.ranks.to_numpy(), verdict.ranks.to_numpy()))
    differs = verdict.nemenyi.loc[verdict.ranks.index, verdict.ranks.index].to_numpy() < 0.05
    assert (differs == (apart > verdict.critical_difference)).all()
    assert differs.any()


@pytest.mark.parametrize(
    ("values", "statement"),
    [
        ({"a": [0.1] * 6, "b": [0.2] * 6}, "three methods, not 2"),
        ({"a": [0.1] * 6}, "three methods, not 1"),
        ({m: [0.1, 0.2, 0.3, 0.4] for m in "abc"}, "too few blocks (4)"),
        ({m: [0.1] * 6 for m in "abc"}, "all methods tie in every block"),
        ({"a": [0.1, np.nan], "b": [np.nan, 0.1], "c": [0.1, 0.1]}, "no block has a number for"),
    ],
)
def test_too_little_data_for_friedman_gives_a_statement(values, statement):
    verdict = friedman(matched(values))
    assert statement in verdict.statement
    assert np.isnan(verdict.p)
    assert draw_critical_difference(verdict) is None
    for form in ("plain", "markdown", "latex", "html", "csv", "json"):
        assert view(judge(matched(values), "friedman")).render(form)


def test_rounding_errors_preserve_ties_of_friedmans_ranks():
    verdict = friedman(matched({"a": [0.1 + 0.2] * 6, "b": [0.3] * 6, "c": [0.5] * 6}))
    assert verdict.ranks.tolist() == [1.5, 1.5, 3.0]


def test_paired_seeds_are_the_blocks(tmp_path):
    fake_results.write(tmp_path, seeds=4)
    told = over_seeds(load(tmp_path), "ece")
    assert told.unit == "network seed"
    assert compare(told, "vanilla", "t")["statement"].str.startswith("all 4 differences").all()
    assert told.values["+ two"].tolist() == pytest.approx([0.06, 0.07, 0.08, 0.09])


def test_heads_of_several_networks_are_averaged(tmp_path):
    fake_results.write(tmp_path, seeds=4)
    sweep = load(tmp_path)
    crossed = [
        replace(
            trial,
            network_seed=trial.network_seed % 2,
            head_seed=trial.network_seed // 2 if trial.rung else None,
        )
        for trial in sweep.manifest.planned
    ]
    seeds = {"paired_seeds": False, "network_seeds": [0, 1], "head_seeds": [0, 1]}
    told = over_seeds(fake_results.with_manifest(sweep, **seeds, planned=crossed), "ece")
    assert told.unit == "network seed, head seeds averaged"
    assert told.values["+ two"].tolist() == pytest.approx([0.07, 0.08])


def test_on_one_network_the_networks_own_head_stands_in_every_block(tmp_path):
    fake_results.write(tmp_path, seeds=3)
    sweep = load(tmp_path)
    own = [t for t in sweep.manifest.planned if t.rung == 0][1:]
    planned = [t for t in sweep.manifest.planned if t not in own]
    seeds = {"paired_seeds": False, "network_seeds": [0]}
    told = over_seeds(fake_results.with_manifest(sweep, **seeds, planned=planned), "ece")
    assert "one network" in told.unit
    for row in compare(told, "vanilla", "t").to_dict("records"):
        assert row["statement"].startswith("blocks on one network share its test samples")
        assert np.isnan([row["p"], row["p_holm"], row["low"], row["high"]]).all()
    assert friedman(told).statement == told.why_no_test
    assert told.values["vanilla"].tolist() == pytest.approx([0.1] * 3)
    spreads = spreads_of(told).set_index("method")["n"]
    assert spreads.to_dict() == {"vanilla": 1, "+ one": 3, "+ two": 3, "control": 3}


def compared(out, labels, eces=(0.06, 0.05, 0.02, 0.02)):
    """Write a comparison of methods with one mean ECE each, over seeds that differ by a point."""
    fake_results.write(out, kinds=RIVALS)
    path = out / "sweep.json"
    manifest = json.loads(path.read_text())
    manifest["ladder"] = f"compare {' '.join(labels)}"
    for rung, label in zip(manifest["rungs"], labels, strict=True):
        rung["label"] = label
    path.write_bytes(seal(manifest))
    for index, ece in enumerate(eces):
        for file in sorted((out / "trials").glob(f"{index}-*.parquet")):
            seed = int(file.stem.split("-")[1])
            spread = (seed - 1) * (0.01 if index < 3 else -0.01)
            fake_results.set_cells(file, {"test/ece": ece + spread})
    return load(out)


def test_table_headline_and_test_compare_with_plain_cross_entropy_wherever_it_is_listed(tmp_path):
    sweep = compared(tmp_path, ["fl", "ce", "ls", "mac_cal"])
    table = ladder(sweep)
    changes = {row["method"].text: row["ΔECE base"].text for row in table.records}
    assert changes == {"ls": "-3.00", "mac_cal": "-3.00", "ce": "-", "fl": "+1.00"}
    assert "ΔECE base: change of the mean ECE from ce, in points." in table.notes
    assert "separated from ce (difference \N{MINUS SIGN}3.00 points" in describe_best(sweep)
    (paired, _) = for_report(sweep, "t")
    assert paired.baseline == "ce"
    assert [rung.kind for rung in sweep.rungs] == ["variant", "base", "variant", "variant"]


def test_without_the_base_network_all_name_the_first_method(tmp_path):
    sweep = compared(tmp_path, ["fl", "ce+temperature", "ls", "mac_cal"])
    first = "fl, the first method, since the base network, ce, is not listed"
    table = ladder(sweep)
    assert {row["method"].text: row["ΔECE first"].text for row in table.records}["ls"] == "-4.00"
    assert f"ΔECE first: change of the mean ECE from {first}, in points." in table.notes
    assert "separated from fl (difference \N{MINUS SIGN}4.00 points" in describe_best(sweep)
    (paired, _) = for_report(sweep, "t")
    assert paired.baseline == "fl"
    assert f"Baseline: {first}" in paired.matched.notes
