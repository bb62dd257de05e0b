"""Post-hoc methods against programs of others: probmetrics and scikit-learn."""

import importlib
import logging
import warnings

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from tests.methods.test_posthoc import drawn, fitted
from tests.support import sample

SIZES = [(500, 3), (3000, 10)]


def of_probmetrics(name):
    """A class of probmetrics, which warns as it is imported."""
    logging.getLogger("probmetrics").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(importlib.import_module("probmetrics.calibrators"), name)


def probabilities(method, logits):
    return method.transform(logits[None])[0].softmax(1).numpy()


def of_labels(probs, labels):
    return probs[torch.arange(len(labels)), labels]


def case(samples, classes, kind="random"):
    """Logits to fit on, labels, and others to compare on."""
    logits, labels = drawn(samples, classes, 2.0)
    logits = logits + torch.linspace(0, 1, classes, dtype=torch.float64)
    if kind == "saturated":
        logits = 40 * logits
    if kind == "a class missing":
        logits, labels = logits[labels != 0], labels[labels != 0]
    return logits, labels, drawn(200, classes, 2.0, seed=1)[0]


@pytest.mark.parametrize("kind", ["random", "saturated", "a class missing"])
@pytest.mark.parametrize("size", SIZES)
def test_the_temperature_is_that_of_probmetrics(size, kind):
    logits, labels, new = case(*size, kind)
    oracle = of_probmetrics("TemperatureScalingCalibrator")(max_bisection_steps=50)
    # By its torch side: from probabilities it would not see what is saturated.
    from probmetrics.distributions import CategoricalLogits

    oracle.fit_torch(CategoricalLogits(logits), labels)
    transform, _ = fitted("temperature", logits, labels)
    expected = (new * float(oracle.invtemp_)).softmax(1)
    assert probabilities(transform, new) == pytest.approx(expected.numpy(), abs=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_vector_scaling_is_not_above_that_of_probmetrics(size):
    logits, labels, new = case(*size)
    oracle = of_probmetrics("VectorScalingCalibrator")()
    from probmetrics.distributions import CategoricalLogits

    oracle.fit_torch(CategoricalLogits(logits), labels)
    transform, flags = fitted("vector", logits, labels)
    assert not flags
    ours, theirs = (
        -values.log_softmax(1)[torch.arange(len(labels)), labels].mean()
        for values in (transform.transform(logits[None])[0], logits / oracle.temp_ + oracle.bias_)
    )
    assert float(ours) == pytest.approx(float(theirs), abs=1e-6)
    assert ours <= theirs + 1e-12
    expected = (new / oracle.temp_ + oracle.bias_).softmax(1)
    assert probabilities(transform, new) == pytest.approx(expected.numpy(), abs=2e-3)


@pytest.mark.parametrize("size", sample(zip(SIZES), 1))
@pytest.mark.parametrize("name", ["matrix", "dirichlet"])
def test_a_matrix_without_penalties_is_the_logistic_regression_of_scikit_learn(name, size):
    logits, labels, new = case(*size)
    transform, flags = fitted(name, logits, labels, {"off_diagonal": 0.0, "intercept": 0.0})
    assert not flags
    inputs, others = ((z if name == "matrix" else z.log_softmax(1)).numpy() for z in (logits, new))
    oracle = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(inputs, labels)
    assert probabilities(transform, new) == pytest.approx(oracle.predict_proba(others), abs=5e-4)


@pytest.mark.parametrize("penalties", [(1.0, 1.0), (1e4, 1e-2), (1e-2, 1e2)])
@pytest.mark.parametrize("name", ["matrix", "dirichlet"])
def test_the_published_objective_with_odir_has_no_slope_by_autograd(name, penalties):
    logits, labels, _ = case(1000, 5)
    settings = dict(zip(("off_diagonal", "intercept"), penalties, strict=True))
    transform, flags = fitted(name, logits, labels, settings)
    assert not flags
    state = transform.state()
    weight, bias = (state[key][0].clone().requires_grad_() for key in ("weight", "intercept"))
    inputs = logits if name == "matrix" else logits.log_softmax(1)
    loss = torch.nn.functional.cross_entropy(inputs @ weight.T + bias, labels)
    off = weight - torch.diag(weight.diagonal())
    loss = loss + penalties[0] * off.square().sum() / 20 + penalties[1] * bias.square().mean()
    loss.backward()
    assert max(weight.grad.abs().max(), bias.grad.abs().max()) < 1e-4


@pytest.mark.parametrize("kind", sample(["random", "saturated", "a class missing"], 2))
@pytest.mark.parametrize("size", sample(zip([*SIZES, (12, 4), (300, 100)]), 2))
@pytest.mark.parametrize(("name", "oracle"), [("svs", "SVSCalibrator"), ("sms", "SMSCalibrator")])
def test_structured_scaling_is_that_of_probmetrics(name, oracle, size, kind):
    logits, labels, new = case(*size, kind)
    theirs = of_probmetrics(oracle)()
    theirs.fit(logits.softmax(1).numpy(), labels.numpy())
    # It takes probabilities in single precision: one below 1e-38 is that.
    lowest = np.log(np.finfo(np.float32).tiny)
    transform, flags = fitted(name, logits.log_softmax(1).clamp_min(lowest), labels)
    assert "posthoc_unconverged" not in flags
    expected = theirs.predict_proba(new.softmax(1).numpy())
    # Its solver stops earlier.
    assert probabilities(transform, new) == pytest.approx(expected, abs=5e-3)


@pytest.mark.parametrize("kind", ["random", "a class missing"])
@pytest.mark.parametrize("size", [*SIZES, (12, 4)])
@pytest.mark.parametrize(("loss", "theirs"), [("brier", "mse"), ("nll", "ce")])
def test_the_weights_of_ets_are_not_above_those_of_probmetrics(loss, theirs, size, kind):
    logits, labels, _ = case(*size, kind)
    oracle = of_probmetrics("ETSCalibrator")(loss=theirs)
    oracle.fit(logits.softmax(1).numpy(), labels.numpy())
    transform, _ = fitted("ets", logits, labels, {"loss": loss})
    expected = torch.from_numpy(oracle.predict_proba(logits.softmax(1).numpy()))
    probs = torch.from_numpy(probabilities(transform, logits))

    def value(p):
        if loss == "nll":
            return float(-of_labels(p, labels).log().mean())
        return float((p - torch.nn.functional.one_hot(labels, p.shape[1])).square().sum(1).mean())

    assert value(probs) <= value(expected) + 1e-6
    if len(labels) > 100:
        assert value(probs) == pytest.approx(value(expected), abs=1e-3)


@pytest.mark.parametrize(
    ("seed", "scale", "noise", "parts"),
    [
        (3, 3.0, 0.3, (True, True, True)),
        (1, 1.0, 0.6, (True, True, False)),
        (0, 3.0, 0.3, (True, False, True)),
        (3, 0.5, 0.5, (False, True, True)),
        (4, 0.5, 0.5, (True, False, False)),
        (17, 1.0, 0.6, (False, False, True)),
    ],
)
def test_the_weights_of_ets_are_the_best_whichever_parts_they_leave_out(seed, scale, noise, parts):
    logits, labels = drawn(30, 3, scale, seed)
    chance = torch.Generator().manual_seed(seed)
    is_noise = torch.rand(30, generator=chance) < noise
    labels = torch.where(is_noise, torch.randint(3, (30,), generator=chance), labels)
    state = {key: values[0] for key, values in fitted("ets", logits, labels)[0].state().items()}
    assert tuple((state["weights"] > 1e-9).tolist()) == parts
    scaled, plain = (logits / state["temperature"]).softmax(1), logits.softmax(1)
    mixed_parts = torch.stack([scaled, plain, torch.full_like(plain, 1 / 3)])
    corners = [(a, b, 50 - a - b) for a in range(51) for b in range(51 - a)]
    tried = torch.tensor([*corners, (0, 0, 0)], dtype=torch.float64) / 50
    tried[-1] = state["weights"]
    errors = torch.einsum("wk,knc->wnc", tried, mixed_parts)
    errors -= torch.nn.functional.one_hot(labels, 3)
    scores = errors.square().sum(2).mean(1)
    assert scores[-1] <= scores[:-1].min() + 1e-12


@pytest.mark.parametrize("kind", sample(["random", "saturated", "a class missing"], 2))
@pytest.mark.parametrize("size", sample(zip([*SIZES, (12, 4), (300, 100)]), 2))
def test_isotonic_curves_are_those_of_scikit_learn(size, kind):
    logits, labels, new = case(*size, kind)
    transform, _ = fitted("isotonic", logits, labels)
    probs, others = logits.softmax(1).numpy(), new.softmax(1).numpy()
    curves = [
        IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        .fit(probs[:, k], (labels == k).numpy())
        .predict(others[:, k])
        for k in range(size[1])
    ]
    expected = np.stack(curves, 1)
    total = expected.sum(1, keepdims=True)
    expected = np.where(total > 0, expected / np.maximum(total, 1e-300), 1 / size[1])
    assert probabilities(transform, new) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["random", "saturated", "a class missing"])
@pytest.mark.parametrize("size", [*SIZES, (12, 4), (300, 100)])
def test_the_curve_of_all_classes_is_that_of_scikit_learn(size, kind):
    logits, labels, new = case(*size, kind)
    transform, _ = fitted("irm", logits, labels)
    targets = torch.nn.functional.one_hot(labels, size[1])
    curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
    curve.fit(logits.softmax(1).flatten().numpy(), targets.flatten().numpy())
    probs = new.softmax(1).numpy()
    expected = curve.predict(probs.ravel()).reshape(probs.shape) + 1e-9 * probs
    expected /= expected.sum(1, keepdims=True)
    assert probabilities(transform, new) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("binning", "strategy"), [("equal_width", "uniform"), ("equal_mass", "quantile")]
)
def test_histograms_are_those_of_probmetrics(binning, strategy):
    logits, labels, new = case(5000, 4)
    transform, _ = fitted("histogram", logits, labels, {"binning": binning, "bins": 8})
    shares = []
    for k in range(4):
        oracle = of_probmetrics("BinaryHistogramBinningCalibrator")(8, strategy)
        pairs = [
            np.stack([1 - p, p], 1) for p in (z.softmax(1)[:, k].numpy() for z in (logits, new))
        ]
        oracle.fit(pairs[0], (labels == k).long().numpy())
        shares.append(oracle.predict_proba(pairs[1])[:, 1])
    expected = np.stack(shares, 1)
    expected /= expected.sum(1, keepdims=True)
    assert probabilities(transform, new) == pytest.approx(expected, abs=1e-6)


def test_an_empty_bin_has_its_centre():
    logits, labels = drawn(50, 2)
    transform, _ = fitted("histogram", 0.01 * logits, labels, {"binning": "equal_width", "bins": 4})
    # Probabilities on calib are near 1/2: the outer bins are empty.
    probs = torch.tensor([[0.05, 0.95]], dtype=torch.float64)
    assert probabilities(transform, probs.log()) == pytest.approx(np.array([[0.125, 0.875]]))


@pytest.mark.parametrize("size", [*SIZES, (12, 4), (300, 100)])
def test_splines_of_the_top_label_are_those_of_probmetrics(size):
    logits, labels, new = case(*size)
    transform, _ = fitted("spline", logits, labels)
    oracle = of_probmetrics("CDFSplineCalibrator")()
    (peaks, named), (others, first) = (z.softmax(1).max(1) for z in (logits, new))
    oracle.fit(torch.stack([1 - peaks, peaks], 1).numpy(), (named == labels).long().numpy())
    expected = oracle.predict_proba(torch.stack([1 - others, others], 1).numpy())[:, 1]
    top = probabilities(transform, new)[np.arange(len(new)), first.numpy()]
    # Where theirs is below what the second class would have, the first one would not be first.
    second = new.softmax(1).topk(2).values[:, 1] / (1 - others)
    is_kept = expected > (second / (1 + second)).numpy()
    assert top[is_kept] == pytest.approx(expected[is_kept].clip(0, 1), abs=1e-4)
    assert (top[~is_kept] >= expected[~is_kept]).all()


@pytest.mark.parametrize("seed", range(3))
def test_beta_is_the_logistic_regression_of_scikit_learn(seed):
    logits, labels = drawn(2000, 2, 2.0, seed)
    logits = logits + torch.tensor([0.0, 0.5])
    transform, flags = fitted("beta", logits, labels)
    assert not flags
    log_probs = logits.log_softmax(1)
    features = torch.stack([log_probs[:, 1], -log_probs[:, 0]], 1).numpy()
    oracle = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(features, labels)
    # Its weights are positive here, so that the bounds of the method are not met.
    assert (oracle.coef_ > 0).all()
    assert probabilities(transform, logits) == pytest.approx(
        oracle.predict_proba(features), abs=1e-5
    )


def test_a_weight_of_beta_that_would_be_negative_is_dropped():
    chance = torch.Generator().manual_seed(0)
    margins = 3 * torch.randn(4000, generator=chance, dtype=torch.float64)
    # Of probabilities near 1 fewer are of the second class: without bounds a weight is negative.
    truth = torch.sigmoid(margins.clamp(max=0.0) - margins.clamp(min=0.0))
    labels = torch.bernoulli(truth, generator=chance).long()
    logits = torch.stack([torch.zeros_like(margins), margins], 1)
    transform, flags = fitted("beta", logits, labels)
    assert "posthoc_unconverged" not in flags
    weights = transform.fitted()
    assert min(float(weights["a"]), float(weights["b"])) == 0
    name = "a" if float(weights["a"]) > 0 else "b"
    column = logits.log_softmax(1)[:, 1] if name == "a" else -logits.log_softmax(1)[:, 0]
    oracle = LogisticRegression(C=np.inf, tol=1e-10).fit(column[:, None].numpy(), labels)
    assert float(weights[name]) == pytest.approx(float(oracle.coef_[0, 0]), rel=1e-3)
