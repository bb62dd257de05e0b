"""Checks of head methods."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tune_calib.conformance.bench import CPU, HEAD, Bench, NotApplicableError, check, require
from tune_calib.conformance.tape import capture, guarded, to_meta
from tune_calib.engine.classifier import Classifier, tensors_of_trial
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.spec.methods import MethodInfo
from tune_calib.spec.settings import own_recipe
from tune_calib.spec.slots.head import HeadSlot


def slots(info: MethodInfo, count: int, **head: Any) -> list[HeadSlot]:
    heads = []
    for k in range(count):
        settings = {"method": info.name, **HEAD, "seed": k, "lr": 0.01 * (k + 1), **head}
        heads.append(HeadSlot.build(**settings))
    return heads


def trained(
    heads: Sequence[HeadSlot], bench: Bench, epochs: int | None = None
) -> tuple[HeadBatchTrainer, list[dict[str, Tensor]]]:
    trainer = HeadBatchTrainer(heads, bench.bank, 0, CPU)
    return trainer, list(itertools.islice(trainer, epochs))


@check("head", "finite", "losses and logits are finite, with one loss per head")
def _finite(info: MethodInfo, bench: Bench) -> None:
    heads = slots(info, 2)
    trainer = HeadBatchTrainer(heads, bench.bank, 0, CPU)
    train, classes = bench.bank.train(0), trainer.method.context.classes
    trainer.method.begin_epoch(0)
    trainer.method.begin_batch(0)
    trainer.method.drawn = trainer.method.draw(0, 7)
    # Two heads, seven samples, ten classes: no two sizes are equal, so swapped axes are detected.
    logits = trainer.method.training_logits(train.features[:7])
    require(
        logits.shape == (2, 7, classes),
        f"training_logits of 2 heads, 7 samples, {classes} classes has shape {tuple(logits.shape)}",
    )
    loss = trainer.method.loss(logits.log_softmax(-1), train.labels[:7])
    require(loss.shape == (2,), f"the loss of 2 heads has shape {tuple(loss.shape)}, not (2,)")
    trainer, reports = trained(heads, bench)
    for report in reports:
        for name, values in report.items():
            require(values.shape == (2,), f"{name} of 2 heads has shape {tuple(values.shape)}")
            require(values.isfinite().all(), f"{name} is not finite")
    require(trainer.predict(bench.bank.select()).isfinite().all(), "a logit is not finite")


@check("head", "independent", "the results of a head do not depend on its head batch")
def _independent(info: MethodInfo, bench: Bench) -> None:
    select = bench.bank.select()
    for order in ("shared", "own"):
        # Clipped, since a norm over the gradients of all heads is the easiest way to couple them.
        heads = slots(info, 5, batch_order=order, clip_grad_norm=0.5)
        together, reports = trained(heads, bench)
        alone, reports_alone = trained(heads[3:4], bench)
        for report, report_alone in zip(reports, reports_alone, strict=True):
            for name in report:
                is_same = torch.equal(report[name][3:4], report_alone[name])
                require(is_same, f"with {order} batches, its {name} depends on the other heads")
        is_same = torch.equal(together.predict(select)[3], alone.predict(select)[0])
        require(is_same, f"with {order} batches, its logits depend on the other heads")


@check("head", "learns", "the loss decreases")
def _learns(info: MethodInfo, bench: Bench) -> None:
    recipe = {**own_recipe(info, ""), "epochs": 5, "lr": 0.003}
    _, reports = trained(slots(info, 1, **recipe), bench)
    first, last = (float(report["train/loss"]) for report in (reports[0], reports[-1]))
    require(last < first, f"the loss goes from {first:.4g} to {last:.4g}")


@check("head", "resumable", "a run resumed after any epoch gives exactly the same results")
def _resumable(info: MethodInfo, bench: Bench) -> None:
    for optimizer in ("sgd", "adam", "adamw"):
        heads = slots(info, 2, lr=0.01, optimizer=optimizer)
        uninterrupted, _ = trained(heads, bench)
        state = None
        for _ in range(heads[0].epochs):
            trainer = HeadBatchTrainer(heads, bench.bank, 0, CPU)
            if state is not None:
                trainer.load_state(state)
            next(trainer)
            state = {name: tensor.detach().clone() for name, tensor in trainer.state().items()}
        test = bench.bank.test()
        is_same = torch.equal(uninterrupted.predict(test), trainer.predict(test))
        require(is_same, f"with {optimizer}, resumed after every epoch, its logits differ")


@check("head", "repeats", "results depend on the seed only")
def _repeats(info: MethodInfo, bench: Bench) -> None:
    logits = []
    for state in (1, 2):
        torch.manual_seed(state)
        logits.append(trained(slots(info, 2), bench)[0].predict(bench.bank.select()))
    require(torch.equal(*logits), "trained twice with the same seed, its logits differ")


@check("head", "kept", "predictions depend on its parameters and its state only")
def _restored(info: MethodInfo, bench: Bench) -> None:
    for rule in ("last", "min_val_nll"):
        heads = slots(info, 2, select=rule)
        trainer, _ = trained(heads, bench)
        again = Classifier(heads[1], None, tensors_of_trial(trainer, 1, None))
        test = bench.bank.test()
        logits = again.uncalibrated(test.features, test.logits)
        is_same = torch.equal(logits[0], trainer.predict(test)[1])
        require(
            is_same,
            f"rebuilt from its parameters and its state, with select={rule}, its logits differ: "
            "state() must return everything that predict() reads",
        )


@check("head", "captured", "its step can be captured, and is then repeated to the last digit")
def _captured(info: MethodInfo, bench: Bench) -> None:
    if not info.implementation.is_capturable:
        raise NotApplicableError("it is not captured, because is_capturable is False")
    method = HeadBatchTrainer(slots(info, 2), bench.bank, 0, CPU).method
    method.begin_epoch(0)
    method.begin_batch(0)
    method.drawn = method.draw(0, 7)
    vars(method).update(to_meta(vars(method)))
    train = bench.bank.train(0)
    features, labels = to_meta(train.features[:7]), to_meta(train.labels[:7])
    with guarded():
        log_probs = method.training_logits(features).log_softmax(-1)
        method.loss(log_probs, labels).sum().backward()
        method.update_masks(), method.gradient_masks()
    for optimizer in ("sgd", "adam"):
        heads = slots(info, 2, optimizer=optimizer)
        eager, captured = (HeadBatchTrainer(heads, bench.bank, 0, CPU) for _ in range(2))
        capture(captured)
        for reports in zip(eager, captured, strict=True):
            is_same = all(torch.equal(reports[0][name], reports[1][name]) for name in reports[0])
            require(is_same, f"with {optimizer}, repeated from its first step, its reports differ")
        logits = [trainer.predict(bench.bank.select()) for trainer in (eager, captured)]
        require(torch.equal(*logits), f"with {optimizer}, repeated steps give other logits")


@check("head", "nan", "a head that becomes NaN is reported and does not affect the others")
def _diverges(info: MethodInfo, bench: Bench) -> None:
    heads = slots(info, 2)
    together, _ = trained(heads, bench, epochs=1)
    for tensor in together.method.parameters.values():
        tensor.data[1] = math.nan
    list(together)
    alone, _ = trained(heads[:1], bench)
    require(together.diverged_epoch[1] >= 0, "a head with NaN is not reported as diverged")
    require(together.diverged_epoch[0] < 0, "a head diverges because another one diverged")
    logits = [trainer.predict(bench.bank.test())[0] for trainer in (together, alone)]
    require(torch.equal(*logits), "the logits of a head change when another one diverges")
