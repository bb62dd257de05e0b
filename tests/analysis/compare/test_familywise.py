"""Families of comparisons without a difference: at most 5 % of them have a false decision.

Networks and test samples differ by chance, in several ratios. ``python -m
tests.analysis.compare.test_familywise`` prints the table of the documentation.
"""

import sys

import numpy as np
import pytest
from scipy import stats

from analysis.compare.claims import Changes, judge
from analysis.compare.decision import decide
from analysis.compare.intervals import p_of_both
from tune_calib.spec.reproduction import Claim, Comparison

FAMILIES, MOST = 10_000, 20
COMPARISONS = (1, 2, 3, 5, 9, 15, 20)
RATIOS = (0.1, 3.0, 20.0, 100.0)
"""Variances of the mean over networks, as multiples of that over the test samples."""


def simulate(networks, ratio, shares_reference, families=FAMILIES):
    """Differences by family, comparison and network; the error over the test samples is 1.

    With a shared reference, half of each variance is that of the reference.
    """
    chance = np.random.default_rng([networks, int(10 * ratio), shares_reference])

    def draw(scale, *shape):
        own = chance.normal(0, scale, (families, MOST, *shape))
        if not shares_reference:
            return own
        return (own - chance.normal(0, scale, (families, 1, *shape))) / 2**0.5

    return draw((networks * ratio) ** 0.5, networks) + draw(1.0, 1)


def false_decisions(values, p_of):
    """The share of families with a false decision, by the number of comparisons."""
    networks = values.shape[2]
    spread = values.std(axis=2, ddof=1) / networks**0.5
    p = p_of(np.abs(values.mean(axis=2)), spread, networks - 1)
    return {m: float((p[:, :m].min(axis=1) < 0.05 / m).mean()) for m in COMPARISONS}


def with_both(size, spread, freedom):
    parts = zip(*(np.array_split(array, 100) for array in (size, spread)), strict=True)
    return np.concatenate([p_of_both(*part, freedom, np.ones(1)) for part in parts])


def with_welch(size, spread, freedom):
    """The p of Welch and Satterthwaite."""
    total = spread**2 + 1
    return 2 * stats.t.sf(size / total**0.5, freedom * (total / spread**2) ** 2)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("networks", [3, 5, 10])
@pytest.mark.parametrize("ratio", RATIOS)
def test_at_most_five_percent_of_families_have_a_false_decision(networks, ratio):
    most = 0.05 + 2 * (0.05 * 0.95 / FAMILIES) ** 0.5
    for shares_reference in (False, True):
        rates = false_decisions(simulate(networks, ratio, shares_reference), with_both)
        assert max(rates.values()) <= most, (rates, shares_reference)


@pytest.mark.slow
def test_the_simulation_finds_the_false_decisions_of_another_rule():
    rates = false_decisions(simulate(3, 10.0, shares_reference=False), with_welch)
    assert rates[1] > 0.07
    assert rates[20] > 0.3


def test_decisions_and_verdicts_are_by_this_p(monkeypatch):
    (values,) = simulate(3, 10.0, shares_reference=False, families=1)
    values = 0.001 * values + 0.02 * (np.arange(MOST)[:, None] % 3)
    spread = stats.sem(values, axis=1)
    p = p_of_both(np.abs(values.mean(1)), spread, 2, 0.001)
    changes = [Changes(row, 0.001, np.ones(1)) for row in values]
    comparisons = [Comparison(f"m{row}", ("ce",), "nll") for row in range(MOST)]
    decisions = decide(comparisons, changes, margin=1e-9)
    ordered, corrected = np.argsort(p), np.empty(MOST)
    corrected[ordered] = np.maximum.accumulate(p[ordered] * np.arange(MOST, 0, -1)).clip(max=1)
    assert [decision.p for decision in decisions] == pytest.approx(corrected)
    assert any(decision.outcome == "worse" for decision in decisions)
    assert any(decision.outcome == "undecided" for decision in decisions)
    # A claim is refuted by chance more often the more comparisons it has.
    wrong = next(row for row in range(MOST) if changes[row].mean > 0 and 0.05 / 4 < p[row] < 0.05)
    measured = dict(zip([comparison.rung for comparison in comparisons], changes, strict=True))
    monkeypatch.setattr(
        "analysis.compare.claims._average", lambda _, comparison, than: measured[comparison.rung]
    )
    for further, outcome in ((0, "not held"), (3, "not decided")):
        claim = Claim(f"m{wrong}", ("ce",), "nll", text="", also=(comparisons[wrong],) * further)
        assert judge([], claim).outcome == outcome


def write_table():
    sys.stdout.write(f"| networks | ratio | {' | '.join(map(str, COMPARISONS))} |\n")
    for networks in (3, 5, 10):
        for ratio in RATIOS:
            rates = false_decisions(simulate(networks, ratio, False), with_both)
            cells = " | ".join(f"{100 * rate:.1f}" for rate in rates.values())
            sys.stdout.write(f"| {networks} | {ratio:g} | {cells} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    write_table()
