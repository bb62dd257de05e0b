"""What every post-hoc method must do."""

import torch
from torch import Tensor

from tune_calib.conformance.bench import Bench
from tune_calib.conformance.check import Check, require
from tune_calib.methods._base import PostHocMethod
from tune_calib.names import FLAGS
from tune_calib.registry import MethodInfo, Params

SCALES = (0.2, 1.0, 30.0)  # from under-confident to saturated


def fitted(info: MethodInfo, logits: Tensor, labels: Tensor, params: Params) -> PostHocMethod:
    """The transform of some classifiers."""
    method: PostHocMethod = info.implementation(params)
    method.fit(logits, labels)
    return method


def classifiers(bench: Bench) -> tuple[Tensor, Tensor]:
    """Logits (3, N, C) on ``calib``, of a network at several scales, and the labels."""
    calib = bench.bank.calib()
    return torch.stack([scale * calib.logits for scale in SCALES]), calib.labels


def finite(info: MethodInfo, bench: Bench) -> None:
    """Fitted on classifiers from under-confident to saturated."""
    is_finite(info, bench, info.params())


def is_finite(info: MethodInfo, bench: Bench, params: Params) -> None:
    """What is fitted under some hyper-parameters, and what it makes of logits."""
    logits, labels = classifiers(bench)
    method = fitted(info, logits, labels, params)
    changed = method.transform(logits)
    shapes = f"{tuple(logits.shape)} to {tuple(changed.shape)}"
    require(changed.shape == logits.shape, f"transform changes the shape from {shapes}")
    require(changed.isfinite().all(), "a transformed logit is not finite")
    for name, values in method.fitted().items():
        require(values.shape == (len(SCALES),), f"fitted {name} is not a number a classifier")
        require(values.isfinite().all(), f"fitted {name} is not finite")
    require(method.flags().keys() <= FLAGS.keys(), f"flags must be of {', '.join(FLAGS)}")


def independent(info: MethodInfo, bench: Bench) -> None:
    """The last of three classifiers, and the same one alone."""
    logits, labels = classifiers(bench)
    together = fitted(info, logits, labels, info.params()).transform(logits)[-1:]
    alone = fitted(info, logits[-1:], labels, info.params()).transform(logits[-1:])
    require(torch.equal(together, alone), "its logits depend on the classifiers beside it")


def repeats(info: MethodInfo, bench: Bench) -> None:
    """Fitted twice under different states of torch's global generator."""
    logits, labels = classifiers(bench)
    found = []
    for state in (1, 2):
        torch.manual_seed(state)
        found.append(fitted(info, logits, labels, info.params()).transform(logits))
    require(torch.equal(*found), "fitted twice, its logits differ")


CHECKS = (
    Check("finite", "what it fits is finite, from under-confident to saturated", finite),
    Check("independent", "its digits do not depend on the classifiers beside it", independent),
    Check("repeats", "the same logits give the same digits", repeats),
)
