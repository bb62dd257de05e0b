"""Gradients of the losses, degenerate batches, and what the stateful ones keep."""

import math
from functools import cache
from itertools import product
from typing import get_args

import pytest
import torch
from torch.nn import functional as F

from tests import support
from tune_calib.methods._base import EpochFeedback, NetworkContext
from tune_calib.spec.methods import METHODS

NAMES = [
    *("mbls", "acls", "fl", "flsd", "dfl", "brier", "ecp", "cpc", "mmce", "mmce_weighted"),
    *("mdca", "adafocal", "crl", "fedlas_ls", "fedlas_mbls"),
]
SAMPLES, CLASSES, WIDTH = 6, 4, 3


def build(name, classes=CLASSES, **params):
    info = METHODS[name]
    context = NetworkContext(classes=classes, width=WIDTH, samples=20, epochs=10, seed=0)
    method = info.implementation(info.params(**params), context)
    method.begin_epoch(0, torch.Generator().manual_seed(0))
    return method


def batch(samples=SAMPLES, classes=CLASSES, scale=1.0, dtype=torch.float64):
    chance = torch.Generator().manual_seed(3)
    logits = scale * torch.randn(samples, classes, generator=chance, dtype=dtype)
    labels = torch.randint(classes, (samples,), generator=chance)
    features = torch.randn(samples, WIDTH, generator=chance, dtype=dtype)
    return logits.requires_grad_(), labels, features, torch.arange(samples)


VARIANTS = [
    *((name, {}) for name in NAMES),
    # Of ACLS the one penalty alone: the other holds the largest logit fixed.
    ("acls", {"margin": 0.3, "neg_lambda": 0}),
    ("acls", {"margin": 0.3, "neg_lambda": 0, "positive_distance": "max_minus_min"}),
    ("mbls", {"margin": 0.3}),
    ("fl", {"gamma": 0.5}),
    ("ecp", {"entropy_reduction": "sum_classes"}),
    ("mmce_weighted", {"normalisation": "paper"}),
    ("mdca", {"pairing": "nll"}),
    ("mdca", {"pairing": "ls_wrong_only"}),
    ("crl", {"target": "entropy"}),
    ("crl", {"target": "margin"}),
    ("fedlas_mbls", {"margin": 0.3}),
    *(("fedlas_ls", {"gate": gate}) for gate in ("positive", "negative", "oracle")),
]


@pytest.mark.parametrize(("name", "params"), VARIANTS)
def test_gradients_are_those_of_finite_differences(name, params):
    method = build(name, **params).double().eval()
    logits, labels, features, indices = batch()
    if name == "crl":
        method.n_correct.copy_(torch.arange(20) * 7 % 5)
        method.max_correct.fill_(5)
    if name == "adafocal":
        method.gamma.copy_(torch.tensor([3.0, -1.5, 0.5]).repeat(5))
    assert torch.autograd.gradcheck(lambda z: method.loss(z, labels, features, indices), (logits,))


DEGENERATE = list(
    product((torch.float32, torch.float64), (0.0, 1e-6, 1.0, 30.0, 1e4), (2, 3, 5), (1, 2, 6))
)


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_degenerate_batches_are_finite(name):
    for case in DEGENERATE if support.EVERY_CASE else DEGENERATE[::5]:
        dtype, scale, classes, samples = case
        logits, drawn, features, indices = batch(samples, classes, scale, dtype)
        highest = logits.argmax(1)
        for labels in (drawn, highest, (highest + 1) % classes):
            method = build(name, classes).to(dtype)
            logits.grad = None
            loss = method.loss(logits, labels, features, indices)
            loss.backward()
            method.after_step(logits.detach(), labels, indices)
            gradients = [p.grad for p in method.parameters() if p.grad is not None]
            finite = [loss, logits.grad, *gradients, *method.state_dict().values()]
            assert all(bool(tensor.isfinite().all()) for tensor in finite), case


@pytest.mark.parametrize("gamma", [0.2, 0.5, 1.0])
def test_a_focal_gradient_vanishes_at_certainty_in_single_precision(gamma):
    method = build("adafocal", gamma_initial=gamma)
    logits = torch.tensor([[17.3, 0.0, 0.0]], requires_grad=True)
    zero = torch.zeros(1, dtype=torch.int64)
    method.loss(logits, zero, torch.zeros(1, 1), zero).backward()
    assert float(logits.grad.abs().max()) < 1e-6


def test_adafocal_moves_gamma_up_where_it_is_too_sure():
    method = build("adafocal")
    logits = batch(samples=90)[0]
    wrong = EpochFeedback(logits.detach() * 5, (logits.argmax(1) + 1) % CLASSES)
    report = method.end_epoch(0, wrong)
    assert (method.gamma > 1).all()
    assert 1 < report["adafocal/gamma_min"] <= report["adafocal/gamma_max"]
    assert torch.equal(method.upper[:-1], method.lower[1:])
    right = EpochFeedback(logits.detach() * 1e-3, logits.argmax(1))
    for epoch in range(1, 6):
        method.end_epoch(epoch, right)
    assert (method.gamma < 0).all()
    assert float(method.gamma.min()) >= method.params.gamma_min


def test_crl_counts_and_advances_as_the_paper():
    method = build("crl")
    logits, labels, _, indices = batch()
    maxima = []
    for epoch in range(4):
        method.after_step(logits.detach(), labels, indices + 4)
        method.end_epoch(epoch, None)
        maxima.append(int(method.max_correct))
    assert maxima == [1, 2, 3, 4]
    expected = torch.zeros(20, dtype=torch.int64)
    expected[4 : 4 + SAMPLES] = 4 * (logits.argmax(1) == labels).long()
    assert torch.equal(method.n_correct, expected)


def test_crl_is_cross_entropy_while_all_were_right_equally_often():
    method = build("crl")
    method.n_correct.fill_(1)
    logits, labels, features, indices = batch()
    loss = method.loss(logits, labels, features, indices)
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels))


def test_fedlas_with_beta_0_is_label_smoothing():
    logits, labels, features, indices = batch()
    loss = build("fedlas_ls", beta=0).double().loss(logits, labels, features, indices)
    smoothed = F.cross_entropy(logits, labels, label_smoothing=0.05)
    torch.testing.assert_close(loss, smoothed)


def outcome(name, params):
    """Losses before and after some epochs, and what the method then has."""
    method = build(name, **params).double()
    logits, labels, features, indices = batch(samples=18, scale=3.0)
    if name == "crl":
        method.n_correct.copy_(torch.arange(20) * 7 % 5)
        method.max_correct.fill_(5)
    values = [method.loss(logits, labels, features, indices)]
    method.after_step(logits.detach(), labels, indices)
    # Too sure of wrong classes for some epochs, then unsure of the right ones.
    sure = EpochFeedback(4 * logits.detach(), labels)
    unsure = EpochFeedback(0.01 * logits.detach(), logits.argmax(1))
    for epoch, feedback in enumerate([*[sure] * 3, *[unsure] * 12]):
        method.end_epoch(epoch, feedback)
        values += [tensor.clone() for tensor in method.state_dict().values()]
    values.append(method.loss(logits, labels, features, indices))
    return torch.cat([value.detach().double().flatten() for value in values])


def others(field, value):
    """Values of a setting besides its default, valid or not."""
    if choices := get_args(field.annotation):
        choices = [choice for choice in choices if isinstance(choice, str | bool)]
    if field.annotation is bool:
        choices = [True, False]
    if choices:
        return [choice for choice in choices if choice != value]
    return [0.37, 3, 7, 0.01] if value is None else [0.7 * value + 0.11, value + 2, 0.6 * value]


def is_valid(name, params):
    try:
        METHODS[name].params(**params)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_of_a_loss_changes_it(name):
    fields = METHODS[name].params.model_fields
    defaults = METHODS[name].params().model_dump()
    words = {key: [defaults[key], *others(field, defaults[key])] for key, field in fields.items()
             if isinstance(defaults[key], str | bool)}  # fmt: skip
    settings = [dict(zip(words, values, strict=True)) for values in product(*words.values())]
    settings = [params for params in settings if is_valid(name, params)]
    default_outcome = cache(lambda number: outcome(name, settings[number]))
    for key, field in fields.items():
        changes = product(range(len(settings)), others(field, defaults[key]))
        changed = ((number, {**settings[number], key: value}) for number, value in changes)
        assert any(
            not equal(default_outcome(number), outcome(name, params))
            for number, params in changed
            if is_valid(name, params)
        ), f"{name}: {key} changes nothing"


def equal(first, second):
    return first.shape == second.shape and torch.allclose(first, second, atol=1e-9)


def test_the_entropy_of_crl_is_divided_by_its_scale():
    logits, labels, features, indices = batch()
    parts = {}
    for scale in (1.0, 4.0, None):
        method = build("crl", target="entropy", entropy_scale=scale).double()
        # One sample was right more often, so that every other distance is 0.
        method.n_correct[0], method.max_correct = 1, torch.tensor(1)
        parts[scale] = float(method.loss(logits, labels, features, indices))
    log_probs = logits.detach().log_softmax(1)
    entropy = -(log_probs.exp() * log_probs).sum(1)
    plain = float(F.cross_entropy(logits, labels))
    for scale, loss in parts.items():
        distances = -entropy / (scale or math.log(CLASSES))
        terms = [1 - (distances[0] - distances[1]), 1 - (distances[0] - distances[-1])]
        ranking = sum(max(0.0, float(term)) for term in terms) / SAMPLES
        assert loss == pytest.approx(plain + ranking), scale


@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_mdca_smooths_the_wrong_classes_by_its_alpha(alpha):
    logits, labels, features, indices = batch()
    method = build("mdca", pairing="ls_wrong_only", alpha=alpha, beta=0.0)
    smoothing = alpha * CLASSES / (CLASSES - 1)
    wanted = F.cross_entropy(logits, labels, label_smoothing=smoothing)
    torch.testing.assert_close(method.loss(logits, labels, features, indices), wanted)
