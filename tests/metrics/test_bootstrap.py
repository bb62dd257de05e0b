"""The bootstrap in one pass equals a loop over the same draws, and its intervals hold the truth."""

import pytest
import torch

from tests.metrics.test_without_bins import case
from tests.support import sample
from tune_calib.metrics import scoring
from tune_calib.metrics.bootstrap import bootstrap, draw, drawn_metrics
from tune_calib.metrics.calibration import classwise_debiased
from tune_calib.metrics.refinement import cross_fitted
from tune_calib.metrics.resampled import AS_DRAWN, Resampled
from tune_calib.metrics.samples import CalibSplit, Samples
from tune_calib.metrics.summary import evaluate
from tune_calib.spec.metrics import METRICS, Metric, metrics_of_trials

DISTANCES = [name for name in METRICS if METRICS[name].is_distance]


def as_drawn(drawn):
    return {n: values[AS_DRAWN] if n in DISTANCES else values for n, values in drawn.items()}


@pytest.mark.parametrize("ties", sample([False, True], 1))
@pytest.mark.parametrize("size", sample(zip([(1, 3), (2, 2), (40, 3), (300, 5), (500, 40)]), 3))
def test_every_metric_of_every_draw_equals_that_of_the_drawn_samples(size, ties):
    logits, labels = case(*size, ties=ties)
    calib = case(100, size[1])
    counts = draw(torch.arange(len(labels)), 12, seed=3)
    split = CalibSplit(calib[0].softmax(-1), calib[1])
    drawn = as_drawn(drawn_metrics(Resampled(logits, labels, split), counts))
    assert set(drawn) == set(metrics_of_trials())
    left = dict(zip(("nll", "brier"), cross_fitted(logits, labels), strict=True))
    for number, own in enumerate(counts):
        places = torch.arange(len(labels)).repeat_interleave(own.long())
        expected = evaluate(logits[places], labels[places], calib)
        # The temperatures of the folds are held.
        for name, values in left.items():
            rest = values[places].mean()
            expected[f"{name}_refinement"] = rest
            expected[f"{name}_calibration"] = expected[name] - rest
        for name, value in expected.items():
            assert torch.isclose(
                drawn[name][number], value, rtol=1e-9, atol=1e-12, equal_nan=True
            ), name


def test_the_bootstrap_accepts_probabilities_of_zero_and_one():
    logits, labels = case(200, 4)
    logits = 2000 * logits  # softmax is exactly 0 and 1
    counts = draw(torch.arange(len(labels)), 10, seed=0)
    drawn = as_drawn(drawn_metrics(Resampled(logits, labels), counts))
    for number, own in enumerate(counts):
        places = torch.arange(len(labels)).repeat_interleave(own.long())
        expected = evaluate(logits[places], labels[places])
        for name in ("cece", "classwise_debiased", "ece", "aece", "ks_error", "aurc"):
            assert float(drawn[name][number]) == pytest.approx(float(expected[name]), abs=1e-12)


def test_a_head_batch_has_the_intervals_of_each_classifier():
    logits, labels = case(300, 5)
    both = torch.stack([logits, logits / 2])
    together = bootstrap(both, labels, 50, calib=(both, labels))
    assert set(together) == set(metrics_of_trials())
    for k in range(2):
        alone = bootstrap(both[k : k + 1], labels, 50, calib=(both[k : k + 1], labels))
        for name, interval in together.items():
            for end in ("lower", "upper", "se"):
                values = getattr(interval, end)
                assert values.shape == (2,)
                assert float(values[k]) == pytest.approx(float(getattr(alone[name], end)[0])), name


def test_a_percentile_interval_leaves_out_a_fortieth_of_the_draws_at_each_end():
    logits, labels = case(100, 3)
    intervals = bootstrap(logits[None], labels, 50)
    for name in ("accuracy", "nll", "brier", "aurc"):
        ends = intervals[name].draws[0].quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
        assert torch.allclose(torch.cat([intervals[name].lower, intervals[name].upper]), ends), name


def test_the_seed_determines_the_draws():
    logits, labels = case(300, 5)
    first, again, other = (bootstrap(logits[None], labels, 50, seed) for seed in (0, 0, 1))
    assert first["ece"].lower == again["ece"].lower
    assert first["nll"].lower != other["nll"].lower


@pytest.mark.parametrize("scale", sample([0.5, 1.0, 2.0], 1))
@pytest.mark.parametrize("ties", [False, True])
def test_what_is_printed_lies_within_its_interval(scale, ties):
    logits, labels = case(400, 5, scale, ties)
    values = evaluate(logits, labels)
    intervals = bootstrap(logits[None], labels, 200)
    for name in DISTANCES:
        assert intervals[name].lower <= values[name] + 1e-12, name
        assert values[name] <= intervals[name].upper + 1e-12, name
    for name, interval in intervals.items():
        assert METRICS[name].lower <= interval.lower <= interval.upper <= METRICS[name].upper, name


@pytest.mark.slow
def test_the_interval_of_a_calibrated_classifier_holds_zero():
    hits = dict.fromkeys(DISTANCES, 0)
    for seed in range(40):
        chance = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(800, 4, generator=chance, dtype=torch.float64)
        labels = torch.multinomial(logits.softmax(-1), 1, generator=chance).flatten()
        intervals = bootstrap(logits[None], labels, 100, seed)
        for name in DISTANCES:
            hits[name] += bool(intervals[name].lower == 0)
    # Of 40 intervals at 95 % 38 hold it; below 33 is less likely than one in a thousand.
    assert min(hits.values()) >= 33, hits


@pytest.mark.slow
def test_the_interval_of_an_over_confident_classifier_holds_the_truth_and_not_zero():
    chance = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(200_000, 4, generator=chance, dtype=torch.float64)
    labels = torch.multinomial(true.softmax(-1), 1, generator=chance).flatten()
    truth = evaluate(2 * true[:100_000], labels[:100_000])
    names = ("ece", "aece", "o_ece", "ks_error", "smooth_ece", "sweep_ece", "debiased_ece", "cece")
    hits = dict.fromkeys(names, 0)
    for part in range(40):
        own = slice(100_000 + 2000 * part, 102_000 + 2000 * part)
        intervals = bootstrap(2 * true[None, own], labels[own], 100, part)
        for name in names:
            assert intervals[name].lower > 0
            hits[name] += bool(intervals[name].lower <= truth[name] <= intervals[name].upper)
    assert min(hits.values()) >= 33, hits


@pytest.mark.slow
@pytest.mark.parametrize(("spread", "boost", "scale"), [(1, 5, 1.5), (2, 0, 1.3)])
def test_the_interval_of_the_debiased_classwise_error_holds_the_truth(spread, boost, scale):
    chance = torch.Generator().manual_seed(0)

    def draw_samples(count):
        true = spread * torch.randn(count, 10, generator=chance, dtype=torch.float64)
        favoured = torch.randint(10, (count,), generator=chance)
        true[torch.arange(count), favoured] += boost
        labels = torch.multinomial(true.softmax(-1), 1, generator=chance).flatten()
        return scale * true, labels

    logits, labels = draw_samples(500_000)
    truth = classwise_debiased(Samples(logits.softmax(-1), labels))
    hits = 0
    for seed in range(40):
        logits, labels = draw_samples(2000)
        intervals = bootstrap(logits[None], labels, 100, seed)["classwise_debiased"]
        hits += bool(intervals.lower <= truth <= intervals.upper)
    # Of 40 intervals at 95 % 38 hold it; below 34 is less likely than one in a hundred.
    assert hits >= 34


def test_a_metric_of_a_plug_in_has_an_interval_too(monkeypatch):
    def half_wrong(logits, labels):
        return (logits.argmax(-1) != labels).double().mean() / 2

    own = Metric("half_wrong", "Half", "min", "fraction", compute=half_wrong)
    monkeypatch.setitem(METRICS._records, own.name, own)
    logits, labels = case(100, 3)
    intervals = bootstrap(logits[None], labels, 30)
    assert float(intervals[own.name].lower) == pytest.approx(
        (1 - float(intervals["accuracy"].upper)) / 2
    )


def test_intervals_of_calibration_parts_are_cut_at_zero():
    chance = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(20, 3, generator=chance, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(-1), 1, generator=chance).flatten()
    intervals = bootstrap(logits[None], labels, 30)
    for name in ("nll_calibration", "brier_calibration"):
        # Of few samples of a calibrated classifier, the temperatures of the folds do harm.
        assert float(intervals[name].draws[0].quantile(0.975)) < 0
        assert float(intervals[name].lower) < 0 == float(intervals[name].upper)


NEW = {
    "difference": lambda samples: samples.mean_difference(scoring.losses, scoring.confidences),
    "among": lambda samples: samples.mean_among(scoring.losses, hits=False),
    "error": lambda samples: samples.standard_error(scoring.losses),
}


@pytest.mark.parametrize("name", NEW)
def test_a_metric_of_values_that_no_other_metric_needs_has_an_interval(name, monkeypatch):
    monkeypatch.setattr(scoring, name, NEW[name], raising=False)
    record = Metric(name, "New", "min", "score", -10.0, 10.0, module="scoring")
    monkeypatch.setitem(METRICS._records, name, record)
    monkeypatch.setitem(METRICS._origins, name, None)
    logits, labels = case(60, 3)
    counts = draw(torch.arange(len(labels)), 5, seed=0)
    drawn = bootstrap(logits[None], labels, resamples=5)[name].draws[0]
    for value, weights in zip(drawn, counts, strict=True):
        places = torch.arange(60).repeat_interleave(weights.long())
        assert torch.isclose(value, evaluate(logits[places], labels[places])[name])
