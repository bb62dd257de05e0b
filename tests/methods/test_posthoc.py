"""Post-hoc methods on hard inputs: nothing breaks, and what cannot be fitted is flagged."""

import pytest
import torch

from tests.classifiers import POSTHOC
from tests.support import sample
from tune_calib.errors import UserError
from tune_calib.methods import _affine
from tune_calib.methods._functional import label_log_probs
from tune_calib.methods._posthoc import Fit, FittedAlone
from tune_calib.metrics.refinement import folds
from tune_calib.metrics.summary import evaluate
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import FLAGS
from tune_calib.spec.trial import TrialSpec

NAMES = POSTHOC
SETTINGS = [
    *((name, {}) for name in NAMES),
    ("temperature", {"fit": "grid_ece"}),
    ("matrix", {"off_diagonal": 0.0, "intercept": 0.0}),
    ("dirichlet", {"off_diagonal": 1.0}),
    ("dirichlet", {"intercept": 1.0}),
    ("ets", {"loss": "nll"}),
    ("histogram", {"binning": "equal_width"}),
    ("histogram", {"bins": 1}),
    ("spline", {"knots": 3}),
]
IDS = [f"{name}-{settings}" for name, settings in SETTINGS]


def drawn(samples, classes, scale=1.0, seed=0):
    """Logits (N, C) that are ``scale`` times what their labels were drawn by."""
    chance = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, generator=chance, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=chance).squeeze(1)
    return scale * logits, labels


def method(name, settings=None):
    info = METHODS[name]
    return info.implementation(info.params(**(settings or {})))


def fitted(name, logits, labels, settings=None):
    """A method of one classifier, and the flags of its fit."""
    found = method(name, settings)
    found.fit(logits[None], labels)
    flags = found.flags()
    assert flags.keys() <= FLAGS.keys()
    return found, {flag for flag, is_so in flags.items() if bool(is_so)}


def hard(kind, classes):
    logits, labels = drawn(100, classes)
    match kind:
        case "one sample":
            return logits[:1], labels[:1]
        case "fewer samples than folds":
            return logits[:3], labels[:3]
        case "a class missing":
            kept = labels != 0
            return logits[kept], labels[kept]
        case "one class alone":
            return logits, torch.zeros_like(labels)
        case "probabilities of 0 and 1":
            return 1e4 * logits, labels
        case "all right":
            return logits, logits.argmax(1)
        case "all wrong":
            return logits, logits.argmin(1)
        case "constant":
            return torch.zeros_like(logits), labels
        case "equal rows":
            return logits[:1].expand(100, -1), labels
        case "single precision":
            return logits.float(), labels
    raise KeyError(kind)


HARD = [
    "one sample",
    "fewer samples than folds",
    "a class missing",
    "one class alone",
    "probabilities of 0 and 1",
    "all right",
    "all wrong",
    "constant",
    "equal rows",
    "single precision",
]


@pytest.mark.parametrize("kind", HARD)
@pytest.mark.parametrize(("name", "settings"), sample(SETTINGS, 2))
def test_hard_inputs_give_finite_logits_and_preserve_the_accuracy(name, settings, kind):
    logits, labels = hard(kind, METHODS[name].classes or 5)
    transform, _ = fitted(name, logits, labels, settings)
    for given in (logits, *(scale * drawn(50, logits.shape[1])[0] for scale in (1e-3, 1, 1e4))):
        given = given.to(logits.dtype)
        changed = transform.transform(given[None])[0]
        assert changed.dtype == given.dtype
        assert changed.isfinite().all()
        if METHODS[name].keeps_accuracy:
            assert torch.equal(changed.argmax(1), given.argmax(1))
    assert all(value.isfinite().all() for value in transform.fitted().values())
    again = method(name, settings)
    again.load_state(transform.state())
    assert torch.equal(again.transform(given[None])[0], changed)


@pytest.mark.parametrize(("classes", "scale"), [(2, 3.0), (5, 3.0), (40, 8.0)])
def test_mean_confidence_has_no_ece_on_calib_and_keeps_the_order_of_classes(classes, scale):
    logits, labels = drawn(400, classes, scale)
    if scale == 8.0:
        logits[:, 1] = logits[:, 0] - 0.1  # a second class that would exceed a low accuracy
    transform, _ = fitted("mean_confidence", logits, labels)
    probs = transform.transform(logits[None])[0].softmax(-1)
    accuracy = (logits.argmax(-1) == labels).double().mean()
    torch.testing.assert_close(probs.amax(-1), accuracy.expand(400), rtol=0, atol=2e-6)
    values, expected = evaluate(probs.log(), labels), evaluate(logits, labels)
    assert float(values["ece"]) < 2e-6
    assert float(values["sharpness"]) < 1e-12
    assert float(values["nll"]) > float(expected["nll_refinement"])
    order = logits.argsort(-1)
    assert (probs.gather(-1, order).diff(dim=-1) > -1e-12).all()
    # The others keep their shares as far as none exceeds the predicted class.
    second = logits.scatter(-1, order[:, -1:], -torch.inf).softmax(-1).amax(-1)
    expected = torch.minimum((1 - accuracy) * second, accuracy)
    torch.testing.assert_close(probs.gather(-1, order[:, -2:-1])[:, 0], expected, rtol=0, atol=2e-6)


FULL = ("matrix", "dirichlet")  # a million entries at 1,000 classes


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", FULL)
def test_a_full_matrix_fits_a_thousand_classes(name):
    logits, labels = drawn(60, 1000)
    transform, flags = fitted(name, logits, labels)
    assert transform.transform(logits[None]).isfinite().all()
    assert "posthoc_unconverged" in flags


NO_OPTIMUM = {
    "a class missing": {"vector", "matrix", "dirichlet"},
    "all right": {"vector", "matrix", "dirichlet", "beta"},
    "one class alone": {"vector", "matrix", "dirichlet", "beta"},
}


# On a hundred samples, networks may fall further than their steps take them.
NETWORKS = {"pts", "smart", "iop_diag", "iop_oi", "iop_op"}


@pytest.mark.parametrize("kind", [*NO_OPTIMUM, None])
@pytest.mark.parametrize("name", sample([n for n in NAMES if issubclass(
    METHODS[n].implementation, FittedAlone)], 4))  # fmt: skip
def test_a_fit_without_an_optimum_is_flagged_and_an_ordinary_one_is_not(name, kind):
    classes = METHODS[name].classes or 5
    if kind == "a class missing" and classes == 2:
        return  # then there is one class alone
    if kind is not None and name in NETWORKS:
        return
    logits, labels = drawn(2000, classes, 1.5) if kind is None else hard(kind, classes)
    _, flags = fitted(name, logits, labels)
    expected = name in NO_OPTIMUM.get(kind, ())
    assert ("posthoc_unconverged" in flags) == expected


@pytest.mark.parametrize("classes", [3, 5, 10])
def test_folds_divide_every_class_evenly_whatever_the_order_and_the_names_of_classes(classes):
    in_turn = torch.arange(203) % classes
    drawn = torch.randint(classes, (203,), generator=torch.Generator().manual_seed(classes))
    for labels in (in_turn, in_turn.sort().values, drawn):
        parts = torch.stack(folds(labels))
        assert parts.sum(0).tolist() == [1] * 203
        for members in (parts, *(parts[:, labels == label] for label in range(classes))):
            counts = members.sum(1)
            assert counts.max() - counts.min() <= 1
        assert torch.equal(torch.stack(folds(classes - 1 - labels)), parts)


class Lowered(FittedAlone):
    """Takes as much as its parameter says off the logit of class 0."""

    def fit_one(self, logits, labels):
        return Fit({"offset": torch.tensor([self.params, 0.0], dtype=torch.float64)})

    def apply(self, logits, state):
        return logits - state["offset"]


# The NLL is log 2 without the offset; with labels of one class alone it is exactly as much more.
@pytest.mark.parametrize(
    ("offset", "labels", "is_harmful"),
    [
        (0.01, [0] * 100, False),  # 0.7 % more
        (0.03, [0] * 100, True),  # 2.2 % more
        (0.5, [0, 0, 0, 1, 1] * 2, False),  # 12 % more, within the noise of ten samples
        (0.5, [0, 0, 0, 1, 1] * 200, True),
        (-0.5, [0] * 100, False),
    ],
)
def test_harm_is_more_than_noise_and_more_than_a_hundredth_of_the_nll(offset, labels, is_harmful):
    found = Lowered(offset)
    found.fit(torch.zeros(1, len(labels), 2), torch.tensor(labels))
    assert found.flags()["posthoc_harms"].tolist() == [is_harmful]


@pytest.mark.parametrize("wrong", [ValueError("too few samples"), torch.nan])
def test_a_fold_that_cannot_be_judged_leaves_open_whether_the_transform_harms(wrong):
    class Fragile(Lowered):
        def fit_fold(self, logits, labels, full_fit):
            assert torch.equal(self.weights, torch.ones(len(labels)))
            if isinstance(wrong, Exception):
                raise wrong
            return Fit({"offset": torch.tensor(wrong)})

    fragile = Fragile(0.5)
    fragile.weights = torch.ones(100)
    fragile.fit(torch.zeros(1, 100, 2), torch.zeros(100, dtype=torch.long))
    raised = {name: bool(flag) for name, flag in fragile.flags().items()}
    assert raised == {"posthoc_harms": False, "posthoc_unchecked": True}
    assert len(fragile.weights) == 100
    Lowered.fit(fragile, torch.zeros(1, 1, 2), torch.zeros(1, dtype=torch.long))
    assert not bool(fragile.flags()["posthoc_unchecked"])


# A trial that is flagged for a class that is missing is fitted less exactly by steps of many.
@pytest.mark.parametrize(("kind", "within"), sample([(None, 1e-6), ("a class missing", 1e-3)], 1))
@pytest.mark.parametrize("name", sample(["vector", "matrix", "dirichlet", "svs", "sms"], 2))
def test_both_solvers_find_one_map(name, kind, within, monkeypatch):
    logits, labels = drawn(2000, 5, 1.5) if kind is None else hard(kind, 5)
    settings = {"off_diagonal": 1.0, "intercept": 1.0} if name in FULL else {}
    newton, few = fitted(name, logits, labels, settings)
    monkeypatch.setattr(_affine, "_DENSE", 0)
    other, many = fitted(name, logits, labels, settings)
    assert many == few
    own, theirs = (
        -label_log_probs(one.transform(logits[None])[0], labels).mean() for one in (newton, other)
    )
    assert float(own) == pytest.approx(float(theirs), abs=within)


@pytest.mark.parametrize("penalty", [0.0, 0.3, 30.0])
def test_the_penalty_of_a_diagonal_map_is_of_the_mean_square_of_its_intercept(penalty):
    logits, labels = drawn(300, 5, 2.0)
    logits = logits + torch.linspace(0, 1, 5, dtype=torch.float64)
    fit = _affine.regularised(logits, labels, _affine.identity(logits), _affine.EXACT, penalty)
    weight, intercept = (part.clone().requires_grad_() for part in (fit.weight, fit.intercept))
    loss = torch.nn.functional.cross_entropy(logits * weight + intercept, labels)
    (loss + penalty * intercept.square().mean()).backward()
    assert max(weight.grad.abs().max(), intercept.grad.abs().max()) < 1e-6


@pytest.mark.parametrize("name", ["vector", *FULL])
def test_a_class_that_calib_lacks_keeps_its_temperature(name):
    logits, labels = drawn(300, 5, 3.0)
    kept = labels != 2
    transform, flags = fitted(name, logits[kept], labels[kept])
    assert "posthoc_unconverged" in flags
    state = {key: values[0] for key, values in transform.state().items()}
    row = state["weight"] if name == "vector" else state["weight"].diagonal()
    temperature, _ = fitted("temperature", logits[kept], labels[kept])
    assert 1 / float(row[2]) == pytest.approx(float(temperature.fitted()["temperature"]), rel=1e-3)
    assert state["intercept"][2] == 0
    # It is not driven out: where it comes up it costs no more than it did.
    plain, mended = (
        -label_log_probs(z, labels)[~kept].mean()
        for z in (logits, transform.transform(logits[None])[0])
    )
    assert mended < 1.5 * plain


# --- beta, of two classes


def test_beta_of_more_than_two_classes_is_refused_in_one_line():
    logits, labels = drawn(50, 3)
    with pytest.raises(UserError, match="supports two classes only, got 3; use dirichlet"):
        method("beta").fit(logits[None], labels)
    slots = {"network": {}, "posthoc": {"method": "beta"}}
    with pytest.raises(UserError, match="'beta' takes 2 classes, and 'digits' has 10"):
        TrialSpec.build(**slots)


def test_beta_rises_and_its_middle_may_move():
    logits, labels = drawn(2000, 2)
    transform, _ = fitted("beta", logits + torch.tensor([0.0, 3.0]), labels)
    margins = torch.linspace(-9, 9, 100, dtype=torch.float64)
    given = torch.stack([torch.zeros_like(margins), margins], 1)
    changed = transform.transform(given[None])[0]
    assert ((changed[:, 1] - changed[:, 0]).diff() >= 0).all()
    assert METHODS["beta"].keeps_accuracy is False
    assert not torch.equal(changed.argmax(1), given.argmax(1))
