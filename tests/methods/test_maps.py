"""Right values of post-hoc maps, by hand or by other optimisers, and what they do with hard inputs.

``test_posthoc`` and ``test_parity`` test all of them further.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.optimize import minimize, minimize_scalar
from sklearn.metrics import log_loss
from torch.nn.functional import cross_entropy

from tests.methods.test_posthoc import drawn, fitted, method
from tune_calib.methods._networks import initial_layers
from tune_calib.methods.order_preserving import ascending_scores
from tune_calib.methods.pts import pts_loss
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec


class Map(NamedTuple):
    name: str
    settings: dict

    def __str__(self):
        return "-".join([self.name, *self.settings])


BOUND, UNCONVERGED = "temperature_bound", "posthoc_unconverged"
TOP = {"top_versus_all": True}
MAPS = [
    Map("histogram_toplabel", {}),
    Map("temperature", TOP),
    Map("vector", TOP),
    Map("matrix", TOP),
    Map("dirichlet", TOP),
    Map("histogram", TOP),
    Map("isotonic", TOP),
    Map("irova", {}),
    Map("irova_ts", {}),
    Map("pts", {}),
    Map("iop_diag", {}),
    Map("iop_oi", {}),
    Map("iop_op", {}),
    Map("focal_temperature", {}),
    Map("smart", {}),
]
OF_TEMPERATURES = {
    "temperature", "irova_ts", "pts", "iop_diag", "iop_oi", "iop_op", "focal_temperature", "smart"
}  # fmt: skip


def hard(kind):
    logits, labels = drawn(100, 2 if kind == "two classes" else 5)
    if kind == "a class missing":
        logits, labels = logits[labels != 0], labels[labels != 0]
    if kind == "separable":
        labels = logits.argmax(1)
    if kind == "ties":
        logits = logits.round()
    return logits, labels


@pytest.mark.parametrize("posthoc", MAPS, ids=str)
def test_hard_inputs_give_finite_numbers_and_a_flag_where_nothing_is_the_best(posthoc):
    name, settings = posthoc
    for kind in ("two classes", "a class missing", "hundred samples", "separable", "ties"):
        logits, labels = hard(kind)
        transform, flags = fitted(name, logits, labels, settings)
        changed = transform.transform(logits[None])[0]
        assert changed.isfinite().all(), kind
        assert all(value.isfinite().all() for value in transform.fitted().values()), kind
        if METHODS[name].keeps_accuracy or name in ("histogram", "isotonic"):
            assert torch.equal(changed.argmax(1), logits.argmax(1)), kind
        if kind == "separable" and name in OF_TEMPERATURES:
            assert BOUND in flags


def test_a_top_label_histogram_has_the_shares_of_its_bins():
    # Confidences .6, .7, .8, .9 of class 0, of which the first, third and fourth are right.
    first = torch.tensor([0.6, 0.7, 0.8, 0.9, 0.2], dtype=torch.float64)
    logits = torch.stack([first, 1 - first], 1).log()
    labels = torch.tensor([0, 1, 0, 0, 1])
    transform, _ = fitted("histogram_toplabel", logits, labels, {"points_per_bin": 2})
    probs = transform.transform(logits[None])[0].softmax(1)
    # The lower share would make class 1 the first; class 1 has too few predictions.
    assert probs[:, 0].tolist() == pytest.approx([0.5, 0.5, 1, 1, 0.2], abs=1e-6)


def test_top_versus_all_temperatures_are_those_of_another_optimiser():
    logits, labels = drawn(500, 5, 3.0)
    transform, _ = fitted("temperature", logits, labels, TOP)
    hits = (logits.argmax(1) == labels).numpy()

    def loss(temperature):
        confidence = (logits / temperature).softmax(1).amax(1).numpy()
        return log_loss(hits, confidence)

    best = minimize_scalar(loss, bounds=(0.5, 20), method="bounded", options={"xatol": 1e-9})
    assert float(transform.fitted()["temperature"]) == pytest.approx(best.x, rel=1e-6)


@pytest.mark.slow
def test_a_top_versus_all_map_is_not_above_that_of_another_optimiser():
    logits, labels = drawn(300, 3, 3.0)
    transform, _ = fitted("vector", logits, labels, TOP)

    def loss(scales):
        probs = torch.softmax(logits * torch.from_numpy(scales), 1)
        confidence, first = probs.max(1)
        is_right = (first == labels).numpy()
        return log_loss(is_right, confidence.numpy()) + 0.1 * ((scales - 1) ** 2).mean()

    found = loss(transform.state()["weight"][0].numpy())
    best = minimize(loss, np.full(3, 1 / 3), method="Nelder-Mead", options={"xatol": 1e-7})
    # Both may stop where the objective jumps, since a prediction changes.
    assert found <= best.fun + 5e-3


def by_adam(objective, layers, steps=1500):
    parameters = [parameter.clone().requires_grad_() for parameter in layers]
    solver = torch.optim.Adam(parameters, lr=0.01)
    for _ in range(steps):
        solver.zero_grad()
        loss = objective(parameters)
        loss.backward()
        solver.step()
    return float(objective(parameters).detach())


@pytest.mark.slow
def test_networks_of_temperatures_are_not_above_those_of_another_optimiser():
    logits, labels = drawn(300, 4, 3.0)
    transform, _ = fitted("pts", logits, labels)
    inputs = method("pts").inputs(logits)
    other = by_adam(
        lambda layers: pts_loss(logits, labels, inputs, layers, 0.0),
        initial_layers([4, 5, 5, 1], 3.0, logits),
    )
    assert float(transform.fitted()["objective"]) / 4 <= other + 3e-3


@pytest.mark.slow
def test_order_preserving_networks_are_not_above_those_of_another_optimiser():
    logits, labels = drawn(300, 4, 3.0)
    transform, flags = fitted("iop_oi", logits, labels, {"weight_decay": 0.1})
    assert UNCONVERGED not in flags
    ordered = logits.sort(dim=1, descending=True).values
    places = (ordered == logits.gather(1, labels[:, None])).long().argmax(1)

    def objective(layers):
        loss = cross_entropy(ascending_scores(ordered, ordered, layers), 3 - places)
        squares = sum(parameter.square().sum() for parameter in layers)
        return loss + 0.05 * squares

    other = by_adam(objective, initial_layers([4, 10, 10, 4], -1.0, logits))
    assert float(transform.fitted()["objective"]) <= other + 5e-3


def test_order_preserving_maps_preserve_the_order_of_all_classes():
    logits, labels = drawn(300, 6, 3.0)
    new, _ = drawn(300, 6, 20.0, seed=1)
    for name in ("pts", "smart", "iop_diag", "iop_oi", "iop_op"):
        transform, _ = fitted(name, logits, labels)
        changed = transform.transform(new[None])[0]
        assert (changed.gather(1, new.argsort(1)).diff(dim=1) > -1e-9).all(), name


@pytest.mark.parametrize("name", ["pts", "smart", "iop_diag", "iop_oi", "iop_op"])
def test_the_order_of_samples_changes_nothing_of_a_network(name):
    logits, labels = drawn(200, 4, 3.0)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    one, other = method(name), method(name)
    fit, fit_of_other = one.fit_one(logits, labels), other.fit_one(logits[order], labels[order])
    torch.testing.assert_close(
        one.apply(logits, fit.state), other.apply(logits, fit_of_other.state), rtol=0, atol=1e-9
    )


def test_focal_scaling_without_a_focus_is_temperature_scaling():
    logits, labels = drawn(500, 4, 3.0)
    transform, _ = fitted("focal_temperature", logits, labels, {"gamma": 0.0})
    probs = transform.transform(logits[None])[0].softmax(1)
    temperature = float(transform.fitted()["temperature"])
    best, _ = fitted("temperature", logits, labels)
    assert abs(temperature - float(best.fitted()["temperature"])) <= 0.05
    torch.testing.assert_close(probs, (logits / temperature).softmax(1), rtol=1e-6, atol=2e-12)


@pytest.mark.parametrize(
    "name", ["temperature", "vector", "matrix", "dirichlet", "histogram", "isotonic"]
)
def test_specs_from_before_top_versus_all_keep_their_hashes(name):
    for settings, is_named in (({}, False), (TOP, True)):
        spec = TrialSpec.build(network={}, posthoc={"method": name, "params": settings})
        assert ("top_versus_all" in spec.canonical_json()) == is_named
