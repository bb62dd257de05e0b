"""Metrics of ranks, smooth ECE, parts of proper scores and conformal sets, by oracles."""

import calibration as kumar
import numpy as np
import pytest
import relplot
import torch
from scipy.optimize import minimize_scalar
from scipy.stats import norm
from sklearn.metrics import log_loss, roc_auc_score

from tests.support import sample
from tune_calib.metrics import binning, calibration, conformal, refinement
from tune_calib.metrics.summary import evaluate


def case(samples=600, classes=5, scale=1.5, ties=False):
    """Logits (N, C) that are over-confident by a factor, and labels drawn from those that are not.

    With ties most confidences are equal to many others, and some are exactly 1.
    """
    chance = torch.Generator().manual_seed(samples + classes)
    true = 2 * torch.randn(samples, classes, generator=chance, dtype=torch.float64)
    labels = torch.multinomial(true.softmax(-1), 1, generator=chance).flatten()
    logits = scale * true
    return (logits.round().clamp(-1, 1) * 20 if ties else logits), labels


def top(logits, labels):
    confidence, predicted = logits.softmax(-1).max(-1)
    return confidence.numpy(), (predicted == labels).double().numpy()


def smooth_at(over, width):
    """The smooth ECE at a given bandwidth, from mean differences on the grid."""
    return float(
        calibration.smoothed(calibration.cosine_transform(over), torch.full_like(over[0], width))
    )


SIZES = [(600, 5), (1003, 3), (2000, 30)]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("samples", range(350, 362))
def test_one_classifier_has_the_digits_that_it_has_in_a_batch(samples, ties):
    logits, labels = case(samples, ties=ties)
    calib = case(samples + 1, ties=ties)
    alone = evaluate(logits, labels, calib)
    batch = evaluate(logits[None], labels, (calib[0][None], calib[1]))
    assert {name: float(v) for name, v in alone.items()} == pytest.approx(
        {name: float(v) for name, v in batch.items()}, rel=0, abs=0, nan_ok=True
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [0.7, 1.0, 2.0])
def test_debiased_ece_equals_the_code_of_its_authors(size, scale):
    logits, labels = case(*size, scale=scale)
    probs = logits.softmax(-1)
    theirs = kumar.lower_bound_scaling_top_ce(probs.numpy(), labels.numpy())
    values = evaluate(logits, labels)
    assert float(values["debiased_ece"]) == pytest.approx(theirs, abs=1e-9)
    theirs = kumar.lower_bound_scaling_ce(
        probs.numpy(), labels.numpy(), binning_scheme=kumar.utils.get_equal_prob_bins
    )
    assert float(values["classwise_debiased"]) == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", sample([0.7, 1.0, 2.0], 1))
def test_smooth_ece_equals_relplot(monkeypatch, size, scale):
    # Its grid has the point at 1 once, though its mirror image is there too: confidences within a
    # thousandth of 1 count less than they should. By the definition they count whole.
    monkeypatch.setattr(relplot.config, "smECE_mesh_pts", 2000)
    logits, labels = case(*size, scale=scale)
    confidence, correct = top(logits, labels)
    theirs = relplot.smECE(confidence, correct)
    error = float(evaluate(logits, labels)["smooth_ece"])
    assert error == pytest.approx(theirs, rel=0.05, abs=1e-3)
    over = binning.on_grid(*map(torch.from_numpy, (confidence, confidence - correct)))
    for width in (0.02, 0.1):
        error = smooth_at(over / len(labels), width)
        theirs = relplot.smECE_sigma(confidence, correct, width)
        assert error == pytest.approx(theirs, rel=0.05)
        if size == SIZES[0]:  # of more samples the kernels fill memory
            assert error == pytest.approx(integrated(confidence, correct, width), rel=2e-3)


def integrated(confidence, correct, width):
    """The smoothed, absolute difference by its definition: a Gaussian, mirrored at 0 and 1."""
    points = (np.arange(2000) + 0.5) / 2000
    centres = [turn + sign * confidence for turn in (-2, 0, 2) for sign in (1, -1)]
    kernels = sum(norm.pdf(points[:, None], centre, width) for centre in centres)
    return np.abs(kernels @ (confidence - correct) / len(correct)).mean()


@pytest.mark.parametrize("scale", [0.7, 1.0, 2.0])
def test_the_width_of_smooth_ece_equals_the_error(scale):
    logits, labels = case(scale=scale)
    error = float(evaluate(logits, labels)["smooth_ece"])
    confidence, correct = map(torch.from_numpy, top(logits, labels))
    over = binning.on_grid(confidence, confidence - correct) / len(labels)
    assert smooth_at(over, error) == pytest.approx(error, abs=1e-9)


@pytest.mark.parametrize("size", SIZES)
def test_ranks_without_ties_equal_a_loop(size):
    logits, labels = case(*size)
    values, (confidence, correct) = evaluate(logits, labels), top(logits, labels)
    order = np.argsort(confidence)
    sums = np.cumsum((confidence - correct)[order]) / len(labels)
    assert float(values["ks_error"]) == pytest.approx(np.abs(sums).max())
    numbers = np.arange(1, len(labels) + 1)
    wrong = 1 - correct
    area = (np.cumsum(wrong[order[::-1]]) / numbers).mean()
    least = (np.cumsum(np.sort(wrong)) / numbers).mean()
    assert float(values["aurc"]) == pytest.approx(area)
    assert float(values["e_aurc"]) == pytest.approx(area - least)


@pytest.mark.parametrize("size", SIZES)
def test_sweep_ece_equals_a_loop(size):
    logits, labels = case(*size)
    confidence, correct = top(logits, labels)
    order = np.argsort(confidence)
    expected = abs((confidence - correct).mean())
    for bins in range(2, len(labels)):
        cut = [np.array_split(values[order], bins) for values in (confidence, correct)]
        if (np.diff([part.mean() for part in cut[1]]) < 0).any():
            break
        expected = sum(abs((a - b).sum()) for a, b in zip(*cut, strict=True)) / len(labels)
    assert bins > 3
    assert float(evaluate(logits, labels)["sweep_ece"]) == pytest.approx(expected)


@pytest.mark.parametrize("ties", [False, True])
def test_error_auroc_equals_scikit_learn(ties):
    logits, labels = case(ties=ties)
    confidence, correct = top(logits, labels)
    auroc = float(evaluate(logits, labels)["error_auroc"])
    # Rounding would divide equal confidences.
    assert auroc == pytest.approx(roc_auc_score(correct, confidence.round(12)))


def test_ranks_of_equal_confidences_average_over_their_orders():
    logits, labels = case(samples=300, ties=True)
    confidence, correct = top(logits, labels)
    assert len(np.unique(confidence)) < 50
    chance = np.random.default_rng(0)
    areas = []
    for _ in range(4000):
        mixed = chance.permutation(len(labels))
        order = mixed[np.argsort(-confidence[mixed], kind="stable")]
        areas.append((np.cumsum(1 - correct[order]) / np.arange(1, len(labels) + 1)).mean())
    error = np.std(areas) / len(areas) ** 0.5
    aurc = float(evaluate(logits, labels)["aurc"])
    assert abs(aurc - np.mean(areas)) < 4 * error


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("is_easy", [False, True])
def test_generalised_risk_and_coverage_equal_a_loop_over_pairs(ties, is_easy):
    logits, labels = case(samples=200, ties=ties)
    if is_easy:
        sure = logits.softmax(-1).amax(-1) > 0.95
        labels[sure] = logits[sure].argmax(-1)
    confidence, correct = top(logits, labels)
    confidence = confidence.round(12)  # rounding would divide equal confidences
    pairs, coverages = 0.0, [0.0]
    for threshold, right in zip(confidence, correct, strict=True):
        accepted = confidence >= threshold
        if (1 - correct)[accepted].mean() <= 0.05:
            coverages.append(accepted.mean())
        # An error at least as confident as another sample is in its generalised risk.
        if not right:
            pairs += (confidence < threshold).sum() + (confidence == threshold).sum() / 2
    values = evaluate(logits, labels)
    assert float(values["augrc"]) == pytest.approx(pairs / len(labels) ** 2)
    assert float(values["coverage_at_risk"]) == pytest.approx(max(coverages))
    assert max(coverages) > 0 or not is_easy
    wrong = 1 - float(values["accuracy"])
    area = (1 - float(values["error_auroc"])) * wrong * (1 - wrong) + wrong**2 / 2
    assert float(values["augrc"]) == pytest.approx(area)


@pytest.mark.parametrize(("samples", "errors"), [(20, 1), (40, 2), (60, 3)])
def test_a_risk_of_exactly_five_percent_is_covered(samples, errors):
    confidence = torch.linspace(0.9, 0.6, samples, dtype=torch.float64)
    logits = torch.stack([confidence, 1 - confidence], 1).log()
    labels = torch.zeros(samples, dtype=torch.long)
    labels[-errors:] = 1
    assert float(evaluate(logits, labels)["coverage_at_risk"]) == 1
    labels[-errors - 1] = 1  # one error too many
    expected = (samples - errors - 1 + (errors - 1)) / samples
    assert float(evaluate(logits, labels)["coverage_at_risk"]) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("ties", [False, True])
def test_no_metric_but_those_of_folds_depends_on_the_order_of_samples(ties):
    logits, labels = case(ties=ties)
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    scores, after = evaluate(logits, labels), evaluate(logits[mixed], labels[mixed])
    for name, value in scores.items():
        if not name.endswith(("_calibration", "_refinement")):
            assert float(after[name]) == pytest.approx(float(value), abs=1e-12), name


def test_parts_of_scores_are_of_the_temperature_of_the_other_folds():
    logits, labels = case()
    held = np.zeros(len(labels))
    # Classes follow each other in the order of their first samples.
    order = sorted(range(len(labels)), key=lambda place: labels.tolist().index(labels[place]))
    for fold in range(5):
        fold_mask = np.isin(np.arange(len(labels)), order[fold::5])
        rest = torch.from_numpy(~fold_mask)

        def loss(log_t, rest=rest):
            return log_loss(labels[rest], (logits[rest] / np.exp(log_t)).softmax(-1).numpy())

        best = np.exp(minimize_scalar(loss, bounds=(-4, 4), method="bounded").x)
        probs = (logits[torch.from_numpy(fold_mask)] / best).softmax(-1).numpy()
        held[fold_mask] = -np.log(probs[np.arange(fold_mask.sum()), labels.numpy()[fold_mask]])
    values = evaluate(logits, labels)
    assert float(values["nll_refinement"]) == pytest.approx(held.mean(), abs=1e-6)
    assert float(values["nll_calibration"]) == pytest.approx(
        float(values["nll"]) - held.mean(), abs=1e-6
    )
    # Nearly what a new temperature of an over-confident classifier would not change.
    again = evaluate(logits / 3, labels)
    for name in ("nll_refinement", "brier_refinement"):
        assert float(again[name]) == pytest.approx(float(values[name]), rel=1e-6)
    assert float(values["nll_calibration"]) > 0.02


def test_refinement_is_that_of_shuffled_samples_where_labels_come_in_turn():
    chance = torch.Generator().manual_seed(0)
    labels = torch.arange(1000) % 5
    logits = torch.randn(1000, 5, generator=chance, dtype=torch.float64)
    logits += 1.2 * torch.nn.functional.one_hot(labels)
    logits[:, 0] *= 4  # each class has a temperature of its own
    mixed = torch.randperm(1000, generator=chance)
    in_turn, shuffled = evaluate(logits, labels), evaluate(logits[mixed], labels[mixed])
    # Folds of one class each gave 1.322 instead of 1.308.
    assert float(in_turn["nll_refinement"]) == pytest.approx(
        float(shuffled["nll_refinement"]), abs=1e-3
    )


@pytest.mark.parametrize("scale", [1e-3, 1e9])
def test_the_parts_of_scores_do_not_depend_on_the_scale_of_the_logits(scale):
    logits, labels = case(300)
    expected, value = (refinement.cross_fitted(s * logits, labels)[0].mean() for s in (1, scale))
    assert float(value) == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("samples", [40, 3000])  # fewer and more than those of the first estimate
def test_refined_nll_is_that_of_the_best_temperature_of_every_classifier(samples):
    logits, labels = case(samples)
    right = 20 * torch.nn.functional.one_hot(labels, 5).double()  # T = 0 would be the best
    batch = torch.stack([logits, 30 * logits, 0.01 * logits, right])
    refined = refinement.refined_nll(batch, labels)
    best = minimize_scalar(lambda t: log_loss(labels, (logits / t).softmax(-1)), bounds=(0.5, 5))
    assert refined.tolist() == pytest.approx([best.fun] * 3 + [0.0], abs=2e-5)
    for classifier, value in zip(batch, refined, strict=True):
        assert torch.equal(refinement.refined_nll(classifier[None], labels)[0], value)


def test_an_unbounded_temperature_stays_in_its_range():
    logits = torch.eye(4, dtype=torch.float64).repeat(5, 1)
    labels = torch.arange(4).repeat(5)
    inverse = float(refinement.inverse_temperature(logits, labels))
    # The NLL falls until it is 0 to rounding.
    assert 30 < inverse <= 100
    assert float(refinement.scores(inverse * logits, labels)[0].mean()) < 1e-12
    assert float(refinement.inverse_temperature(-logits, labels)) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("classes", [3, 50])
def test_conformal_sets_cover_nine_of_ten(classes):
    logits, labels = case(8000, classes)
    parts = [(logits[part], labels[part]) for part in (slice(0, 4000), slice(4000, 8000))]
    values = evaluate(*parts[0], calib=parts[1])
    assert float(values["conformal_coverage"]) == pytest.approx(0.9, abs=0.02)
    limit = conformal.threshold(parts[1][0].softmax(-1), parts[1][1])
    scores = 1 - parts[1][0].softmax(-1).gather(1, parts[1][1][:, None]).flatten()
    # Of n + 1 samples at least nine tenths lie at or below it, whatever the last one is.
    assert int((scores <= limit).sum()) == int(np.ceil(0.9 * 4001))
    sizes = (1 - parts[0][0].softmax(-1) <= limit).sum(-1).double()
    assert float(values["conformal_size"]) == pytest.approx(float(sizes.mean()))


def test_few_calib_samples_give_conformal_sets_of_all_classes():
    logits, labels = case(8, 5)
    values = evaluate(logits, labels, calib=(logits, labels))
    assert float(values["conformal_size"]) == 5
    assert float(values["conformal_coverage"]) == 1


@pytest.mark.parametrize("is_right", [True, False])
@pytest.mark.parametrize("samples", [1, 2, 40])
@pytest.mark.parametrize("classes", [2, 5])
def test_metrics_are_defined_if_all_or_no_samples_are_right(is_right, samples, classes):
    logits, _ = case(samples, classes)
    best = logits.argmax(-1)
    labels = best if is_right else (best + 1) % classes
    values = {name: float(value) for name, value in evaluate(logits, labels).items()}
    gap = abs(values["confidence_gap"])
    # All gaps have one sign: every distance between sums is that of the means.
    for name in ("ks_error", "sweep_ece", "smooth_ece", "ece"):
        assert values[name] == pytest.approx(gap, abs=1e-9), name
    assert values["aurc"] == pytest.approx(0 if is_right else 1)
    assert values["e_aurc"] == pytest.approx(0, abs=1e-12)
    assert np.isnan(values["error_auroc"])
    assert np.isnan(values["entropy_wrong" if is_right else "entropy_right"])
    assert np.isfinite(values["entropy_right" if is_right else "entropy_wrong"])


def test_one_class_is_always_right_and_calibrated():
    values = evaluate(torch.zeros(7, 1, dtype=torch.float64), torch.zeros(7, dtype=torch.long))
    for name in ("debiased_ece", "ks_error", "smooth_ece", "sweep_ece", "classwise_debiased"):
        assert float(values[name]) == 0
