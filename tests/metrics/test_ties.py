"""Confidences that are equal but for rounding: bins, ranks and counts against exact fractions."""

from fractions import Fraction

import calibration as kumar
import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

import tune_calib
from tests.support import sample
from tune_calib.engine.evaluate import SplitLogits, evaluate_one
from tune_calib.methods.temperature import converged
from tune_calib.metrics import conformal, refinement
from tune_calib.metrics.ood import detection
from tune_calib.metrics.samples import CalibSplit, Samples
from tune_calib.metrics.scoring import nll
from tune_calib.metrics.summary import evaluate
from tune_calib.metrics.ties import OUTPUTS, settled


def _nll(logits, labels):
    return float(nll(Samples(logits.softmax(-1), labels, logits)))


def numbers(probs, labels, dtype=torch.float64):
    """Metrics of probabilities whose zeros are raised to 1e-12, as for the logits of a type."""
    logits = np.clip(np.asarray(probs, dtype=np.float64), 1e-12, None)
    logits = torch.from_numpy(np.log(logits)).to(dtype)
    evaluation = evaluate(logits.double(), torch.as_tensor(labels), dtype=dtype)
    return {name: float(value) for name, value in evaluation.items()}


@pytest.mark.parametrize("samples", [200, 201, 20])
def test_tied_samples_share_a_bin_of_the_debiased_error(samples):
    labels = np.arange(samples) % 2
    probs = np.array([[0.6, 0.4]] * samples)
    error = numbers(probs, labels)["debiased_ece"]
    assert error == pytest.approx(kumar.lower_bound_scaling_top_ce(probs, labels), abs=1e-9)
    if samples == 200:
        assert error == pytest.approx(0.0935, abs=5e-5)


@pytest.mark.parametrize("seed", range(4))
def test_groups_of_ties_share_bins_as_in_the_code_of_its_authors(seed):
    chance = np.random.default_rng(seed)
    confidence = chance.choice([0.55, 0.6, 0.7, 0.71, 0.9], 150, p=[0.1, 0.4, 0.2, 0.2, 0.1])
    probs = np.stack([confidence, 1 - confidence], 1)
    labels = (chance.random(150) > confidence - 0.2).astype(int)
    theirs = kumar.lower_bound_scaling_top_ce(probs, labels)
    assert numbers(probs, labels)["debiased_ece"] == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rounding_divides_no_equal_confidences(dtype):
    probs, labels = [[0, 0.4, 0.6], [0.1, 0.3, 0.6]] * 50, [2, 0] * 50
    measured = numbers(probs, labels, dtype)
    assert measured["ece"] == pytest.approx(0.1, abs=1e-7)
    assert measured["mce"] == pytest.approx(0.1, abs=1e-7)
    assert measured["error_auroc"] == 0.5
    logits = torch.from_numpy(np.log(np.clip(probs, 1e-12, None))).to(dtype)
    report = tune_calib.calibration_report(logits, labels, resamples=2)
    values = report.metrics.set_index("metric").value
    assert values["error_auroc"] == 0.5
    assert values["mce"] == pytest.approx(0.1, abs=1e-7)
    split = SplitLogits(logits.float()[None], torch.tensor(labels))
    row = evaluate_one(dict.fromkeys(("calib", "select", "test"), split), None).metrics
    assert row["test/error_auroc"] == 0.5
    assert row["test/mce"] == pytest.approx(0.1, abs=1e-7)


def test_confidences_that_differ_stay_distinct():
    near = torch.tensor([[1e-7, 1 - 1e-7], [1e-9, 1 - 1e-9]], dtype=torch.float64).log()
    for dtype in (torch.float64, torch.float32):
        assert settled(near.to(dtype).double(), dtype)[0].amax(-1).unique().numel() == 2
    many = torch.linspace(0.5, 1 - 1e-5, 50_000, dtype=torch.float64)
    logits = torch.stack([many, 1 - many], 1).log()
    assert settled(logits)[0].amax(-1).unique().numel() == 50_000
    # Float32 numbers that are denser than their errors form no chain.
    dense = torch.linspace(0.6, 0.601, 5000, dtype=torch.float64)
    logits = torch.stack([dense, 1 - dense], 1).log().float().double()
    assert settled(logits, OUTPUTS)[0].amax(-1).unique().numel() > 4900


def test_no_top_class_changes():
    chance = torch.Generator().manual_seed(0)
    edges = torch.randint(1, 15, (3000, 4), generator=chance).double()
    logits = (edges / edges.sum(1, keepdim=True)).log()
    logits += 1e-7 * torch.randn(logits.shape, generator=chance, dtype=torch.float64)
    probs = settled(logits, OUTPUTS)[0]
    assert torch.equal(probs.argmax(-1), logits.argmax(-1))
    assert (probs - logits.softmax(-1)).abs().max() < 1e-6


def test_equal_scores_of_two_sets_are_ties():
    rows = torch.tensor([[1e-12, 0.4, 0.6], [0.1, 0.3, 0.6], [0.6, 0.1, 0.3]], dtype=torch.float64)
    logits = rows.log().float()
    assert detection(logits[:1].repeat(20, 1), logits[1:].repeat(20, 1))["auroc"] == 0.5
    # The entropy of the same probabilities in another order.
    scores = detection((logits[1:2] + 2).repeat(20, 1), logits[2:].repeat(20, 1))
    assert scores["auroc"] == scores["auroc_entropy"] == 0.5


def test_a_class_at_the_threshold_is_in_the_conformal_set():
    rows = torch.tensor([[0.1, 0.3, 0.6], [0.6, 0.1, 0.3], [0.3, 0.6, 0.1]], dtype=torch.float64)
    labels = torch.tensor([2, 0, 1]).repeat(20)
    for divisor in (3, 7, 11):
        calib = settled((rows / divisor).log().repeat(20, 1))
        calib_split = CalibSplit(calib.probs, labels, calib.error)
        test = settled((rows.flip(0) * divisor).log())[0]
        assert conformal.set_sizes(Samples(test, labels[:3], calib=calib_split)).tolist() == [
            1,
            1,
            1,
        ]


# --- many inputs against fractions


def exact_case(seed):
    """Probabilities as fractions with one top class each, labels, and logits that were rounded."""
    chance = np.random.default_rng(seed)
    samples, classes = int(chance.integers(20, 120)), int(chance.integers(2, 8))
    denominator = int(chance.choice([15, 20, 30, 60]))
    rows = []
    while len(rows) < samples:
        cuts = np.sort(chance.integers(0, denominator + 1, classes - 1))
        parts = np.diff([0, *cuts, denominator])
        if (parts == parts.max()).sum() == 1:
            repeats = int(chance.choice([1, 1, 3, 10]))
            rows += [chance.permutation(parts) for _ in range(repeats)]
    parts = np.stack(rows[:samples])
    labels = chance.integers(0, max(1, classes - int(chance.integers(0, 2))), samples)
    hits = chance.random(samples) < 0.6
    labels = np.where(hits, parts.argmax(1), labels)
    probs = np.clip(parts / denominator, 1e-12, None)
    dtype = [torch.float64, torch.float32][seed % 2]
    logits = torch.from_numpy(np.log(probs) + chance.choice([0, 1, -3.7])).to(dtype)
    fractions = [[Fraction(int(part), denominator) for part in row] for row in parts]
    return fractions, labels.tolist(), logits


def gaps_in_bins(scores, hits):
    """Sums of score minus hit and counts in the bins (lo, hi]; 0 is in the lowest."""
    sums, counts = [Fraction(0)] * 15, [0] * 15
    for score, hit in zip(scores, hits, strict=True):
        place = max(0, -(-score * 15 // 1) - 1)
        sums[place] += score - hit
        counts[place] += 1
    return sums, counts


def debiased(confidence, hits):
    order = sorted(range(len(confidence)), key=lambda i: confidence[i])
    cuts, total = [], Fraction(0)
    for part in np.array_split(np.arange(len(order)), 15):
        if len(part):
            cuts.append(confidence[order[part[-1]]])
    low = Fraction(-1)
    for cut in sorted(set(cuts)):
        inside = [i for i in order if low < confidence[i] <= cut]
        low, size = cut, len(inside)
        if size > 1:
            accuracy = Fraction(sum(hits[i] for i in inside), size)
            gap = sum(confidence[i] - hits[i] for i in inside) / size
            total += size * (gap**2 - accuracy * (1 - accuracy) / (size - 1))
    return float(max(0, total / len(order))) ** 0.5


def by_fractions(rows, labels):
    confidence = [max(row) for row in rows]
    hits = [int(row.index(max(row)) == label) for row, label in zip(rows, labels, strict=True)]
    samples = len(rows)
    sums, counts = gaps_in_bins(confidence, hits)
    gaps = [abs(a) / n for a, n in zip(sums, counts, strict=True) if n]
    classwise = 0
    for k in range(len(rows[0])):
        of_class = gaps_in_bins([row[k] for row in rows], [int(label == k) for label in labels])
        classwise += sum(map(abs, of_class[0])) / samples / len(rows[0])
    right = [c for c, hit in zip(confidence, hits, strict=True) if hit]
    wrong = [c for c, hit in zip(confidence, hits, strict=True) if not hit]
    above = sum((a > b) + Fraction(a == b, 2) for a in right for b in wrong)
    steps, distance = Fraction(0), Fraction(0)
    for value in sorted(set(confidence)):
        pairs = zip(confidence, hits, strict=True)
        steps += sum(c - hit for c, hit in pairs if c == value)
        distance = max(distance, abs(steps) / samples)
    return {
        "accuracy": Fraction(sum(hits), samples),
        "ece": sum(map(abs, sums)) / samples,
        "o_ece": sum(max(a, 0) for a in sums) / samples,
        "mce": max(gaps),
        "ace": sum(gaps) / len(gaps),
        "cece": classwise,
        "ks_error": distance,
        "debiased_ece": debiased(confidence, hits),
        "error_auroc": above / (len(right) * len(wrong)) if right and wrong else float("nan"),
    }


@pytest.mark.parametrize("seed", sample(range(200), 6))
def test_metrics_of_rounded_logits_are_those_of_fractions(seed):
    rows, labels, logits = exact_case(seed)
    evaluation = evaluate(logits.double(), torch.tensor(labels), dtype=logits.dtype)
    for name, value in by_fractions(rows, labels).items():
        assert float(evaluation[name]) == pytest.approx(float(value), abs=1e-6, nan_ok=True), name
    chance = np.random.default_rng(seed)
    order = chance.permutation(len(labels))
    columns = chance.permutation(logits.shape[1])
    names = torch.tensor(np.argsort(columns))[torch.tensor(labels)]
    mixed = logits[:, columns][order].double()
    again = evaluate(mixed, names[order], dtype=logits.dtype)
    for name, value in evaluation.items():
        if not name.endswith(("_calibration", "_refinement")):
            assert float(again[name]) == pytest.approx(float(value), abs=1e-6, nan_ok=True), name


@pytest.mark.parametrize("seed", sample(range(200), 6))
def test_equal_outputs_of_any_kind_give_the_same_temperature_or_one_line(seed):
    rows, labels, logits = exact_case(seed)
    labels = torch.tensor(labels)
    probs = np.array(rows, dtype=np.float64)
    changes = [
        lambda p: p,
        lambda p: p.round(2),
        lambda p: np.where(p == 0, -1e-17, p),
        lambda p: np.concatenate([0 * p[:1], p[1:]]),
        lambda p: p * np.where(np.arange(len(p)) == 0, 1.005, 1)[:, None],
        lambda p: p.astype(np.float32),
    ]
    with pytest.raises(ValueError, match="look like probabilities"):
        tune_calib.calibration_report(changes[seed % len(changes)](probs), labels)
    logits = logits.double()
    if not refinement.has_best_temperature(logits, labels):
        return
    losses = []
    for scale in (1.0, 10.0 ** np.random.default_rng(seed).uniform(-9, 9)):
        temperature = converged(scale * logits, labels)
        losses.append(_nll(scale * logits / temperature, labels))
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)
    best = minimize_scalar(
        lambda log_t: _nll(logits / np.exp(log_t), labels),
        bounds=(-3, 8), method="bounded",
    )  # fmt: skip
    assert losses[0] <= best.fun + 1e-6
