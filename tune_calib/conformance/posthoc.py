"""Checks of post-hoc methods."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from tune_calib.conformance.bench import Bench, NotApplicableError, check, require
from tune_calib.methods._base import PostHocMethod
from tune_calib.spec.methods import MethodInfo, Params
from tune_calib.spec.names import FLAGS

SCALES = (0.2, 1.0, 30.0)  # from under-confident to saturated


def _fit(
    info: MethodInfo, logits: Tensor, labels: Tensor, params: Params, features: Sequence[Tensor]
) -> PostHocMethod:
    method: PostHocMethod = info.implementation(params)
    method.fit(logits, labels, *features)
    return method


def _classifiers(info: MethodInfo, bench: Bench) -> tuple[Tensor, ...]:
    """Return logits (3, N, C) of a network on ``calib`` at several scales, and the labels (N,).

    Features (N, D) follow, if the method reads them. A method that supports fewer classes gets
    only the samples of the first classes.
    """
    calib = bench.bank.calib()
    is_supported = calib.labels < (info.classes or calib.logits.shape[-1])
    logits = calib.logits[is_supported, : info.classes]
    samples = torch.stack([scale * logits for scale in SCALES]), calib.labels[is_supported]
    features = calib.features[is_supported]
    return (*samples, features) if info.implementation.reads_features else samples


@check("posthoc", "finite", "the fit is finite, for under-confident to saturated logits")
def _finite(info: MethodInfo, bench: Bench) -> None:
    is_finite(info, bench, info.params())


def is_finite(info: MethodInfo, bench: Bench, params: Params) -> None:
    logits, labels, *features = _classifiers(info, bench)
    method = _fit(info, logits, labels, params, features)
    changed = method.transform(logits, *features)
    shapes = f"{tuple(logits.shape)} to {tuple(changed.shape)}"
    require(changed.shape == logits.shape, f"transform changes the shape from {shapes}")
    require(changed.isfinite().all(), "a transformed logit is not finite")
    for name, values in method.fitted().items():
        require(values.shape == (len(SCALES),), f"fitted {name} is not one number per classifier")
        require(values.isfinite().all(), f"fitted {name} is not finite")
    require(method.flags().keys() <= FLAGS.keys(), f"flags must be among {', '.join(FLAGS)}")


@check("posthoc", "independent", "results do not depend on other classifiers fitted together")
def _independent(info: MethodInfo, bench: Bench) -> None:
    logits, labels, *features = _classifiers(info, bench)
    fit = partial(_fit, info, labels=labels, params=info.params(), features=features)
    together = fit(logits).transform(logits, *features)[-1:]
    alone = fit(logits[-1:]).transform(logits[-1:], *features)
    require(torch.equal(together, alone), "its logits depend on other classifiers fitted together")


@check("posthoc", "repeats", "the same logits give exactly the same results")
def _repeats(info: MethodInfo, bench: Bench) -> None:
    logits, labels, *features = _classifiers(info, bench)
    transformed = []
    for state in (1, 2):
        torch.manual_seed(state)
        method = _fit(info, logits, labels, info.params(), features)
        transformed.append(method.transform(logits, *features))
    require(torch.equal(*transformed), "fitted twice, its logits differ")


@check("posthoc", "kept", "the transform depends only on its state and uses only torch operations")
def _restored(info: MethodInfo, bench: Bench) -> None:
    if not info.implementation.is_storable:
        raise NotApplicableError("it cannot be stored, and is fitted again instead")
    logits, labels, *features = _classifiers(info, bench)
    method = _fit(info, logits, labels, info.params(), features)
    state = method.state()
    for name, values in state.items():
        require(isinstance(values, Tensor), f"{name} in its state is not a tensor")
        is_each = values.shape[:1] == (len(SCALES),)
        require(is_each, f"{name} in its state has shape {tuple(values.shape)}, not (3, ...)")
    again: PostHocMethod = info.implementation(info.params())
    again.load_state({name: values.clone() for name, values in state.items()})
    # A number of samples different from all other sizes: everything that the transform needs from
    # calib must be in its state.
    few = logits[:, :7]
    of_few = [rows[:7] for rows in features]
    is_same = torch.equal(method.transform(few, *of_few), again.transform(few, *of_few))
    require(is_same, "a new instance with its state gives different logits")
    # Meta tensors have no data: any operation outside torch, or on a number, fails.
    again.load_state({name: values.to("meta") for name, values in state.items()})
    shape = again.transform(*(rows.to("meta") for rows in (few, *of_few))).shape
    require(shape == few.shape, f"on meta tensors, its shape is {tuple(shape)}")


@check("posthoc", "accuracy", "the predicted class does not change, if its record says so")
def _accuracy(info: MethodInfo, bench: Bench) -> None:
    if not info.keeps_accuracy:
        raise NotApplicableError("it may change the predicted class, and its record says so")
    logits, labels, *features = _classifiers(info, bench)
    method = _fit(info, logits, labels, info.params(), features)
    # Logits whose order is easily changed, by kind of difficulty.
    wide = logits.double()
    lead = torch.zeros_like(wide).scatter(-1, wide.argmax(-1, keepdim=True), 1.0)
    hard = {
        "plain logits": wide,
        "saturated logits": 100 * wide,
        "nearly equal logits": 1e-3 * wide,
        "one-hot logits": lead,
        "logits with a lead of a billionth": 1e-9 * lead,
        "shifted logits": wide + 1000,
    }
    for name, hard_logits in hard.items():
        changed = method.transform(hard_logits, *features)
        is_same = torch.equal(changed.argmax(-1), hard_logits.argmax(-1))
        require(is_same, f"it changes the predicted class of {name}")
