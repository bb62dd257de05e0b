"""README's table and ten decisions of the pages, recomputed without a line of this project."""

import json
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # reads the draws of the shipped rows

ROOT = Path(__file__).parents[2]
MARGINS = {"ece": 0.0025, "nll": 0.002}
LADDER20 = "resnets-cifar10/maccal-table5/ladder-given-resnet20_he-cifar10-resnet20_he"
LINEAR = (
    "retrain+temperature start=continued lr=0.00379197 loss_reduction=mean "
    "weight_decay=0.00810869 clip_grad_norm=None"
)
DEFAULTS = (
    "mac_cal lr=0.01 loss_reduction=mean clip_grad_norm=None weight_decay=0.0005 batch_size=128 "
    "epochs=40"
)
UNMASKED = DEFAULTS.replace("mac_cal", "retrain shape=bottleneck")
DECISIONS = f"""
resnet50/shift|nll|temperature|spline|better
resnet50/shift|ece|temperature|spline|better
resnet50/methods|nll|temperature|iop_oi|better
resnet50/behind|nll|temperature|{LINEAR}|equivalent
resnet50/ladder-tuned|nll|vanilla, scaled|+ decaying adaptive sparsity|better
resnet50/ladder-tuned|nll|retrain bottleneck (no mask)|+ decaying adaptive sparsity|undecided
resnet50/ladder-tuned|nll|retrain bottleneck (no mask)|+ classifier restructure|worse
resnet50/ladder-mean|ece|retrain linear (no mask)|+ masked retraining|undecided
resnet50/methods|ece|{UNMASKED}|{DEFAULTS}|better
{LADDER20}|ece|retrain linear (no mask)|+ masked retraining|better
"""
ROWS = ("ce", "temperature", "iop_oi", DEFAULTS, UNMASKED)
README = [*product(["methods"], ROWS), ("tst-256-every", "tst")]


def describe_bins(bins):
    """Return the ECE, and its expectation if right samples are binomial (De Moivre's formula)."""
    n, c = bins["count"].to_numpy(float), bins["confidence"].to_numpy()
    k = np.floor(n * c) + 1
    floor = (2 * k * (1 - c) * stats.binom.pmf(k, n, c)).sum() / n.sum()
    return pd.Series({"ece": (n * np.abs(c - bins["accuracy"])).sum() / n.sum(), "floor": floor})


@cache
def read(folder, metric):
    """Return the heads of each label, with value, interval and draws of a metric, and bins."""
    path = ROOT / "docs/claims" / folder
    names = ("trials", "intervals", "bins")
    trials, intervals, bins = (pd.read_parquet(path / name / "all.parquet") for name in names)
    rungs = json.loads((path / "sweep.json").read_text())["rungs"]
    labels = {rung["index"]: rung["label"] for rung in rungs}
    intervals = intervals[(intervals["split"] == "test") & (intervals["metric"] == metric)]
    bins = bins[(bins["split"] == "test") & (bins["count"] > 0)].astype({"spec_hash": str})
    described = bins.groupby("spec_hash")[["count", "confidence", "accuracy"]].apply(describe_bins)
    trials = trials.sort_values("head_seed").astype({"spec_hash": str})
    heads = trials[["spec_hash", "rung"]].assign(value=trials[f"test/{metric}"])
    heads = heads.merge(intervals.astype({"spec_hash": str}), on="spec_hash")
    heads = heads.join(described, on="spec_hash")
    return dict(list(heads.groupby(heads["rung"].map(labels))))


def p_of(size, spread, heads, error):
    """Integrate P(|spread T + error Z| >= size) over Student's T."""
    if not spread:
        return 2 * stats.norm.sf(size / error)

    def density(t):
        tails = stats.norm.cdf([spread * t - size, -size - spread * t], scale=error).sum()
        return stats.t.pdf(t, heads - 1) * tails

    return 2 * integrate.quad(density, 0, np.inf, limit=200)[0]


def holm(p):
    order = np.argsort(p)
    return np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1))[np.argsort(order)]


@cache
def decide(folder, metric, reference):
    heads, tests = read(folder, metric), {}
    base = heads[reference]
    for label in heads.keys() - {reference}:
        change = heads[label]["value"].to_numpy() - base["value"].to_numpy()
        draws = [np.mean(rows["draws"].tolist(), axis=0) for rows in (heads[label], base)]
        spread = change.std(ddof=1) / len(change) ** 0.5 if len(change) > 1 else 0.0
        error, excess = max(np.std(draws[0] - draws[1], ddof=1), 1e-12), 0.0
        if metric == "ece":
            error, excess = 1.1 * error, heads[label]["floor"].mean() - base["floor"].mean()
        least, most = change.mean() - max(excess, 0), change.mean() - min(excess, 0)
        sizes = max(least, -most, 0), max(MARGINS[metric] - max(most, -least), 0)
        tests[label] = change.mean(), *(p_of(size, spread, len(change), error) for size in sizes)
    table = pd.DataFrame.from_dict(tests, orient="index", columns=["change", "p", "p_equivalent"])
    outcomes = pd.Series(np.where(table["change"] < 0, "better", "worse"), table.index)
    outcomes[holm(table["p"]) >= 0.05] = "undecided"
    outcomes[holm(table["p_equivalent"]) < 0.05] = "equivalent"
    return outcomes


@pytest.mark.parametrize("decision", DECISIONS.split("\n")[1:-1])
def test_a_decision_of_the_pages_follows_from_the_rows(decision):
    folder, metric, reference, method, outcome = decision.split("|")
    assert decide(folder, metric, reference)[method] == outcome


@pytest.mark.parametrize(("column", "metric", "digits"), [(2, "ece", 4), (3, "nll", 3)])
def test_the_table_of_readme_follows_from_the_rows(column, metric, digits):
    table = (ROOT / "README.md").read_text().split("<!-- results readme_table.yaml -->")[1]
    lines = [line.split("|") for line in table.splitlines() if line.startswith("| ")][1:]
    for line, (run, label) in zip(lines, README, strict=True):
        numbers = line[column].strip(" *<u>/]").replace(",", "[").split("[")
        rows = read(f"resnet50/{run}", metric)[label]
        mean = rows["ece" if metric == "ece" else "value"].mean()
        expected = mean, rows["lower"].mean(), rows["upper"].mean()
        shown = [float(number) / (100 if metric == "ece" else 1) for number in numbers]
        assert shown == pytest.approx(expected, abs=0.51 / 10**digits), line
