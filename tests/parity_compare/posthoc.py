"""Post-hoc maps against the authors' numbers."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, cross_entropy

from tests.parity_compare import close, compared, tensor
from tune_calib.methods import _affine
from tune_calib.methods._affine import Affine, Ridge, top_versus_all_objective
from tune_calib.methods._networks import Layers
from tune_calib.methods.focal_temperature import best_temperature, focal_log_probs, focal_nll
from tune_calib.methods.order_preserving import ascending_scores, integral, positive_slopes
from tune_calib.methods.pts import pts_loss, pts_temperatures
from tune_calib.methods.smart import (
    confidences,
    fit_network,
    initial_layers,
    margins_of,
    soft_ece,
    temperatures,
)
from tune_calib.methods.temperature import top_versus_all_losses
from tune_calib.metrics.binning import top_label
from tune_calib.spec.methods import METHODS

DTYPE = torch.float64


def _logits(case: dict[str, Any], name: str = "logits") -> Tensor:
    return tensor(case["inputs"][name], DTYPE)


def _labels(case: dict[str, Any]) -> Tensor:
    return torch.tensor(case["inputs"]["targets"])


def _close(case: dict[str, Any], actual: dict[str, Any]) -> None:
    """Compare what the case asks for."""
    for name in compared(case):
        close(actual[name], case["expected"][name], case["tolerance"], f"{case['id']} {name}")


def _method(name: str, **settings: Any) -> Any:
    info = METHODS[name]
    return info.implementation(info.params(**settings))


def hb_toplabel(case: dict[str, Any]) -> None:
    method = _method("histogram_toplabel", points_per_bin=case["hyperparameters"]["points_per_bin"])
    state = method.fit_one(_logits(case), _labels(case)).state
    probs = method.apply(_logits(case, "eval_logits"), state).softmax(-1)
    if "eval_top_prob" in compared(case):
        top = case["expected"]["eval_top_prob"]
        close(probs.amax(-1), top, case["tolerance"], case["id"])


def _rounded_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Theirs, whose 1 - p is 0 near p = 1, so that the loss is 100 and has no gradient."""
    confidence, correct = top_label(logits.softmax(-1), labels)
    return binary_cross_entropy(confidence, correct, reduction="none")


def top_versus_all(case: dict[str, Any]) -> None:
    """The objective and its gradient, and the authors' 200 steps of Adam from given batches."""
    losses = _rounded_losses if case["case"] == "extreme_mixed" else top_versus_all_losses
    with mock.patch.object(_affine, "top_versus_all_losses", losses):
        _top_versus_all(case)


def _top_versus_all(case: dict[str, Any]) -> None:
    name, settings = case["method"], case["hyperparameters"]
    logits, labels = _logits(case), _labels(case)
    classes = logits.shape[1]
    start = 1 / settings.get("temperature_ref", settings.get("initial_temperature"))
    diagonal, zeros = torch.full_like(logits[0], start), torch.zeros_like(logits[0])
    ridge = Ridge(0.0, torch.ones_like(diagonal))
    if settings["regularised"]:
        ridge = Ridge(0.1 / classes, torch.ones_like(diagonal))
    parameters = [diagonal]
    if "temperature" in name:
        parameters = [torch.full((1,), 1 / start, dtype=DTYPE)]
    if "dirichlet" in name:
        eye = torch.eye(classes, dtype=DTYPE)
        ridge = Ridge(torch.ones_like(eye).fill_diagonal_(0.1 / classes), eye, 1.0)
        parameters = [eye * start, zeros]
    for parameter in parameters:
        parameter.requires_grad_()

    def affine() -> Affine:
        if "temperature" in name:
            return Affine((1 / parameters[0]).expand(classes), zeros)
        return Affine(parameters[0], parameters[1] if len(parameters) > 1 else zeros)

    solver, losses, gradients = torch.optim.Adam(parameters, lr=settings["lr"]), [], []
    for _ in range(settings["epochs"]):
        first = 0
        for size in settings["batches"]:
            rows = slice(first, first + size)
            first += size
            loss = top_versus_all_objective(logits[rows], labels[rows], affine(), ridge)
            solver.zero_grad()
            loss.backward()
            gradients.append([_gradient(parameter) for parameter in parameters])
            losses.append(loss.detach())
            solver.step()
    names = {1: ["vector"], 2: ["weight", "bias"]}[len(parameters)]
    if "temperature" in name:
        names = ["temperature"]
    actual = {"loss_initial": losses[0], "loss_last_step": losses[-1]}
    shape = () if "temperature" in name else None
    for place, key in enumerate(names):
        for prefix, values in (("", parameters[place]), ("grad_", gradients[0][place])):
            actual[prefix + key] = values.reshape(()) if shape == () else values
    actual["probs"] = affine()(logits).softmax(-1)
    _close(case, actual)


def irova(case: dict[str, Any]) -> None:
    """The values of the curves; the fitted temperature, where there is one."""
    method = _method(case["method"])
    fit = method.fit_one(_logits(case), _labels(case))
    values = method.values(_logits(case, "eval_logits"), fit.state)
    actual = {"probs": values, "row_sums": values.sum(-1), "temperature": fit.state["temperature"]}
    _close(case, actual)


def pts(case: dict[str, Any]) -> None:
    """Temperatures, the loss and its gradients, and steps of the Adam of Keras."""
    settings, logits, labels = case["hyperparameters"], _logits(case), _labels(case)
    layers: list[Tensor] = []
    for place in range(settings["nlayers"] + 1):
        kernel, bias = (tensor(case["state"][f"{name}_{place}"]) for name in ("kernel", "bias"))
        layers += [kernel.T.clone().requires_grad_(), bias.requires_grad_()]
    method = _method("pts", top=settings["top_k_logits"])
    inputs, decay = method.inputs(logits), settings["weight_decay"]
    logits = logits.clamp(-settings["clip"], settings["clip"])
    loss = pts_loss(logits, labels, inputs, layers, decay)
    loss.backward()
    temperatures = pts_temperatures(inputs, layers)
    squared_error = pts_loss(logits, labels, inputs, layers, 0.0)
    actual: dict[str, Any] = {
        "loss": loss,
        "mse": squared_error,
        "penalty": loss - squared_error,
        "temperature": temperatures[:, 0],
        "probs": (logits / temperatures).softmax(-1),
    }
    for place, (weight, bias) in enumerate(zip(layers[::2], layers[1::2], strict=True)):
        actual[f"grad_kernel_{place}"] = _gradient(weight).T
        actual[f"grad_bias_{place}"] = _gradient(bias)
    losses = _losses_by_keras(
        lambda: pts_loss(logits, labels, inputs, layers, decay),
        layers,
        settings["lr"],
        settings["epochs"],
    )
    # The steps enlarge rounding errors.
    tolerance = {"rtol": 2e-5, "atol": 1e-8}
    close(losses, case["expected"].pop("loss_history"), tolerance, case["id"])
    _close(case, actual)


def _gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()


def _losses_by_keras(
    objective: Callable[[], Tensor], parameters: list[Tensor], lr: float, steps: int
) -> Tensor:
    """Return the losses before the steps of Adam with its small number outside the correction."""
    first, second = (float(np.float32(factor)) for factor in (0.9, 0.999))  # rounded there
    losses, moments = [], [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    for step in range(1, steps + 1):
        loss = objective()
        losses.append(loss.detach())
        rate = lr * (1 - second**step) ** 0.5 / (1 - first**step)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient, (mean, square) in zip(
                parameters, gradients, moments, strict=True
            ):
                mean += (1 - first) * (gradient - mean)
                square += (1 - second) * (gradient.square() - square)
                parameter -= rate * mean / (square.sqrt() + 1e-7)
    return torch.stack(losses)


def iop_sorted(case: dict[str, Any]) -> None:
    """OI and OP: scores, the NLL and its gradients, from given weights."""
    logits, labels = _logits(case), _labels(case)
    layers: list[Tensor] = []
    names = ["calib_layers.0", "calib_layers.2", "fc"]
    for name in names:
        weight, bias = (tensor(case["state"][f"{name}.{part}"]) for part in ("weight", "bias"))
        layers += [weight.requires_grad_(), bias.requires_grad_()]
    method = _method(case["method"], weight_decay=0)
    descending = logits.sort(dim=-1, descending=True).values
    inputs = method.inputs(logits, descending)
    scores = ascending_scores(inputs, descending, layers)
    loss = method.objective(logits, labels)(layers)
    loss.backward()
    order = logits.argsort(dim=-1, stable=True)
    placed = torch.zeros_like(logits).scatter(-1, order, scores)
    actual: dict[str, Any] = {"scores": placed, "probs": placed.softmax(-1), "loss": loss}
    state = method.kept([parameter.detach() for parameter in layers], logits)
    mapped = method.apply(logits, state).softmax(-1)
    torch.testing.assert_close(mapped, placed.softmax(-1).detach(), rtol=0, atol=2e-6)
    for name, weight, bias in zip(names, layers[::2], layers[1::2], strict=True):
        actual[f"grad_{name}.weight"] = _gradient(weight)
        actual[f"grad_{name}.bias"] = _gradient(bias)
    _close(case, actual)


def iop_diag(case: dict[str, Any]) -> None:
    """By the authors' quadrature of our integrand, whose last weight is twice as large as it is."""
    logits, labels = _logits(case), _labels(case)
    layers: list[Tensor] = []
    names = [f"integrand.net.{place}" for place in (0, 2, 4)]
    for name in names:
        weight, bias = (tensor(case["state"][f"{name}.{part}"]) for part in ("weight", "bias"))
        layers += [weight.requires_grad_(), bias.requires_grad_()]
    used = [layers[0][:, :1], *layers[1:]]  # the second input is 0
    scores = _quadrature(logits, used, last=2.0)
    loss = cross_entropy(scores, labels)
    loss.backward()
    actual: dict[str, Any] = {"scores": scores, "probs": scores.softmax(-1), "loss": loss}
    actual["offset"] = case["expected"]["offset"]  # cancels in the softmax
    for name, weight, bias in zip(names, layers[::2], layers[1::2], strict=True):
        actual[f"grad_{name}.weight"] = _gradient(weight)
        actual[f"grad_{name}.bias"] = _gradient(bias)
    _close(case, actual)
    with torch.no_grad():  # ours, from the smallest logit
        method = _method("iop_diag")
        ours = integral(logits, method.kept(used, logits))
        exact = _quadrature(logits, used, last=1.0, count=2000)
        exact = exact - exact.amin()
        torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-5)


def _quadrature(ends: Tensor, layers: Layers, last: float, count: int = 50) -> Tensor:
    """Integrate the slopes from 0 to each end by Clenshaw-Curtis, with float32 nodes."""
    angles = torch.arange(count + 1, dtype=DTYPE) * torch.pi / count
    even = torch.arange(0, count + 1, 2, dtype=DTYPE)
    factors = 2 / (1 - even.square())
    factors[0] = 1
    factors[-1] *= last / 2
    weights = (even[:, None] * angles).cos().mul(factors[:, None]).sum(0) * 2 / count
    weights[[0, -1]] /= 2
    nodes = (angles.cos().float() + 1).double() / 2 * ends[..., None]
    slopes = positive_slopes(nodes.flatten(), layers).view(nodes.shape)
    return (slopes * weights.float().double()).sum(-1) * ends / 2


def focal_map(case: dict[str, Any]) -> None:
    actual = {}
    for gamma in case["expected"]["probs"]:
        actual[gamma] = focal_log_probs(_logits(case), tensor(float(gamma))).exp()
        label = f"{case['id']} {gamma}"
        close(actual[gamma], case["expected"]["probs"][gamma], case["tolerance"], label)


def focal_temperature(case: dict[str, Any]) -> None:
    """The best temperature of each gamma, and the best gamma."""
    logits, labels, expected = _logits(case), _labels(case), case["expected"]
    lowest = {}
    for gamma, theirs in expected["temperature_nll"].items():
        temperature, nll = best_temperature(logits, labels, float(gamma))
        # With -1, their terms cancel near q = 1.
        tolerance = {"rtol": 1e-6, "atol": 1e-9} if gamma == "-1" else case["tolerance"]
        lowest[float(gamma)] = nll
        label = f"{case['id']} {gamma}"
        close(tensor(temperature), theirs, case["tolerance"], label)
        close(tensor(nll), expected["nll_at_temperature"][gamma], tolerance, label)
        at_one = focal_nll(logits, labels, 1.0, float(gamma))
        close(tensor(at_one), expected["nll_at_1"][gamma], tolerance, label)
    assert min(lowest, key=lambda gamma: lowest[gamma]) == expected["best_gamma_nll"]


def _layers_of_smart(case: dict[str, Any]) -> list[Tensor]:
    names = [f"layers.{place}.{part}" for place in range(3) for part in ("weight", "bias")]
    return [tensor(case["state"][name]) for name in names]


def smart(case: dict[str, Any]) -> None:
    """Temperatures, probabilities, and the loss with its gradients, from given weights."""
    settings, logits, labels = case["hyperparameters"], _logits(case), _labels(case)
    layers = [parameter.requires_grad_() for parameter in _layers_of_smart(case)]
    margins = margins_of(logits)
    mean, deviation = margins.mean(), margins.std(correction=0)
    inverse = 1 / temperatures((margins - mean) / deviation, layers)
    gaps, correct = logits - logits.amax(-1, keepdim=True), logits.argmax(-1) == labels
    confidence, hits = confidences(gaps, inverse), correct.double()
    bins, width = settings["n_bins"], settings["sigma"]
    loss = soft_ece(confidence, hits, bins, width, settings["delta"])
    loss.backward()
    probs = (logits * inverse[:, None]).softmax(-1)
    torch.testing.assert_close(confidence, probs.amax(-1), rtol=1e-12, atol=0)
    actual: dict[str, Any] = {
        "margin_mean": mean,
        "margin_std": deviation,
        "temperature": 1 / inverse,
        "probs": probs,
        "loss": loss,
        "soft_ece": soft_ece(confidence, hits, bins, width, 0.0),
    }
    for place in range(3):
        actual[f"grad_layers.{place}.weight"] = _gradient(layers[2 * place])
        actual[f"grad_layers.{place}.bias"] = _gradient(layers[2 * place + 1])
    _close(case, actual)


def smart_fit(case: dict[str, Any]) -> None:
    """The whole fit, in the order of the rows of the case."""
    logits, labels, start = _logits(case), _labels(case), _layers_of_smart(case)
    for ours, theirs in zip(initial_layers(logits), start, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)
    margins = margins_of(logits)
    scaling = {"mean": margins.mean(), "deviation": margins.std(correction=0)}
    fit, losses = fit_network(logits, labels, start, scaling, case["hyperparameters"]["epochs"])
    new = _logits(case, "eval_logits")
    mapped = _method("smart").apply(new, fit.state)
    actual = {
        "loss_history_first": tensor(losses[:20]),
        "loss_best": tensor(fit.record["objective"]),
        "loss_last": tensor(losses[-1]),
        "epochs_run": tensor(len(losses)),
        "margin_mean": scaling["mean"],
        "margin_std": scaling["deviation"],
        "temperature": (new / mapped).mean(-1),
        "probs": mapped.softmax(-1),
    }
    _close(case, actual)


COMPARERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "hb_toplabel": hb_toplabel,
    "irova": irova,
    "irova_ts": irova,
    "focal_map": focal_map,
    "focal_temperature": focal_temperature,
    "iop_diag": iop_diag,
    "iop_oi": iop_sorted,
    "iop_op": iop_sorted,
    "pts": pts,
    "smart": smart,
    "smart_fit": smart_fit,
    "tva_temperature": top_versus_all,
    "tva_vector": top_versus_all,
    "tva_vector_reg": top_versus_all,
    "tva_dirichlet_reg": top_versus_all,
}
