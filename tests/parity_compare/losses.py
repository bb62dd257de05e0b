"""Losses and what they keep between steps, against the authors' numbers."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.parity_compare import close, compared, tensor
from tune_calib.methods._base import NetworkContext, NetworkMethod
from tune_calib.methods.adafocal import AdaFocalParams, update
from tune_calib.methods.mdca import ls_wrong_only
from tune_calib.metrics.calibration import aece
from tune_calib.metrics.samples import Samples
from tune_calib.spec.methods import METHODS

DTYPE = torch.float64

RENAMED = {
    "mmce": {"lambda": "lam"},
    "mmce_weighted": {"lambda": "lam"},
    "mdca": {"classification": "pairing"},
    "crl": {"rank_target": "target", "rank_weight": "weight"},
    "adafocal_update": {"lambda": "lam"},
    "fedlas_mbls": {"lambda": "alpha"},
}
"""Settings of the authors under other names than ours."""

NOT_OURS = {"reduction", "eps"}

PAIRINGS = {"NL": "nll", "CE": "nll", "FL": "fl", "LS": "ls_wrong_only"}
"""Of MDCA, by how the authors' names begin."""


def settings(case: dict[str, Any]) -> dict[str, Any]:
    """Hyper-parameters of a vector under our names."""
    names = RENAMED.get(case["method"], {})
    asked = {
        names.get(name, name): value
        for name, value in case["hyperparameters"].items()
        if name not in NOT_OURS
    }
    if "pairing" in asked:
        asked["pairing"] = PAIRINGS[asked["pairing"][:2].upper()]
    if asked.get("target") == "entropy" and len(case["inputs"]["logits"][0]) != 100:
        asked["entropy_scale"] = 2.302585
    return asked


def is_finite(value: Any) -> bool:
    """Whether all numbers in nested lists and dictionaries are finite."""
    if isinstance(value, dict):
        return all(map(is_finite, value.values()))
    return bool(tensor(value).isfinite().all())


def load(case: dict[str, Any]) -> NetworkMethod:
    """The method of a vector, in the state that the vector starts from."""
    state = case.get("state", {})
    logits, features = case["inputs"]["logits"], case["inputs"].get("features", [[0.0]])
    context = NetworkContext(
        classes=len(logits[0]),
        width=len(features[0]),
        samples=len(state.get("correctness", logits)),
        epochs=10,
        seed=0,
    )
    info = METHODS[case["method"]]
    asked = settings(case)
    if "bins" in state:
        asked["bins"] = len(state["bins"])
    # Without our ranges, which no formula needs.
    params = info.params.model_construct(**asked)
    method: NetworkMethod = info.implementation(params, context).double()
    if "bins" in state:
        for name in ("lower", "upper", "gamma"):
            method.get_buffer(name).copy_(tensor([b[name] for b in state["bins"]]))
    if "correctness" in state:
        method.get_buffer("n_correct").copy_(tensor(state["correctness"]))
        method.get_buffer("max_correct").fill_(int(state["max_correctness"]))
    if "gate" in state:
        weights = {name: tensor(value) for name, value in state["gate"].items()}
        method.get_submodule("gate").load_state_dict(weights)
        method.get_buffer("mean").copy_(tensor(state["ema_mean"]).squeeze())
        method.get_buffer("deviation").copy_(tensor(state["ema_std"]).squeeze())
    return method.train(state.get("training", True))


def without_defect(case: dict[str, Any], logits: Tensor, labels: Tensor) -> Tensor | None:
    """The loss that we document where the authors' program raises or is not finite."""
    plain = F.cross_entropy(logits, labels)
    if case["method"] in ("mmce_weighted", "crl"):
        return plain
    if case["method"] == "cpc":
        right = F.one_hot(labels, 2) == 1
        discrimination = F.softplus(logits[~right] - logits[right], threshold=math.inf).mean()
        return plain + case["hyperparameters"]["lambda_bdc"] * discrimination
    return None


def loss(case: dict[str, Any]) -> None:
    """Compare loss, gradients and state; a defect of the authors', with what we document."""
    inputs, expected, tolerance = case["inputs"], case["expected"], case["tolerance"]
    label = case["id"]
    method = load(case)
    logits = tensor(inputs["logits"], DTYPE).requires_grad_()
    labels = torch.tensor(inputs["targets"])
    features = tensor(inputs.get("features", [[0.0]] * len(labels)), DTYPE).requires_grad_()
    indices = torch.tensor(inputs.get("sample_index", range(len(labels))))
    value = method.loss(logits, labels, features, indices)
    if case["hyperparameters"].get("reduction") == "sum":
        value = value * len(labels)
    value.backward()
    state = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    method.after_step(logits.detach(), labels, indices)
    actual = {"loss": value.detach(), "grad_logits": logits.grad}
    assert features.grad is None or not features.grad.any(), label
    assert all(bool(t.isfinite().all()) for t in (*actual.values(), *state.values())), label
    keys = compared(case)
    if "raises" in expected or not all(is_finite(expected[key]) for key in keys):
        documented = without_defect(case, logits.detach(), labels)
        if documented is not None:
            close(actual["loss"], documented, tolerance, f"{label} without the defect")
        return
    for key in keys:
        if key == "grad_gate":
            for name, gradient in expected[key].items():
                weight = method.get_parameter(f"gate.{name}")
                close(weight.grad, gradient, tolerance, f"{label} {key} {name}")
        elif key == "state_after":
            compare_state(case, method)
        elif key == "gamma_per_sample":
            probs = logits.detach().log_softmax(1).gather(1, labels[:, None]).squeeze(1).exp()
            close(method.exponents(probs), expected[key], tolerance, f"{label} {key}")
        elif key == "terms" and "gate" in case.get("state", {}):
            record = method.sample_record(logits.detach(), labels, features.detach())
            for name, ours in (("gate", "gate"), ("nci", "indicator"), ("alpha_i", "amount")):
                close(record[ours], expected[key][name], tolerance, f"{label} {name}")
        elif key != "terms":  # parts of the loss, compared as a whole
            close(actual[key], expected[key], tolerance, f"{label} {key}")


OURS = {
    "ema_mean": "mean",
    "ema_std": "deviation",
    "correctness": "n_correct",
    "max_correctness": "max_correct",
}


def compare_state(case: dict[str, Any], method: NetworkMethod) -> None:
    """Compare the buffers after a step."""
    for name, value in case["expected"]["state_after"].items():
        wanted = tensor(value)
        ours = method.get_buffer(OURS[name]).reshape(wanted.shape)
        close(ours, wanted, case["tolerance"], f"{case['id']} {name}")


def cross_entropy_wrong_only(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    logits = tensor(inputs["logits"], DTYPE).requires_grad_()
    alpha = case["hyperparameters"]["alpha"]
    value = ls_wrong_only(logits, torch.tensor(inputs["targets"]), alpha)
    value.backward()
    close(value, expected["loss"], case["tolerance"], case["id"])
    close(logits.grad, expected["grad_logits"], case["tolerance"], f"{case['id']} grad")


def adafocal_update(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    logits, labels = tensor(inputs["val_logits"], DTYPE), torch.tensor(inputs["val_targets"])
    gamma = tensor([b["gamma"] for b in case["state"]["bins"]])
    params = AdaFocalParams.model_construct(**settings(case), bins=len(gamma))
    bins, moved = update(gamma, logits, labels, params)
    results = {"lower": bins.lower, "upper": bins.upper, "gamma": moved}
    keys = compared(case)
    check = functools.partial(close, tolerance=case["tolerance"], label=case["id"])
    if "state_after" in keys:
        after = expected["state_after"]["bins"]
        for name, values in results.items():
            check(values, [b[name] for b in after])
    if "calibration_gap" in keys:
        check(bins.gap, expected["calibration_gap"])
    if "adaece" in keys:
        samples = Samples(logits.softmax(1).float(), labels, bins=len(gamma))
        check(aece(samples), expected["adaece"])


COMPARERS: dict[str, Callable[[dict[str, Any]], None]] = {
    **dict.fromkeys(
        [
            "ce",
            "ls",
            "mbls",
            "acls",
            "fl",
            "flsd",
            "dfl",
            "brier",
            "ecp",
            "cpc",
            "mmce",
            "mmce_weighted",
            "mdca",
            "adafocal",
            "crl",
            "fedlas_ls",
            "fedlas_mbls",
        ],
        loss,
    ),
    "ls_wrong_only": cross_entropy_wrong_only,
    "adafocal_update": adafocal_update,
}
