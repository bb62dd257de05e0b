"""Checks of network methods."""

import contextlib
import copy
import math
from typing import Any

import torch
from torch import Tensor

from tune_calib.conformance.bench import (
    CPU,
    FEW,
    SAMPLES,
    Bench,
    FailedCheckError,
    NotApplicableError,
    check,
    require,
    toy_batch,
    toy_method,
    toy_network,
)
from tune_calib.conformance.tape import META, capture, guarded, to_meta
from tune_calib.engine.network import NetworkTrainer
from tune_calib.errors import DivergedError
from tune_calib.methods._base import Batch, EpochFeedback
from tune_calib.spec.methods import MethodInfo, Params
from tune_calib.spec.trial import TrialSpec


def _trainer(info: MethodInfo, bench: Bench, **network: Any) -> NetworkTrainer:
    slot = {"method": info.name, "epochs": 3, "batch_size": 64, "lr": 0.01, **network}
    return NetworkTrainer(TrialSpec.build(data=FEW, network=slot), bench.few, CPU)


@check("network", "finite", "loss and gradient are finite for 2, 5 and 100 classes")
def _finite(info: MethodInfo, bench: Bench) -> None:
    for classes in (2, 5, 100):
        step_is_finite(info, classes, info.params())


def step_is_finite(info: MethodInfo, classes: int, params: Params) -> None:
    network, batch = toy_network(classes), toy_batch(classes)
    method = toy_method(info, network, classes, params=params)
    step = method.step(network, batch)
    case = f"with {classes} classes"
    require(step.loss.ndim == 0, f"{case} the loss has shape {tuple(step.loss.shape)}, not ()")
    shape = tuple(step.logits.shape)
    require(shape == (SAMPLES, classes), f"{case} the logits of a step have shape {shape}")
    require(step.loss.isfinite(), f"{case} the loss is {float(step.loss.detach())}")
    step.loss.backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    require(gradients, f"{case} no weight has a gradient")
    require(all(g.isfinite().all() for g in gradients), f"{case} the gradient is not finite")
    method.after_step(step.logits.detach(), batch.labels, batch.indices)
    method.records.append(method.record)
    report = method.end_epoch(0, EpochFeedback(step.logits.detach(), batch.labels))
    for name, value in report.items():
        require(math.isfinite(value), f"{case} end_epoch reports {name} = {value}")
    output = method.eval()(network.eval(), batch.images)
    shape = tuple(output.logits.shape)
    require(shape == (SAMPLES, classes), f"{case} forward returns logits of shape {shape}")


@check("network", "gradient", "the gradient matches the loss")
def _gradient(info: MethodInfo, bench: Bench) -> None:
    # Compared with finite differences in double precision: in single precision, rounding errors
    # would exceed the effect of such a small step.
    loss, bias = _loss_and_bias(info)
    loss.backward()
    gradient = bias.grad
    if gradient is None:
        raise FailedCheckError("the bias of the classifier has no gradient")
    start = bias.detach().clone()
    for k in range(3):
        shift = torch.zeros(3, dtype=torch.float64)
        shift[k] = 1e-6
        ends = [float(_loss_and_bias(info, start + s * shift)[0].detach()) for s in (1, -1)]
        slope = (ends[0] - ends[1]) / 2e-6
        derivative = float(gradient[k])
        is_close = math.isclose(derivative, slope, rel_tol=1e-4, abs_tol=1e-8)
        require(is_close, f"at bias {k} it is {derivative:.6g}, but the slope is {slope:.6g}")


def _loss_and_bias(info: MethodInfo, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the loss of a step and the bias of the classifier, optionally set to ``start``."""
    # Created for each loss, since a step may change the state of the method.
    network = toy_network(3)
    method = toy_method(info, network, 3, torch.float64)
    # The bias of the network, or of the method if it has its own classifier.
    bias = [p for p in (*network.parameters(), *method.parameters()) if p.shape == (3,)][-1]
    if start is not None:
        bias.data.copy_(start)
    return method.step(network, toy_batch(3, torch.float64)).loss, bias


@check("network", "order", "the order of a batch does not matter")
def _order(info: MethodInfo, bench: Bench) -> None:
    if info.pairs_by_order:
        raise NotApplicableError("it pairs the samples of a batch by their order")
    shuffled = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(3))
    losses = []
    for order in (None, shuffled):
        network = toy_network(4)
        method = toy_method(info, network, 4, torch.float64)
        losses.append(float(method.step(network, toy_batch(4, torch.float64, order)).loss.detach()))
    # Not to the last digit, since the order of sums over a batch changes.
    is_close = math.isclose(*losses, rel_tol=1e-9)
    require(is_close, f"the loss is {losses[0]:.9g}, but {losses[1]:.9g} for the shuffled batch")


@check("network", "learns", "the loss decreases on a learnable problem")
def _learns(info: MethodInfo, bench: Bench) -> None:
    epochs = 80
    network = toy_network(3)
    method = toy_method(info, network, 3, epochs=epochs)
    batch, untrained = toy_batch(3), copy.deepcopy(network)
    optimizer = torch.optim.Adam([*network.parameters(), *method.parameters()], lr=3e-3)
    for epoch in range(epochs):
        method.begin_epoch(epoch, torch.Generator().manual_seed(epoch))
        method.drawn = method.draw(SAMPLES)
        step = method.step(network, batch)
        optimizer.zero_grad()
        step.loss.backward()
        optimizer.step()
        method.after_step(step.logits.detach(), batch.labels, batch.indices)
        method.records.append(method.record)
        logits = method.eval()(network, batch.images).logits.detach()
        method.train().end_epoch(epoch, EpochFeedback(logits, batch.labels))
    # With the same state of the method, since losses of different states are not comparable.
    losses = []
    for weights in (untrained, network):
        method.begin_epoch(epochs - 1, torch.Generator().manual_seed(0))
        method.drawn = method.draw(SAMPLES)
        losses.append(float(method.step(weights, batch).loss.detach()))
    require(losses[1] < losses[0], f"the loss goes from {losses[0]:.4g} to {losses[1]:.4g}")


@check("network", "resumable", "a run resumed after any epoch gives exactly the same results")
def _resumable(info: MethodInfo, bench: Bench) -> None:
    for optimizer in ("sgd", "adam"):
        slot = {"optimizer": optimizer, "select": "min_val_nll"}
        uninterrupted = _trainer(info, bench, **slot)
        list(uninterrupted)
        saved = None
        for _ in range(uninterrupted.slot.epochs):
            resumed = _trainer(info, bench, **slot)
            if saved is not None:
                resumed.load_state(*saved)
            next(resumed)
            tensors, progress = resumed.state()
            saved = {name: t.detach().clone() for name, t in tensors.items()}, progress
        _compare_weights(uninterrupted, resumed, f"with {optimizer}, resumed after every epoch")


@check("network", "repeats", "results depend on the seed only")
def _repeats(info: MethodInfo, bench: Bench) -> None:
    runs = [_trainer(info, bench, epochs=2) for _ in range(2)]
    for state, run in enumerate(runs):
        torch.manual_seed(state)
        list(run)
    _compare_weights(runs[0], runs[1], "trained twice with the same seed")


def _compare_weights(first: NetworkTrainer, second: NetworkTrainer, case: str) -> None:
    weights, others = first.selected(), second.selected()
    for name, tensor in weights.items():
        require(torch.equal(tensor, others[name]), f"{case}, {name} differs")


@check("network", "captured", "its step can be captured, and is then repeated to the last digit")
def _captured(info: MethodInfo, bench: Bench) -> None:
    if not info.implementation.is_capturable:
        raise NotApplicableError("it is not captured, because is_capturable is False")
    network, batch = toy_network(5), toy_batch(5)
    method = toy_method(info, network, 5).to(META)
    method.drawn = to_meta(method.drawn)
    batch = Batch(*map(to_meta, (batch.images, batch.labels, batch.indices)))
    with guarded():
        step = method.step(network.to(META), batch)
        step.loss.backward()
        method.after_step(step.logits.detach(), batch.labels, batch.indices)
    # Rates that float32 represents, as a captured step receives them.
    slot = {"lr": 2**-6, "lr_decay": 0.5, "milestones": [0.5]}
    eager, captured = (_trainer(info, bench, **slot) for _ in range(2))
    for trainer in (eager, captured):
        for group in trainer.optimizer.param_groups:
            group["fused"] = True  # as on a GPU, where the rate may be a tensor
    capture(captured)
    list(eager), list(captured)
    _compare_weights(eager, captured, "repeated from its first step")


@check("network", "nan", "a NaN ends the trial as diverged")
def _diverges(info: MethodInfo, bench: Bench) -> None:
    run = _trainer(info, bench)
    next(run)
    next(run.network.parameters()).data.fill_(math.nan)
    with contextlib.suppress(DivergedError):
        next(run)
        require(False, "training continues although the network contains NaN")
