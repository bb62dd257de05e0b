"""Coverage of the intervals of decisions and their false outcomes, on simulated test sets.

``python -m tests.analysis.compare.test_decision_rates`` prints the table of the documentation
from numbers of test sets and of samples, as ``... 600 2000`` does.
"""

import sys
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import log_softmax

from analysis.compare.claims import Changes
from analysis.compare.decision import decide
from analysis.compare.intervals import noise_floor
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.reproduction import Comparison

BINS, CLASSES, DRAWS = 15, 5, 200

# Factors of the logits of two methods, whose networks have calibrated logits on average.
PAIRS = {
    "over-confident and calibrated": (1.35, 1.0),
    "nearly equal": (1.04, 1.0),
    "over- and under-confident": (1.15, 0.85),
}


class Simulated(NamedTuple):
    """Differences of two methods on many test sets."""

    values: np.ndarray  # (test sets, networks)
    error: np.ndarray  # (test sets,)
    excess: np.ndarray  # (test sets,)


def images(samples, chance):
    """Logits of the images, from which their labels are drawn."""
    logits = chance.normal(0, 1, (samples, CLASSES))
    logits[np.arange(samples), chance.integers(0, CLASSES, samples)] += chance.exponential(
        4, samples
    )
    gumbel = chance.gumbel(size=logits.shape)
    return logits, (logits + gumbel).argmax(1)


def classify(logits, labels, factor):
    """Confidence, correctness and loss of each image."""
    scores = log_softmax(factor * logits, axis=1)
    rows = np.arange(len(labels))
    predicted = scores.argmax(1)
    confidence = np.exp(scores[rows, predicted])
    return confidence, predicted == labels, -scores[rows, labels]


def binned(confidence, is_right):
    place = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    gaps = np.zeros((len(place), BINS), dtype=np.float32)
    gaps[np.arange(len(place)), place] = confidence - is_right
    counts = np.bincount(place, minlength=BINS).astype(float)
    means = np.bincount(place, confidence, BINS) / np.maximum(counts, 1)
    return gaps, noise_floor(counts, means)


def simulate(factors, networks, samples, repeats, mean_confidence=None):
    """Draw test sets and networks, and the bootstrap of each pair of methods.

    With ``mean_confidence``, the second method has this confidence for every image.
    """
    parts = {"ece": ([], [], []), "nll": ([], [], [])}
    for seed in range(repeats):
        chance = np.random.default_rng(seed)
        logits, labels = images(samples, chance)
        # The number of times that each image occurs in each draw.
        places = chance.integers(0, samples, (DRAWS, samples)) + samples * np.arange(DRAWS)[:, None]
        counts = np.bincount(places.ravel(), minlength=DRAWS * samples)
        weights = counts.reshape(DRAWS, samples).astype(np.float32)
        values, drawn, floors = {}, {}, []
        for network in range(networks):
            # One network is the same on all test sets, since a decision is about it alone.
            trained = logits * np.exp(chance.normal(0, 0.05 * (networks > 1)))
            trained = trained + chance.normal(0, 0.2, logits.shape)
            for sign, factor in zip((1, -1), factors, strict=True):
                confidence, is_right, loss = classify(trained, labels, factor)
                if sign < 0 and mean_confidence is not None:
                    confidence = np.full(samples, mean_confidence)
                gaps, floor = binned(confidence, is_right)
                floors.append(sign * floor)
                of_metrics = {
                    "ece": (np.abs(gaps.sum(0)).sum(), np.abs(weights @ gaps).sum(1)),
                    "nll": (loss.sum(), weights @ loss.astype(np.float32)),
                }
                for name, (value, draws) in of_metrics.items():
                    total = values.setdefault(name, np.zeros(networks))
                    total[network] += sign * value / samples
                    drawn[name] = drawn.get(name, 0) + sign * draws / samples / networks
        for name, lists in parts.items():
            lists[0].append(values[name])
            lists[1].append(drawn[name].std(ddof=1))
            lists[2].append(sum(floors) / networks if name == "ece" else 0.0)
    return {name: Simulated(*map(np.array, lists)) for name, lists in parts.items()}


def outcomes(simulated, metric, true=None, margin=1e-9):
    """Decide on each test set as if the mean difference were ``true``; as it is if None."""
    mean = simulated.values.mean()
    shift = 0.0 if true is None else true - mean
    decisions = []
    comparison, printed = Comparison("a", ("b",), metric), METRICS[metric].scale * margin
    for values, error, excess in zip(*simulated, strict=True):
        change = Changes(values + shift, error, np.ones(1), excess=excess)
        decisions += decide([comparison], [change], printed)
    return decisions


def share(decisions, outcome):
    return np.mean([decision.outcome == outcome for decision in decisions])


def rates(simulated, metric):
    """Coverage, false better, false worse, and false equivalent at a difference of the margin."""
    equal = outcomes(simulated, metric, true=0.0)
    covered = np.mean([decision.low <= 0 <= decision.high for decision in equal])
    # Large enough for the tests to have power: with a smaller one nothing is equivalent.
    networks = simulated.values.shape[1]
    spread = simulated.values.std(axis=1, ddof=1).mean() if networks > 1 else 0.0
    margin = 4 * np.hypot(simulated.error.mean(), spread / networks**0.5)
    margin += np.abs(simulated.excess).mean()
    apart = [outcomes(simulated, metric, true, margin) for true in (margin, -margin)]
    equivalent = max(share(decisions, "equivalent") for decisions in apart)
    return covered, share(equal, "better"), share(equal, "worse"), equivalent


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("networks", [1, 3, 5])
@pytest.mark.parametrize("pair", PAIRS)
def test_intervals_have_their_coverage_and_false_decisions_are_rare(pair, networks):
    simulated = simulate(PAIRS[pair], networks, 1000, repeats=600)
    for metric in ("ece", "nll"):
        covered, better, worse, equivalent = rates(simulated[metric], metric)
        assert covered > 0.93, metric
        assert max(better, worse, equivalent) < 0.05, metric
    # An interval of ECEs also contains the difference without that of the noise floors, and one
    # over three networks is at least as wide as needed (``test_familywise.py``).
    assert rates(simulated["nll"], "nll")[0] < 0.98


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_smaller_noise_floor_is_no_better_calibration():
    # Both are calibrated; only the number of bins that chance fills differs.
    logits, labels = images(200_000, np.random.default_rng(1))
    accuracy = float((logits.argmax(1) == labels).mean())
    simulated = simulate((1.0, 1.0), 1, 1000, 200, mean_confidence=accuracy)["ece"]
    assert simulated.values.mean() > 0.01
    assert share(outcomes(simulated, "ece"), "worse") < 0.05
    without = simulated._replace(excess=0 * simulated.excess)
    assert share(outcomes(without, "ece"), "worse") > 0.2


def write_table(repeats, samples):
    heads = "pair | networks | metric | coverage | false better | false worse | false equivalent"
    sys.stdout.write(f"| {heads} |\n")
    for pair, factors in PAIRS.items():
        for networks in (1, 3, 5):
            for metric, simulated in simulate(factors, networks, samples, repeats).items():
                numbers = " | ".join(f"{100 * rate:.1f}" for rate in rates(simulated, metric))
                sys.stdout.write(f"| {pair} | {networks} | {metric} | {numbers} |\n")
                sys.stdout.flush()


if __name__ == "__main__":
    write_table(*map(int, sys.argv[1:]))
