"""Decisions between methods: from what varies, by Holm's correction, within a margin."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

import tune_calib
from analysis.compare.claims import Changes, measure
from analysis.compare.decision import decide, decide_runs, decide_sums, describe_rules, margin_of
from analysis.compare.difference import difference
from analysis.compare.gather import over_seeds
from analysis.compare.intervals import noise_floor
from analysis.compare.significance import add_decisions, interaction, judge, view
from analysis.ladder import tables
from analysis.load import load
from tests import fake_results
from tests.analysis.compare.test_claims import written
from tests.support import here
from tune_calib.console import Screen
from tune_calib.errors import UserError
from tune_calib.files.documents import seal
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.reproduction import Comparison

DRAWS = np.random.default_rng(0).normal(0, 0.001, 1000)


def decided(*changes, metric="ece", margin=None, **options):
    """Decide on changes with draws of the test samples."""
    comparisons = [Comparison(f"m{index}", ("ce",), metric) for index in range(len(changes))]
    measured = [Changes(np.array(values), error, DRAWS, **options) for values, error in changes]
    return decide(comparisons, measured, margin)


def compare_with(run, methods, reference, metric, margin=None):
    comparisons = [Comparison(method, (reference,), metric) for method in methods]
    return decide_sums(run, comparisons, margin)


def change(mean, spread=0.0003, networks=3):
    return mean + spread * np.linspace(-1, 1, networks)


@pytest.mark.parametrize(
    ("mean", "error", "metric", "outcome"),
    [
        (-0.02, 0.001, "ece", "better"),
        (0.02, 0.001, "ece", "worse"),
        (0.02, 0.001, "accuracy", "better"),
        (-0.02, 0.02, "ece", "undecided"),
        (0.0, 0.0005, "ece", "equivalent"),
        # Its sign is certain, but it is certainly smaller than the margin.
        (-0.001, 0.0003, "ece", "equivalent"),
        (-0.0024, 0.0003, "ece", "better"),
    ],
)
def test_the_outcome_follows_from_both_tests(mean, error, metric, outcome):
    (decision,) = decided((change(mean), error), metric=metric)
    assert decision.outcome == outcome


# The error of a distance grows by a tenth for its kinks, whichever distance it is.
@pytest.mark.parametrize(
    ("metric", "kinks"), [("nll", 1.0), ("accuracy", 1.0), ("ece", 1.1), ("ks_error", 1.1)]
)
def test_one_decision_has_the_interval_over_networks_and_samples_and_both_p(metric, kinks):
    values, error = change(-0.01, 0.002, 5), 0.003
    (decision,) = decided((values, error), metric=metric, margin=0.02 * METRICS[metric].scale)
    spread, error = stats.sem(values), kinks * error
    half = decision.high - values.mean()
    assert values.mean() - decision.low == pytest.approx(half)
    assert reach_by_chance(half, spread, error) == pytest.approx(0.05)
    assert decision.p == pytest.approx(reach_by_chance(0.01, spread, error))
    assert decision.p_equivalent == pytest.approx(reach_by_chance(0.01, spread, error))


def reach_by_chance(size, spread, error):
    """Integrate P(|spread T + error Z| >= size) over Z, for five networks."""

    def at(z):
        student = stats.t(4)
        above = student.sf((size - error * z) / spread) + student.cdf((-size - error * z) / spread)
        return stats.norm.pdf(z) * above

    return integrate.quad(at, -9, 9)[0]


def test_many_overlapping_splits_do_not_shrink_the_part_of_the_interval_that_is_due_to_them():
    splits, alone = np.random.default_rng(0).normal(-0.001, 0.002, 100), np.array([-0.001])
    (many,) = decided((splits, 1e-6), metric="nll", basis="splits")
    width = 2 * stats.t.ppf(0.975, 99) * (1 + 1 / 100) ** 0.5 * splits.std(ddof=1)
    assert many.high - many.low == pytest.approx(width, rel=1e-3)
    (one,) = decided((alone, 1e-6), metric="nll", basis="splits")
    assert (many.outcome, one.outcome) == ("undecided", "equivalent")


def test_holm_decides_and_intervals_are_simultaneous():
    # p is .01, .02, .04: Holm rejects all three, the intervals at 98.3 % exclude 0 only twice.
    error = 0.001
    sizes = [error * stats.norm.isf(p / 2) for p in (0.01, 0.012, 0.04)]
    decisions = decided(*[([size], error) for size in sizes], metric="nll", margin=1e-6)
    assert [decision.p for decision in decisions] == pytest.approx([0.03, 0.03, 0.04])
    assert {decision.outcome for decision in decisions} == {"worse"}
    for decision in decisions:
        assert decision.level == pytest.approx(1 - 0.05 / 3)
        half = stats.norm.ppf(1 - 0.05 / 6) * error
        assert decision.high - decision.difference == pytest.approx(half)
    assert [decision.low > 0 for decision in decisions] == [True, True, False]


def test_differences_of_noise_floors_are_no_difference():
    (differs,) = decided(([-0.006], 0.001))
    assert differs.outcome == "better"
    (decision,) = decided(([-0.006], 0.001), excess=-0.0055)
    assert decision.outcome == "undecided"
    assert decision.low < -0.006 < 0 < decision.high


def test_the_noise_floor_is_the_ece_of_simulated_calibrated_classifiers():
    chance = np.random.default_rng(0)
    counts, confidence = np.array([7.0, 0.0, 40.0, 300.0]), np.array([0.3, np.nan, 0.5, 0.97])
    filled = counts > 0
    n, c = counts[filled].astype(int), confidence[filled]
    right = chance.binomial(n, c, (100_000, 3))
    expected = np.abs(right - n * c).sum(1).mean() / n.sum()
    assert noise_floor(counts, confidence) == pytest.approx(expected, rel=0.01)
    assert noise_floor(np.array([5.0]), np.array([1.0])) == 0


def test_decisions_of_a_run_have_the_numbers_of_claims(tmp_path):
    run = written(tmp_path)
    first, second = compare_with(run, ["+ one", "+ two"], "vanilla", "accuracy")
    assert (first.outcome, second.outcome, second.basis, second.pairs) == (
        "worse",
        "worse",
        "networks",
        5,
    )
    claimed = measure(run, Comparison("+ two", ("vanilla",), "accuracy"), "vanilla")
    assert second.difference == pytest.approx(claimed.mean)
    half = stats.norm.ppf(1 - 0.05 / 4) * claimed.error  # equal for all seeds
    assert second.difference - second.low == pytest.approx(half, rel=1e-3)
    assert second.over == "5 networks and the test samples"


def test_one_network_is_decided_by_the_paired_bootstrap_of_its_test_samples(tmp_path):
    run = written(tmp_path, 1)
    (decision,) = compare_with(run, ["+ two"], "vanilla", "ece")
    assert (decision.outcome, decision.basis, decision.pairs) == ("better", "samples", 1)
    assert decision.over == "the test samples of this network"
    done = here("analyze", "significance", tmp_path, "--test", "t", "--baseline", "vanilla")
    assert "The decisions are about this network, not about others." in done.stdout
    assert (
        "The draw of select and calib does not enter (--split-seeds 5 repeats it)." in done.stdout
    )
    alone = fake_results.with_manifest(run, paired_seeds=False, network_seeds=[0])
    verdict = add_decisions(alone, judge(over_seeds(alone, "ece"), "t", "vanilla"))
    spread, decided = view(verdict).tables
    assert "Neither spread nor interval is that of a difference" in spread.caption
    assert (decided.key, decided.is_main) == ("decisions", True)
    first = decided.notes[-3]
    cells = decided.records[0]
    assert first.startswith(
        "By the ECE, + one is better than vanilla (difference \N{MINUS SIGN}2.00"
    )
    assert f"p (Holm) {cells['p (Holm)'].text}); what varies: the test samples" in first


def test_over_splits_the_caption_says_that_their_draw_enters(tmp_path):
    splits = change(-0.01)
    (decision,) = decided((splits, 0.001), metric="nll", basis="splits")
    rules = ". ".join(describe_rules([decision]))
    assert "3 splits of the data, which overlap, and the test samples" in rules
    assert "about the networks of this run" in rules
    assert "--split-seeds" not in rules


def test_without_draws_a_bound_or_the_option_is_named(tmp_path):
    fake_results.write(tmp_path, seeds=1)
    (unknown,) = compare_with(load(tmp_path), ["+ two"], "vanilla", "nll")
    assert (unknown.outcome, unknown.why) == (
        "undecided", "no intervals over the test samples, which --bootstrap 1000 gives",
    )  # fmt: skip
    for path in (tmp_path / "trials").glob("*.parquet"):
        fake_results.set_cells(path, {"test/confidence_gap_se": 0.001, "test/confidence_gap": 0.1})
    (bound,) = compare_with(load(tmp_path), ["+ two"], "vanilla", "ece")
    assert bound.is_bound
    assert bound.over.endswith("is an upper bound without shared draws (--bootstrap 1000)")


def test_margins_are_in_the_printed_unit():
    assert margin_of("ece") == 0.0025
    assert margin_of("nll") == 0.002
    assert margin_of("ece", 0.5) == 0.005
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(UserError, match="`margin` must be above 0"):
            margin_of("ece", wrong)


def test_a_margin_turns_a_small_difference_into_equivalence(tmp_path):
    run = written(tmp_path)
    (usual,) = compare_with(run, ["+ one"], "vanilla", "ece")
    (wide,) = compare_with(run, ["+ one"], "vanilla", "ece", margin=5.0)
    assert (usual.outcome, wide.outcome) == ("better", "equivalent")
    content = json.loads(
        here("analyze", "significance", run.out, "--baseline", "vanilla", "--margin", "9", "--json")
        .stdout
    )  # fmt: skip
    assert {row["outcome"] for row in content["decisions"]} == {"equivalent"}


def test_values_below_the_noise_floor_are_not_bold(tmp_path):
    fake_results.write(tmp_path)
    for path in (tmp_path / "trials").glob("*.parquet"):
        fake_results.set_cells(path, {"test/ece": 0.6 - 0.1 * int(path.stem[0])})
    table = tables.ladder(load(tmp_path))
    ranks = {row["rung"].text: row["ECE (%) ↓"].rank for row in table.records}
    (floors,) = table.on_request.values()
    assert ranks["control"] == 1
    for path in (tmp_path / "trials").glob("3-*.parquet"):
        fake_results.set_cells(path, {"test/ece": floors[3].value / 100 - 0.001})
    table = tables.ladder(load(tmp_path))
    ranks = {row["rung"].text: row["ECE (%) ↓"].rank for row in table.records}
    assert (ranks["control"], ranks["+ two"]) == (0, 0)
    assert "Noise floor (%)" not in str(table).split("\n")[0]
    columns = ("ece", "noise-floor")
    assert "Noise floor (%)" in table.on(Screen(None, columns=columns)).split("\n")[0]


def both_methods(out, together):
    """A comparison with both of two methods, whose ECE together is given."""
    run = written(out)
    manifest = json.loads((out / "sweep.json").read_text())
    labels = ["ce", "ls", "mac_cal", "ls+mac_cal"]
    manifest["ladder"] = f"compare {' '.join(labels)}"
    for rung, label in zip(manifest["rungs"], labels, strict=True):
        rung["label"] = label
    (out / "sweep.json").write_bytes(seal(manifest))
    for path in (out / "trials").glob("3-*.parquet"):
        seed = int(path.stem.split("-")[1])
        fake_results.set_cells(path, {"test/ece": together + 0.01 * seed})
    return load(run.out)


def test_the_interaction_is_the_difference_of_two_differences(tmp_path):
    # Alone they gain 2 and 4 points, together 6 in the first case and 10 in the second.
    for name, together, outcome in (("sum", 0.04, "equivalent"), ("more", 0.0, "better")):
        run = both_methods(tmp_path / name, together)
        view = interaction(run, "mac_cal", "ls", "ece")
        effects = view.frame.set_index("method")
        assert effects.loc["ls", "difference"] == pytest.approx(-0.02)
        assert effects.loc["mac_cal", "difference"] == pytest.approx(-0.04)
        assert effects.loc["interaction", "difference"] == pytest.approx(together - 0.04)
        assert effects.loc["interaction", "outcome"] == outcome
    done = here("analyze", "interaction", run.out, "--of", "ls", "--with", "mac_cal", "--csv")
    assert done.stdout.splitlines()[0] == ",".join(view.frame.columns)
    rows = tune_calib.interaction(run.out, of="ls", with_="mac_cal").rows
    pd.testing.assert_frame_equal(rows, interaction(run, "ls", "mac_cal", "ece").frame)


def test_the_three_effects_of_an_interaction_are_one_family(tmp_path):
    run = both_methods(tmp_path, 0.0)
    view = interaction(run, "ls", "mac_cal", "ece")
    decisions = view.frame.set_index("method")
    effects = compare_with(run, ["ls", "mac_cal", "ls+mac_cal"], "ce", "ece")
    alone = [compare_with(run, [effect.method], "ce", "ece")[0].p for effect in effects]
    corrected = [0.0] * 3
    for rank, index in enumerate(np.argsort(alone)):
        corrected[index] = max(*corrected, (3 - rank) * alone[index])
    for effect, p in zip(effects, corrected, strict=True):
        row = decisions.loc[effect.method]
        assert row["level"] == pytest.approx(1 - 0.05 / 3)
        assert (row["low"], row["high"]) == (effect.low, effect.high)
        assert row["p"] == pytest.approx(min(p, 1.0))
    assert decisions.loc["interaction", "level"] == 0.95
    weighed = Comparison("ls+mac_cal", ("mac_cal",), "ece", less=("ls", "ce"))
    (expected,) = decide_sums(run, [weighed])
    assert decisions.loc["interaction", "p"] == expected.p


def test_diff_decides_with_the_draws_of_both_runs(tmp_path):
    first, second = written(tmp_path / "a"), written(tmp_path / "b", noise=0.0001)
    for path in (tmp_path / "b" / "trials").glob("2-*.parquet"):
        fake_results.set_cells(path, {"test/ece": 0.03})
    frame = difference(first, load(second.out), ["ece"]).frame.set_index("rung")
    assert frame.loc["+ two", "decision"] == "better"
    assert frame.loc["vanilla", "decision"] == "equivalent"


def test_draws_of_runs_with_other_test_samples_are_not_paired(tmp_path):
    first, second = written(tmp_path / "a"), written(tmp_path / "b", noise=0.0001)
    larger = load(second.out)
    larger.bins["count"] *= 2
    widths = []
    for other in (second, larger):
        (decision,) = decide_runs(first, other, {"+ two": np.array([-0.01])}, "accuracy")
        widths.append(decision.high - decision.low)
    # Draws share nearly all of their chance where the samples are the same.
    assert widths[0] < 0.2 * widths[1]


def test_blocks_over_several_runs_are_their_seeds(tmp_path, refusal):
    for index, dataset in enumerate(("digits", "cifar10")):
        out = tmp_path / dataset
        fake_results.write(out, seeds=3)
        manifest = json.loads((out / "sweep.json").read_text())
        manifest["dataset"] = dataset
        manifest["sweep"] = f"run {index}"
        for entry in manifest["planned"]:
            entry["spec_hash"] += f"-{index}"
        (out / "sweep.json").write_bytes(seal(manifest))
        for path in (out / "trials").glob("*.parquet"):
            fake_results.set_cells(path, {"spec_hash": f"{path.stem}-{index}", "dataset": dataset})
    folders = [tmp_path / "digits", tmp_path / "cifar10"]
    options = {"baseline": "vanilla", "blocks": "seeds"}
    rows = tune_calib.significance(folders, **options).rows
    assert set(rows.loc[rows["method"] == "+ one", "pairs"]) == {6}
    columns = tune_calib.significance(folders, baseline="vanilla").rows
    assert set(columns.loc[columns["method"] == "+ one", "pairs"]) == {2}
    twice = refusal(
        "analyze", "significance", folders[0], folders[0], "--baseline", "vanilla", "--blocks",
        "seeds",
    )  # fmt: skip
    assert "a block counts once" in twice


@pytest.mark.parametrize(("comparisons", "least"), [(1, 6), (3, 7), (10, 9)])
def test_the_least_number_of_blocks_makes_wilcoxon_significant(comparisons, least):
    from analysis.compare.hypotheses import describe_blocks

    for blocks, is_enough in ((least - 1, False), (least, True)):
        p = stats.wilcoxon(np.arange(1, blocks + 1)).pvalue
        assert (comparisons * p < 0.05) == is_enough
    text = describe_blocks(3, comparisons + 1)
    assert text.startswith("this plan has 3 blocks; Wilcoxon's test needs at least 6")
    assert (f"({least} with Holm's" in text) == (comparisons > 1)


def test_a_margin_of_diff_belongs_to_one_metric(tmp_path, refusal):
    first, second = written(tmp_path / "a").out, written(tmp_path / "b", noise=0.0001).out
    message = refusal("analyze", "diff", first, second, "--margin", "1")
    assert "--margin applies to a single --metric" in message
