"""Post-hoc maps and their fits against the authors' numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.parity_compare import close, tensor
from tune_calib.methods import smart as smart_file
from tune_calib.metrics.binning import top_label

DTYPE = torch.float64


def _close(case: dict[str, Any], actual: dict[str, Any]) -> None:
    for name, values in actual.items():
        close(values, case["expected"][name], case["tolerance"], f"{case['id']} {name}")


def _inputs(case: dict[str, Any]) -> tuple[Tensor, Tensor]:
    return tensor(case["inputs"]["logits"], DTYPE), torch.tensor(case["inputs"]["targets"])


def _layers(case: dict[str, Any]) -> smart_file.Layers:
    layers = []
    for place in range(3):
        names = (f"layers.{place}.weight", f"layers.{place}.bias")
        weight, bias = (tensor(case["state"][name], DTYPE) for name in names)
        layers.append((weight.requires_grad_(), bias.requires_grad_()))
    return layers


def smart(case: dict[str, Any]) -> None:
    """Temperatures, probabilities, and the loss with its gradients, from given weights."""
    logits, labels = _inputs(case)
    layers, settings = _layers(case), case["hyperparameters"]
    margins = smart_file.margins_of(logits)
    mean, deviation = margins.mean(), margins.std(unbiased=False)
    temperatures = smart_file.temperatures((margins - mean) / deviation, layers)
    probs = (logits / temperatures).softmax(-1)
    loss = smart_file.soft_ece(
        *top_label(probs, labels),
        bins=settings["n_bins"],
        width=settings["sigma"],
        rounding=settings["delta"],
    )
    loss.backward()
    actual = {
        "margin_mean": mean,
        "margin_std": deviation,
        "temperature": temperatures.squeeze(-1),
        "probs": probs,
        "loss": loss,
    }
    for place, parameters in enumerate(layers):
        for name, parameter in zip(("weight", "bias"), parameters, strict=True):
            actual[f"grad_layers.{place}.{name}"] = parameter.grad
    _close(case, actual)


def smart_fit(case: dict[str, Any]) -> None:
    """The first losses; and the fit, unless it is chaotic (that of two classes)."""
    logits, labels = _inputs(case)
    for initial, layer in zip(smart_file.initial_layers(logits), _layers(case), strict=True):
        for parameter, theirs in zip(initial, layer, strict=True):
            close(parameter, theirs.tolist(), case["tolerance"], case["id"])
    expected, settings = case["expected"], case["hyperparameters"]
    first_losses = expected["loss_history_first"]
    start = smart_file.MarginTemperature(smart_file.SmartParams(epochs=len(first_losses)))
    assert start.fit_one(logits, labels).record["soft_ece"] == pytest.approx(min(first_losses))
    if case["case"] != "two_class":
        params = smart_file.SmartParams(lr=settings["lr"], epochs=settings["epochs"])
        method = smart_file.MarginTemperature(params)
        fit = method.fit_one(logits, labels)
        transformed = method.apply(tensor(case["inputs"]["eval_logits"], DTYPE), fit.state)
        _close(case, {"loss_best": fit.record["soft_ece"], "probs": transformed.softmax(-1)})


COMPARERS: dict[str, Callable[[dict[str, Any]], None]] = {"smart": smart, "smart_fit": smart_fit}
