"""Methods that change the training procedure, and the heads, against the authors' numbers."""

import inspect
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from tests.parity_compare import close, tensor
from tune_calib.methods import mit
from tune_calib.methods._base import Batch, HeadContext, HeadMethod, NetworkContext
from tune_calib.methods.balcal import (
    BalCal,
    BalCalParams,
    balcal_loss,
    column_scale,
    find_share,
    simplex_etf,
)
from tune_calib.methods.mit import MitAll, MitParams, draw_shares, mit_loss, unmix
from tune_calib.methods.mixup import mix, mixup_loss
from tune_calib.methods.plp import PUBLISHED, Plp, PlpParams, schedule
from tune_calib.methods.temperature import TemperatureParams, TemperatureScaling
from tune_calib.models.heads import apply_stack
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot

DTYPE = torch.float64


def _leaf(value: Any) -> Tensor:
    return tensor(value, DTYPE).requires_grad_()


def _context(**given: int) -> NetworkContext:
    return NetworkContext(
        **{"classes": 5, "width": 64, "samples": 8, "epochs": 1, "seed": 0, **given}
    )


def _compare(case: dict[str, Any], actual: dict[str, Any]) -> None:
    """Compare every number that the case asks for, and nothing may be left out."""
    wanted = case.get("compare_only", list(case["expected"]))
    missing = set(wanted) - set(actual)
    assert not missing, f"{case['id']}: nothing to compare with {sorted(missing)}"
    for key in wanted:
        expected = tensor(case["expected"][key], DTYPE)
        value = torch.as_tensor(actual[key], dtype=DTYPE).detach()
        assert value.shape == expected.shape, f"{case['id']} {key}: {value.shape}"
        close(value, expected, case["tolerance"], f"{case['id']} {key}")


def mixup(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    logits, labels = _leaf(inputs["logits"]), torch.tensor(inputs["targets"])
    order, share = torch.tensor(inputs["permutation"]), tensor(inputs["lam"], torch.float64)
    loss = mixup_loss(logits, labels, labels[order], share)
    loss.backward()
    images = tensor(inputs["x"], DTYPE)
    mixed = mix(images, images[order], share)
    _compare(case, {"loss": loss, "grad_logits": logits.grad, "mixed_x": mixed})


def mit_l(case: dict[str, Any]) -> None:
    """Equal, but for equal shares: the authors' code divides by zero and ours draws again."""
    inputs = case["inputs"]
    if inputs["beta_draw_1"] == inputs["beta_draw_2"] == 0.5:
        again = iter([0.5, 0.5, 0.75, 0.25])
        assert draw_shares(lambda: next(again), 0.0) == (0.75, 0.25)
        return
    labels, order = torch.tensor(inputs["targets"]), torch.tensor(inputs["permutation"])
    outputs = [_leaf(inputs["mixed_output1"]), _leaf(inputs["mixed_output2"])]
    draws = iter([inputs["beta_draw_1"], inputs["beta_draw_2"]])
    shares = draw_shares(lambda: next(draws), case["hyperparameters"]["margin"])
    loss = mit_loss(*unmix(*outputs, *shares), labels, labels[order])
    loss.backward()
    grads = {f"grad_mixed_output{i + 1}": output.grad for i, output in enumerate(outputs)}
    _compare(case, {"loss": loss, "lam1": shares[0], "lam2": shares[1], **grads})


class _Toy(nn.Module):
    """The toy network of the vectors: 1x1 convolutions, ReLU, average pool, linear head."""

    LAYERS = ("conv1", "layer1", "layer2", "layer3", "layer4")

    def __init__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self.tensors = {name: _leaf(value) for name, value in state.items()}
        self.parts: list[nn.Module] = []
        for name in self.LAYERS:
            convolution = nn.Conv2d(1, 1, 1, bias=False)
            del convolution.weight
            convolution.weight = self.tensors[name][:, :, None, None]
            self.parts.append(nn.Sequential(convolution, nn.ReLU()))
        self.parts.append(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1)))
        self.head = nn.Linear(1, 1)
        del self.head.weight, self.head.bias
        self.head.weight, self.head.bias = self.tensors["fc"], self.tensors["fc_bias"]

    def stages(self) -> list[nn.Module]:
        return self.parts


def mit_a(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    network = _Toy(case["state"])
    method = MitAll(MitParams(margin=case["hyperparameters"]["margin"]), _context())
    method.adapt(network)
    labels = torch.tensor(inputs["targets"])
    batch = Batch(tensor(inputs["x"], DTYPE), labels, torch.arange(len(labels)))
    method.begin_epoch(0, torch.Generator())
    order = torch.tensor(inputs["permutation"])
    with (
        mock.patch.object(mit, "draw_beta", side_effect=inputs["beta_draws"]),
        mock.patch.object(torch, "randperm", return_value=order),
    ):
        method.drawn = method.draw(len(labels))
    step = method.step(network, batch)
    step.loss.backward()
    grads = {f"grad_{name}": leaf.grad for name, leaf in network.tensors.items()}
    _compare(case, {"loss": step.loss, **grads})


def plp_schedule(case: dict[str, Any]) -> None:
    """Equal, but where starts coincide: the authors' loop stalls there and ours goes on."""
    hyperparameters = case["hyperparameters"]
    boundaries, epochs = (
        PUBLISHED[hyperparameters["n_parameter_tensors"]],
        hyperparameters["epochs"],
    )
    counts = schedule(boundaries, hyperparameters["gamma"], epochs)
    assert len(counts) == case["expected"]["n_epochs_run"]
    changes = [[e, n] for e, n in enumerate(counts) if e == 0 or n != counts[e - 1]]
    total = len(boundaries)
    starts = [int((j / total) ** hyperparameters["gamma"] * epochs) for j in range(total)]
    if len(set(starts)) == total:
        assert changes == case["expected"]["changes"]
        return
    assert counts[-1] == boundaries[-1]
    for epoch, count in enumerate(counts):
        assert count == min(b for b, s in zip(boundaries, starts, strict=True) if s <= epoch)


def plp_sgd(case: dict[str, Any]) -> None:
    """The engine's way: no gradient for what ``trained`` leaves out, then torch's SGD."""
    inputs, hyperparameters = case["inputs"], case["hyperparameters"]
    parameters = [nn.Parameter(tensor(value, DTYPE)) for value in inputs["params"]]
    options = set(inspect.signature(torch.optim.SGD).parameters)
    optimizer = torch.optim.SGD(
        parameters, **{k: v for k, v in hyperparameters.items() if k in options}
    )
    method = Plp(PlpParams(), _context())
    for number, grads in enumerate(inputs["grads_per_step"]):
        method.count = inputs["first_frozen_index_per_step"][number]
        trained = {id(parameter) for parameter in method.trained(parameters)}
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = tensor(grad, DTYPE) if id(parameter) in trained else None
        optimizer.step()
        expected = case["expected"]["params_per_step"][number]
        for index, (parameter, value) in enumerate(zip(parameters, expected, strict=True)):
            label = f"{case['id']} step {number} tensor {index}"
            close(parameter.detach(), tensor(value, DTYPE), case["tolerance"], label)


def balcal_etf(case: dict[str, Any]) -> None:
    _compare(case, {"M": simplex_etf(tensor(case["inputs"]["P"], DTYPE))})


def balcal_lambda(case: dict[str, Any]) -> None:
    """Equal, but where the authors' code takes logits in [0, 1] for probabilities."""
    inputs, hyperparameters = case["inputs"], case["hyperparameters"]
    linear, etf = tensor(inputs["logits_linear"], DTYPE), tensor(inputs["logits_etf"], DTYPE)
    labels = torch.tensor(inputs["targets"])
    share = find_share(linear, etf, labels, hyperparameters["delta"])
    if not bool(((linear >= 0) & (linear <= 1)).all()):
        _compare(case, {"lamd": share})
        return

    def gap(lam: float) -> float:
        probs = (lam * linear + (1 - lam) * etf).softmax(1)
        right = (probs.argmax(1) == labels).to(DTYPE).mean()
        return float(hyperparameters["delta"] * right - probs.amax(1).mean())

    assert share == 1 if gap(1.0) > 0 else share == 1 or abs(gap(share)) < abs(gap(1.0))


def balcal_loss_(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    linear, features = _leaf(inputs["logits_linear"]), _leaf(inputs["etf_features"])
    etf, labels = tensor(inputs["M"], DTYPE), torch.tensor(inputs["targets"])
    share = torch.tensor(case["state"]["lamd"], dtype=DTYPE)
    method = BalCal(BalCalParams(), _context(classes=etf.shape[1], width=max(etf.shape)))
    method.etf, method.share = etf, share
    unit = nn.functional.normalize(features)
    scale = column_scale(labels, etf.shape[1], DTYPE)
    training = unit @ (etf * scale)
    loss = balcal_loss(linear, training, labels, share)
    loss.backward()
    actual = {
        "loss": loss,
        "column_scale": scale[None],
        "logits_etf_train": training,
        "logits_eval": method.mixed(linear, unit),
        "grad_logits_linear": linear.grad,
        "grad_etf_features": features.grad,
    }
    _compare(case, actual)


HEAD_NAMES = {
    "tst": {"qzx_model.fc1": "0", "qzx_model.fc2": "1", "pyz.fc1_y": "2"},
    "vtst": {
        "qzx_model.fc1": "mean.0",
        "qzx_model.fc2": "mean.1",
        "qzx_var.fc1": "variance.0",
        "qzx_var.fc2": "variance.1",
        "pyz.fc1_y": "output.0",
    },
}


def _head(case: dict[str, Any], **params: Any) -> tuple[HeadMethod, dict[str, str]]:
    """One head with the weights of the case; its tensors by the names of the case."""
    hyperparameters, name = case["hyperparameters"], case["method"]
    slot = HeadSlot(method=name, params={"latent": hyperparameters["latent_dim"], **params})
    width, classes = hyperparameters["feature_dim"], hyperparameters["num_classes"]
    context = HeadContext(
        width,
        classes,
        1,
        torch.zeros(classes, width),
        torch.zeros(classes),
        1.0,
        torch.device("cpu"),
    )
    head: HeadMethod = METHODS[name].implementation([slot], context)
    names = {}
    for full, value in case["state"].items():
        layer, _, kind = full.rpartition(".")
        names[full] = f"{HEAD_NAMES[name][layer]}.{kind}"
        weights = tensor(value, DTYPE)
        weights = weights[None] if kind == "weight" else weights[None, None]
        assert head.parameters[names[full]].shape == weights.shape
        head.parameters[names[full]] = weights.requires_grad_()
    assert set(names.values()) == set(head.parameters)
    return head, names


def _head_step(
    case: dict[str, Any], head: HeadMethod, names: dict[str, str]
) -> tuple[dict[str, Any], Tensor]:
    features = tensor(case["inputs"]["features"], DTYPE)
    labels = torch.tensor(case["inputs"]["targets"])
    logits = head.training_logits(features)
    loss = head.loss(logits.log_softmax(-1), labels)
    loss.sum().backward()
    grads = {}
    for full, name in names.items():
        grad = head.parameters[name].grad
        assert grad is not None
        grads[f"grad_{full}"] = grad[0] if full.endswith("weight") else grad[0, 0]
    return {"logits": logits[0], "loss": loss[0], **grads}, features


def tst(case: dict[str, Any]) -> None:
    head, names = _head(case)
    actual, features = _head_step(case, head, names)
    body = {k: v for k, v in head.parameters.items() if not k.startswith("2.")}
    _compare(case, {**actual, "z": apply_stack(body, features, ["relu"])[0]})


def vtst(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    head, names = _head(case, mc_samples=case["hyperparameters"]["mc_samples"])
    train, drawn = tensor(inputs["eps_train"], DTYPE), tensor(inputs["eps_mc"], DTYPE)

    head.drawn = {"noise": train[None]}
    head.noise_at = lambda first, draw, like: drawn[draw][None]  # type: ignore[attr-defined]
    actual, features = _head_step(case, head, names)
    mean, log_variance = head.moments(features)  # type: ignore[attr-defined]
    kl = head.kl[0]  # type: ignore[attr-defined]
    actual |= {
        "z_mean": mean[0],
        "z_logvar": log_variance[0],
        "z": (mean + (0.5 * log_variance).exp() * train)[0],
        "kl_over_latent_dim": kl,
        "ce": actual["loss"] - kl,
        "mc_probs": head.predict(features)[0].exp(),
    }
    _compare(case, actual)


def temperature_scaling(case: dict[str, Any]) -> None:
    """The grids; the authors' LBFGS stops early, and its numbers are not ours to meet."""
    logits = tensor(case["inputs"]["logits"], DTYPE)[None]
    labels = torch.tensor(case["inputs"]["targets"])
    actual = {}
    for key, fit in (("T_grid_ece", "grid_ece"), ("T_grid_nll", "grid_nll"), ("T_nll", "nll")):
        scaling = TemperatureScaling(TemperatureParams(fit=fit))
        scaling.fit(logits, labels)
        actual[key] = scaling.state()["temperature"][0]
    _compare(case, actual)


COMPARERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "mixup": mixup,
    "mit_l": mit_l,
    "mit_a": mit_a,
    "plp_schedule": plp_schedule,
    "plp_sgd": plp_sgd,
    "balcal_etf": balcal_etf,
    "balcal_lambda": balcal_lambda,
    "balcal_loss": balcal_loss_,
    "tst": tst,
    "vtst": vtst,
    "temperature_scaling": temperature_scaling,
}
