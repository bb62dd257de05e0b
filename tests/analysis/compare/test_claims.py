"""Verdicts on claims: from paired differences over seeds and over test samples."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import stats

from analysis.compare.claims import judge
from analysis.compare.intervals import t_interval
from analysis.load import load
from tests import fake_results
from tests.support import sample
from tune_calib.metrics.binning import top_label
from tune_calib.metrics.bootstrap import bootstrap
from tune_calib.results.tables import SCHEMAS, read_table, write_table
from tune_calib.spec.reproduction import Claim, Comparison

RNG = np.random.default_rng(0)
COMMON = RNG.normal(0, 0.02, 200)  # what chance does to all rungs alike


def draw(out, own=0.001, but=()):
    """Draws of the trials, of which rungs share most: as they do with the same samples."""
    rows = []
    for row in read_table(out, "trials").to_pylist():
        if row["status"] != "done" or row["rung"] in but:
            continue
        for metric in ("ece", "accuracy"):
            draws = row[f"test/{metric}"] + COMMON + RNG.normal(0, own, 200)
            fields = {"spec_hash": row["spec_hash"], "split": "test", "metric": metric}
            ends = {"lower": draws.min(), "upper": draws.max(), "se": draws.std(ddof=1)}
            rows.append({**fields, **ends, "resamples": 200, "draws": draws.tolist()})
    write_table(out, "intervals", "drawn", pa.Table.from_pylist(rows))


@fake_results.made_once
def write(out, seeds, gap, noise, **how):
    """Each rung lowers the ECE by 2 points and the accuracy by 1."""
    fake_results.write(out, seeds=seeds)
    fake_results.add_network_check(out, gap)
    for path in sorted((out / "trials").glob("*.parquet")):
        rung, seed = map(int, path.stem.split("-"))
        ece = fake_results.value(rung, seed) + noise * (-1) ** (seed + rung)
        fake_results.set_cells(path, {"test/ece": ece})
    draw(out, **how)


def written(out, seeds=5, gap=0.05, noise=0.0, **how):
    write(out, seeds, gap, noise, **how)
    return load(out)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """What ``written`` makes unless it is asked for more."""
    return written(tmp_path_factory.mktemp("usual"))


def claimed(*how, **more):
    return Claim(*how, text="", **more)


CLAIMS = {
    "order": (claimed("+ two", ("vanilla",)), "held"),
    "wrong order": (claimed("vanilla", ("+ two",)), "not held"),
    "one of several is wrong": (claimed("+ one", ("vanilla", "+ two")), "not held"),
    "sign": (claimed("+ two", ("vanilla",), kind="sign"), "held"),
    "wrong sign": (claimed("+ two", ("vanilla",), kind="sign", is_rise=True), "not held"),
    "size": (claimed("+ two", ("vanilla",), kind="size", least=0.03), "held"),
    "too large a size": (claimed("+ two", ("vanilla",), kind="size", least=0.05), "not held"),
    "close": (claimed("+ one", ("vanilla",), kind="close", least=0.03), "held"),
    "not close": (claimed("+ two", ("vanilla",), kind="close", least=0.03), "not held"),
    "below a number": (claimed("vanilla", (), kind="sign", number=0.5), "held"),
    "not above a number": (
        claimed("vanilla", (), kind="sign", is_rise=True, number=0.5),
        "not held",
    ),
    "ratio": (claimed("+ two", ("vanilla",), kind="ratio", least=0.8), "held"),
    "trend": (claimed("vanilla", ("+ one", "+ two"), kind="trend"), "held"),
    "wrong trend": (claimed("vanilla", ("+ one", "+ two"), kind="trend", is_rise=True), "not held"),
    "difference of differences": (
        claimed("+ two", ("+ one",), kind="close", least=0.01, less=("+ one", "vanilla")),
        "held",
    ),
    "rank": (claimed("+ two", ("+ one", "vanilla"), kind="rank"), "held"),
    "several metrics at once": (
        claimed(
            "+ one",
            ("vanilla",),
            also=(Comparison("+ one", ("vanilla",), "accuracy", kind="size", least=-0.02),),
        ),
        "held",
    ),
    "one of several metrics is wrong": (
        claimed("+ one", ("vanilla",), also=(Comparison("+ one", ("vanilla",), "accuracy"),)),
        "not held",
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_judged_by_its_kind(name, usual):
    claim, outcome = CLAIMS[name]
    verdict = judge([[usual]], claim)
    assert (verdict.outcome, verdict.pairs, verdict.why) == (outcome, 5, "")
    assert verdict.low <= verdict.difference <= verdict.high


def test_a_failed_network_check_prevents_a_verdict(tmp_path):
    sweep = written(tmp_path, gap=-0.05)
    for name, (claim, _) in CLAIMS.items():
        verdict = judge([[sweep]], claim)
        assert verdict.outcome == "no verdict", name
        assert "over-confident" in verdict.why, name


@pytest.mark.parametrize(("gap", "outcome"), [(-0.2, "no verdict"), (-0.04, "held")])
def test_a_rung_smoothed_too_much_is_nothing_to_improve_on(gap, outcome, usual):
    """Networks of the usual run are over-confident by 5 points."""
    trials = usual.trials.copy()
    is_smoothed = trials["rung"] == 1
    smoothed = {"network_method": "ls", "head_method": None, "test/confidence_gap": gap}
    for name, cell in smoothed.items():
        trials.loc[is_smoothed, name] = cell
    trials.loc[is_smoothed, "network_id"] = "ls " + trials["network_id"].astype(str)
    sweep = replace(usual, trials=trials)
    verdict = judge([[sweep]], claimed("+ two", ("+ one",)))
    assert verdict.outcome == outcome
    assert ("+ one (" in verdict.why) == (outcome == "no verdict")
    # Of rivals, none is the base of the claim.
    assert judge([[sweep]], claimed("+ two", ("vanilla", "+ one"))).outcome == "held"


def test_a_quantity_that_no_finished_trial_has_gives_no_verdict(usual):
    rung = usual.trials["rung"]
    values = usual.trials.assign(**{"test/q_settling": (-0.02 - 0.001 * rung).where(rung != 2)})
    sweep = replace(usual, trials=values)
    held = judge([[sweep]], claimed("+ one", (), "q_settling", kind="sign"))
    assert (held.outcome, held.pairs) == ("held", 5)
    for than in ((), ("+ one",)):
        verdict = judge([[sweep]], claimed("+ two", than, "q_settling", kind="sign"))
        assert (verdict.outcome, verdict.pairs) == ("no verdict", 0)
        assert verdict.why.startswith("no seed has a value for ")
    values = values.assign(status=values["status"].where(rung != 2, "failed"))
    verdict = judge([[replace(usual, trials=values)]], replace(verdict.claim, than=()))
    assert verdict.outcome == "not decided"


@pytest.mark.parametrize("seeds", [1, 2])
def test_few_seeds_do_not_decide_a_claim(seeds, tmp_path):
    verdict = judge([[written(tmp_path, seeds)]], CLAIMS["order"][0])
    assert (verdict.outcome, verdict.seeds) == ("not decided", 3)
    assert "of at least 3 seeds" in verdict.why


@pytest.mark.slow
def test_the_estimated_number_of_seeds_decides_a_claim(tmp_path):
    claim = claimed("+ two", ("+ one",))
    few = judge([[written(tmp_path / "few", 4, noise=0.02)]], claim)
    assert few.outcome == "not decided"
    assert few.low < 0 < few.high
    # The same spread of the differences, whose sign alternates, with as many seeds and a few more.
    many = judge([[written(tmp_path / "many", 2 * (few.seeds // 2 + 2), noise=0.02)]], claim)
    assert many.outcome == "held"


@pytest.mark.parametrize("seeds", [2, 5])
@pytest.mark.parametrize("than", [(), ("vanilla",)])
def test_other_quantities_are_judged_over_seeds_alone(seeds, than, tmp_path):
    sweep = written(tmp_path, seeds)
    values = sweep.trials["rung"] + 0.01 * sweep.trials["network_seed"] ** 2
    sweep = replace(sweep, trials=sweep.trials.assign(**{"test/own": values}))
    claim = claimed("+ two", than, "own", kind="sign", is_rise=True)
    verdict = judge([[sweep]], claim)
    if seeds < 3:
        assert (verdict.outcome, verdict.why) == ("not decided", "2 of at least 3 seeds")
        return
    assert verdict.outcome == "held"
    spread = values[sweep.trials["rung"] == 2] if not than else values[:0]
    expected = t_interval(spread.to_numpy()) if len(spread) else (2, 2)
    assert (verdict.low, verdict.high) == pytest.approx(expected)


def test_more_seeds_do_not_replace_test_samples(tmp_path):
    verdict = judge([[written(tmp_path, own=0.3)]], CLAIMS["order"][0])
    assert (verdict.outcome, verdict.seeds) == ("not decided", None)
    assert "however many seeds" in verdict.why


def test_shared_draws_cancel_in_a_difference(usual, tmp_path):
    claim = claimed("+ one", ("vanilla",))
    assert judge([[usual]], claim).outcome == "held"
    # Without the draws their own errors alone are known, which are those of all samples.
    path = written(tmp_path / "alone").out
    rows = [{**row, "draws": None} for row in read_table(path, "intervals").to_pylist()]
    write_table(path, "intervals", "drawn", pa.Table.from_pylist(rows, SCHEMAS["intervals"]))
    assert judge([[load(path)]], claim).outcome == "not decided"


@pytest.mark.parametrize("but", [(2,), (0, 1, 2, 3)])
@pytest.mark.parametrize("metric", ["ece", "nll"])
def test_without_errors_over_the_samples_there_is_no_decision(but, metric, tmp_path):
    fake_results.write(tmp_path, seeds=5)
    fake_results.add_network_check(tmp_path)
    if len(but) < 4:
        draw(tmp_path, but=but)
    verdict = judge([[load(tmp_path)]], claimed("+ two", ("vanilla",), metric))
    assert (verdict.outcome, verdict.why) == (
        "not decided", "no intervals over the test samples",
    )  # fmt: skip


@pytest.mark.parametrize("metric", ["ece", "accuracy"])
def test_without_a_bootstrap_the_errors_of_the_rungs_add_up(metric, tmp_path):
    fake_results.write(tmp_path, seeds=5)
    fake_results.add_network_check(tmp_path)
    for path in (tmp_path / "trials").glob("*.parquet"):
        fake_results.set_cells(
            path, {"test/confidence_gap_se": 0.01, "test/confidence_gap": 0.2, "test/ece": 0.3}
        )
    sweep = load(tmp_path)
    verdict = judge([[sweep]], claimed("+ two", ("vanilla",), metric))
    bins = sweep.bins[sweep.bins["split"] == "test"].astype({"spec_hash": str})
    trials = sweep.trials.join(bins.groupby("spec_hash")["count"].sum(), "spec_hash")
    value = trials["test/accuracy"]
    variance = {
        "ece": 0.01**2 + (0.2**2 - 0.3**2) / trials["count"],
        "accuracy": value * (1 - value) / trials["count"],
    }[metric]
    errors = np.sqrt(variance.clip(lower=0)).groupby(trials["rung"]).mean()[[0, 2]]
    # Equal differences of all seeds: the interval is over the samples only.
    half = stats.norm.ppf(0.975) * np.hypot(*errors)
    assert (verdict.high - verdict.low) / 2 == pytest.approx(half, rel=1e-3)


@pytest.mark.parametrize("scale", sample([1.0, 0.3], 1))
def test_errors_without_a_bootstrap_bound_those_with_one(scale):
    chance = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2000, 5, generator=chance).double()
    # Over-confident with the second scale, calibrated with the first.
    labels = torch.multinomial((logits * scale).softmax(-1), 1, generator=chance)[:, 0]
    intervals = bootstrap(logits[None], labels, 400)
    confidence, correct = top_label(logits.softmax(-1), labels)
    square = ((confidence - correct) ** 2).mean()
    for name in ("ece", "aece", "o_ece", "u_ece"):
        bound = ((square - intervals[name].draws.mean() ** 2) / len(labels)) ** 0.5
        assert 0 < float(intervals[name].se) <= 1.1 * float(bound)


def test_diverged_trials_are_no_numbers(tmp_path):
    fake_results.write(tmp_path, seeds=5, bad="diverged")
    fake_results.add_network_check(tmp_path)
    draw(tmp_path)
    verdict = judge([[load(tmp_path)]], CLAIMS["order"][0])
    assert (verdict.outcome, verdict.why) == (
        "not decided",
        "no seed has a value for all compared rungs",
    )


@pytest.mark.parametrize(
    ("networks", "outcome"), sample([(2, "not decided"), (3, "held"), (4, "held")], 1)
)
def test_pairs_of_frozen_networks_are_the_networks(tmp_path, networks, outcome):
    sweeps = [written(tmp_path / str(index)) for index in range(networks)]
    verdict = judge([sweeps], CLAIMS["order"][0])
    assert (verdict.outcome, verdict.pairs) == (outcome, networks)
    alone = judge([[sweeps[0]]], CLAIMS["order"][0])
    assert verdict.difference == pytest.approx(alone.difference)
    assert alone.pairs == 5
    if outcome == "held":
        # Networks share the test samples: their number does not make the error smaller.
        width, of_one = verdict.high - verdict.low, alone.high - alone.low
        assert width == pytest.approx(of_one, rel=0.2)


def test_one_network_without_numbers_or_outside_the_check_prevents_a_verdict(tmp_path):
    sweeps = [written(tmp_path / str(index)) for index in range(3)]
    other = judge([[*sweeps, written(tmp_path / "other", gap=-0.05)]], CLAIMS["order"][0])
    assert other.outcome == "no verdict"
    lacks = judge([[*sweeps, sweeps[0]]], claimed("+ ten", ("vanilla",)))
    assert (lacks.outcome, lacks.why) == ("not decided", "not run: + ten")


def test_a_claim_about_many_rungs_is_corrected_for_chance(tmp_path):
    sweep = written(tmp_path, 3, noise=0.0025)
    alone = judge([[sweep]], claimed("+ one", ("+ two",)))
    assert alone.outcome == "not held"
    many = judge([[sweep]], claimed("+ one", ("+ two", *["vanilla"] * 9)))
    assert many.outcome == "not decided"


def test_a_mean_over_data_sets_is_judged_seed_by_seed(tmp_path):
    sweeps = [written(tmp_path / str(index), 3, noise=0.002 * index) for index in range(3)]
    claim = claimed("+ two", ("vanilla",))
    singles = [judge([[sweep]], claim) for sweep in sweeps]
    verdict = judge([[sweep] for sweep in sweeps], claim)
    assert (verdict.outcome, verdict.pairs) == ("held", 3)
    assert verdict.difference == pytest.approx(np.mean([single.difference for single in singles]))
    # All are on the same test samples, whose error does not shrink with the number of networks.
    assert verdict.high - verdict.low >= min(single.high - single.low for single in singles) * 0.9
    lacks = judge([[sweeps[0]], [sweeps[1]]], claimed("+ ten", ("vanilla",)))
    assert (lacks.outcome, lacks.why) == ("not decided", "not run: + ten")


def test_a_trend_is_the_slope_per_rung(usual):
    verdict = judge([[usual]], claimed("vanilla", ("+ one", "+ two"), kind="trend"))
    ends = judge([[usual]], claimed("+ two", ("vanilla",)))
    assert verdict.difference == pytest.approx(ends.difference / 2)
    assert verdict.than == ""


def test_ranks_are_among_all_rungs(usual):
    verdict = judge([[usual]], claimed("+ two", ("vanilla",), kind="rank"))
    order = usual.trials.groupby("rung")["test/ece"].mean().rank()
    labels = {label: rung for rung, label in usual.labels.items()}
    assert verdict.difference == order[labels["+ two"]] - order[labels["vanilla"]]
