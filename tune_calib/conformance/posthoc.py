"""What every post-hoc method must do."""

import torch
from torch import Tensor

from tune_calib.conformance.bench import Bench
from tune_calib.conformance.check import Check, NotApplicableError, require
from tune_calib.methods._base import PostHocMethod
from tune_calib.spec.methods import MethodInfo, Params
from tune_calib.spec.names import FLAGS

SCALES = (0.2, 1.0, 30.0)  # from under-confident to saturated


def fitted(info: MethodInfo, logits: Tensor, labels: Tensor, params: Params) -> PostHocMethod:
    """The transform of some classifiers."""
    method: PostHocMethod = info.implementation(params)
    method.fit(logits, labels)
    return method


def classifiers(info: MethodInfo, bench: Bench) -> tuple[Tensor, Tensor]:
    """Logits (3, N, C) on ``calib``, of a network at several scales, and the labels.

    For a method that takes fewer classes: the samples of the first ones.
    """
    calib = bench.bank.calib()
    known = calib.labels < (info.classes or calib.logits.shape[-1])
    logits = calib.logits[known, : info.classes]
    return torch.stack([scale * logits for scale in SCALES]), calib.labels[known]


def finite(info: MethodInfo, bench: Bench) -> None:
    """Fitted on classifiers from under-confident to saturated."""
    is_finite(info, bench, info.params())


def is_finite(info: MethodInfo, bench: Bench, params: Params) -> None:
    """Check what is fitted under some hyper-parameters, and the logits that it makes."""
    logits, labels = classifiers(info, bench)
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
    logits, labels = classifiers(info, bench)
    together = fitted(info, logits, labels, info.params()).transform(logits)[-1:]
    alone = fitted(info, logits[-1:], labels, info.params()).transform(logits[-1:])
    require(torch.equal(together, alone), "its logits depend on the classifiers beside it")


def repeats(info: MethodInfo, bench: Bench) -> None:
    """Fitted twice under different states of torch's global generator."""
    logits, labels = classifiers(info, bench)
    found = []
    for state in (1, 2):
        torch.manual_seed(state)
        found.append(fitted(info, logits, labels, info.params()).transform(logits))
    require(torch.equal(*found), "fitted twice, its logits differ")


def restored(info: MethodInfo, bench: Bench) -> None:
    """The state of a fit in a fresh instance, as float64 and where nothing is computed."""
    logits, labels = classifiers(info, bench)
    method = fitted(info, logits, labels, info.params())
    state = method.state()
    for name, values in state.items():
        require(isinstance(values, Tensor), f"{name} of its state is no tensor")
        is_each = values.shape[:1] == (len(SCALES),)
        require(is_each, f"{name} of its state has shape {tuple(values.shape)}, not (3, ...)")
    again: PostHocMethod = info.implementation(info.params())
    again.load_state({name: values.clone() for name, values in state.items()})
    # As many samples as nothing else counts: what a fit reads of calib must be in its state.
    few = logits[:, :7]
    is_same = torch.equal(method.transform(few), again.transform(few))
    require(is_same, "a fresh instance with its state gives other logits")
    # There tensors have no numbers: what leaves torch, or asks for a number, fails.
    again.load_state({name: values.to("meta") for name, values in state.items()})
    shape = again.transform(few.to("meta")).shape
    require(shape == few.shape, f"without numbers its shape is {tuple(shape)}")


def accuracy(info: MethodInfo, bench: Bench) -> None:
    """Fitted on classifiers from under-confident to saturated, on hard logits."""
    if not info.keeps_accuracy:
        raise NotApplicableError("it may change which class is first, and says so")
    logits, labels = classifiers(info, bench)
    method = fitted(info, logits, labels, info.params())
    for told, given in hard(logits).items():
        is_same = torch.equal(method.transform(given).argmax(-1), given.argmax(-1))
        require(is_same, f"of {told} another class is first")


def hard(logits: Tensor) -> dict[str, Tensor]:
    """Logits that are easily put into another order, by what is hard in them."""
    wide = logits.double()
    lead = torch.zeros_like(wide).scatter(-1, wide.argmax(-1, keepdim=True), 1.0)
    return {
        "plain logits": wide,
        "saturated logits": 100 * wide,
        "nearly equal logits": 1e-3 * wide,
        "one-hot logits": lead,
        "logits with a lead of a billionth": 1e-9 * lead,
        "shifted logits": wide + 1000,
    }


CHECKS = (
    Check("finite", "what it fits is finite, from under-confident to saturated", finite),
    Check("independent", "its digits do not depend on the classifiers beside it", independent),
    Check("repeats", "the same logits give the same digits", repeats),
    Check("kept", "its state alone makes the transform, by operations of torch", restored),
    Check("accuracy", "it keeps the class that is first, if it says so", accuracy),
)
