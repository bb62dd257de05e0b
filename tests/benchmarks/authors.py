"""Fits of our post-hoc maps next to those of their authors' programs, which a folder holds.

Each program is executed from its checkout, with its imports that are not needed replaced by empty
modules and without a GPU. Both sides fit and transform the same logits; the time is that of the
processor on one core. The objective is computed from the probabilities of both, in double
precision.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from time import process_time
from typing import NamedTuple
from unittest.mock import MagicMock, patch

import numpy as np
import torch
from tabulate import tabulate
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, softplus
from torch.utils.data import DataLoader, TensorDataset

from tests.benchmarks.posthoc import drawn
from tune_calib.methods.focal_temperature import GAMMAS
from tune_calib.methods.smart import soft_ece
from tune_calib.methods.temperature import top_versus_all_losses
from tune_calib.spec.methods import METHODS

UNUSED = ["netcal.binning", "netcal.scaling", "bokeh.io", "bokeh.plotting", "bokeh.layouts"]
TOP = {"top_versus_all": True}


@contextmanager
def program(folder: Path) -> Iterator[None]:
    """Import the modules of a checkout, which have common names such as ``utils``, for a while."""
    loaded_before = set(sys.modules)
    stubs = {name: MagicMock() for name in (*UNUSED, "netcal", "bokeh")}
    with (
        patch.dict(sys.modules, stubs),
        patch.object(sys, "path", [str(folder), *sys.path]),
        patch.object(nn.Module, "cuda", lambda module: module),
        patch.object(Tensor, "cuda", lambda tensor: tensor),
        redirect_stdout(StringIO()),
    ):
        yield
    for name in set(sys.modules) - loaded_before:
        if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def smart(logits: Tensor, labels: Tensor) -> Tensor:
    return import_module("smart").SMART().fit(logits, labels).calibrate(logits)


def order_preserving(logits: Tensor, labels: Tensor, width: int, is_sorted: bool) -> Tensor:
    """The model of the program, trained as in its configurations for CIFAR-10: Adam, 40 epochs.

    Its loop is repeated here without the metrics that it computes for every batch.
    """
    classes = logits.shape[1]
    base = import_module("models.fc_model").FCModel([width, width], num_classes=classes)
    model = import_module("models.order_preserving_model").OrderPreservingModel(
        base, invariant=is_sorted, num_classes=classes, m_activation=softplus
    )
    solver = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    for _ in range(40):
        for part, targets in DataLoader(TensorDataset(logits, labels), 256, shuffle=True):
            loss = cross_entropy(model(part), targets)
            solver.zero_grad()
            loss.backward()
            solver.step()
    with torch.no_grad():
        return model(logits).softmax(1)


def order_invariant(logits: Tensor, labels: Tensor) -> Tensor:
    return order_preserving(logits, labels, width=10, is_sorted=True)


def order_of_all(logits: Tensor, labels: Tensor) -> Tensor:
    return order_preserving(logits, labels, width=2, is_sorted=False)


def top_versus_all(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    def fit(logits: Tensor, labels: Tensor) -> Tensor:
        batches = list(zip(logits.split(512), labels.split(512), strict=True))
        train = import_module("calibrators").fit_scaling_model
        fitted = train(name, batches, logits.shape[1], binary_loss=True, regularization=True)
        with torch.no_grad():
            return fitted(logits).softmax(1)

    return fit


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    """The best of the fits for each gamma, which the program leaves to its user."""
    module = import_module("temperature_scaling")
    fits = []
    for gamma in GAMMAS:
        model = module.ModelWithTemperature(nn.Identity(), log=False, gamma=gamma, softmax=False)
        model.new_method = False  # which nothing sets
        model.set_temperature([(logits, labels)])
        fits.append((np.nanmin(model.nll_vals), gamma, model.temperature))
    _, gamma, temperature = min(fits)
    return module.multi_focal_link(logits / temperature, gamma)


def mix_n_match(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    def fit(logits: Tensor, labels: Tensor) -> Tensor:
        module = import_module("util_calibration")
        scores, targets = logits.double().numpy(), one_hot(labels, logits.shape[1]).numpy()
        if name == "ets":
            classes = targets.shape[1]
            return torch.from_numpy(module.ets_calibrate(scores, targets, scores, classes, "mse"))
        if name == "irova_ts":
            scores = np.log(module.ts_calibrate(scores, targets, scores, "mse"))
        fitted = module.mir_calibrate if name == "irm" else module.irova_calibrate
        return torch.from_numpy(fitted(scores, targets, scores))

    return fit


def toplabel_histogram(logits: Tensor, labels: Tensor) -> Tensor:
    """The confidences; its own prediction, one sample at a time, fails with NumPy of today."""
    probs = logits.double().softmax(1).numpy()
    binning = import_module("calibration").HB_toplabel(points_per_bin=50)
    binning.fit(probs, labels.numpy() + 1)
    confidence, predicted = probs.max(1), probs.argmax(1)
    for label, curve in enumerate(binning.hb_binary_list):
        if (predicted == label).any():
            confidence[predicted == label] = curve.predict_proba(confidence[predicted == label])
    return torch.from_numpy(confidence)


def spline(logits: Tensor, labels: Tensor) -> Tensor:
    """The confidences."""
    module = import_module("recalibrate")
    scores, hits, _ = module.get_top_results(
        logits.double().softmax(1).numpy(), labels.numpy(), -1, return_topn_classid=True
    )
    curve = module.get_recalibration_function(scores, hits, "natural", 6)
    return torch.tensor([curve(float(score)) for score in scores]).double().clamp(0, 1)


# Objectives of probabilities (N, C), or of confidences (N,), at logits (N, C) and labels (N,).


def nll(probs: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    shares = probs / probs.sum(1, keepdim=True)
    return -shares.clamp_min(1e-12).gather(1, labels[:, None]).log().mean()


def brier(probs: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    shares = probs / probs.sum(1, keepdim=True)
    return (shares - one_hot(labels, probs.shape[1])).square().sum(1).mean()


def top_nll(probs: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """Without the penalty of a vector."""
    return top_versus_all_losses(probs.log(), labels).mean()


def hits_of(logits: Tensor, labels: Tensor) -> Tensor:
    return (logits.argmax(1) == labels).double()


def top_brier(probs: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    confidence = probs if probs.ndim == 1 else probs.amax(1)
    return (confidence - hits_of(logits, labels)).square().mean()


def soft_ece_of(probs: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    return soft_ece(probs.amax(1), hits_of(logits, labels))


class Pair(NamedTuple):
    name: str
    settings: dict
    repository: str
    modules: Sequence[str]
    fit: Callable[[Tensor, Tensor], Tensor]
    objective: Callable[[Tensor, Tensor, Tensor], Tensor]
    most_classes: int = 1000


MIX = "Mix-n-Match-Calibration", ["util_calibration"]
MODELS = ["models.fc_model", "models.order_preserving_model"]
INTRA = "IntraOrderPreservingCalibration", MODELS
TVA = "tva-calibration", ["calibrators"]
FOCAL = "focal_temperature_scaling", ["temperature_scaling"]
PAIRS = [
    Pair("smart", {}, "ICML2026-SMART", ["smart"], smart, soft_ece_of),
    Pair("iop_oi", {}, *INTRA, order_invariant, nll),
    Pair("iop_op", {}, *INTRA, order_of_all, nll),
    Pair("temperature", TOP, *TVA, top_versus_all("temperature"), top_nll),
    Pair("vector", TOP, *TVA, top_versus_all("vector"), top_nll),
    Pair("matrix", TOP, *TVA, top_versus_all("dirichlet"), top_nll, most_classes=100),
    Pair("focal_temperature", {}, *FOCAL, focal, nll, most_classes=100),
    Pair("ets", {}, *MIX, mix_n_match("ets"), brier),
    Pair("irm", {}, *MIX, mix_n_match("irm"), brier),
    Pair("irova", {}, *MIX, mix_n_match("irova"), brier),
    Pair("irova_ts", {}, *MIX, mix_n_match("irova_ts"), brier),
    Pair(
        "histogram_toplabel",
        {},
        "df-posthoc-calibration",
        ["calibration"],
        toplabel_histogram,
        top_brier,
    ),
    Pair("spline", {}, "spline-calibration", ["recalibrate"], spline, top_brier),
]


def ours(pair: Pair, logits: Tensor, labels: Tensor) -> Tensor:
    method = METHODS[pair.name].implementation(METHODS[pair.name].params(**pair.settings))
    method.checks_harm = False
    method.fit(logits[None], labels)
    return method.transform(logits[None])[0].double().softmax(1)


def timed(
    fit: Callable[[Tensor, Tensor], Tensor], logits: Tensor, labels: Tensor
) -> tuple[float, Tensor]:
    started = process_time()
    probs = fit(logits, labels)
    return process_time() - started, probs.double()


def compare_with_authors(
    folder: Path, sizes: Sequence[int], samples: int, only: Sequence[str]
) -> None:
    """Print the seconds and objectives of both by the number of classes."""
    rows = []
    for classes in sizes:
        logits, labels = drawn(samples, classes)
        for pair in PAIRS:
            is_left_out = (only and pair.name not in only) or classes > pair.most_classes
            if is_left_out or not (folder / pair.repository).is_dir():
                continue
            seconds, probs = timed(lambda *data, pair=pair: ours(pair, *data), logits, labels)
            with program((folder / pair.repository).resolve()):
                for module in pair.modules:  # whose import is not measured
                    import_module(module)
                their_seconds, their_probs = timed(pair.fit, logits, labels)
            objectives = [
                float(pair.objective(values, logits, labels)) for values in (probs, their_probs)
            ]
            title = " ".join([pair.name, *pair.settings])
            rows.append(
                [title, classes, seconds, their_seconds, their_seconds / seconds, *objectives]
            )
            print(*rows[-1], flush=True)
    heads = ["fit", "classes", "ours (s)", "theirs (s)", "theirs / ours", "our objective", "theirs"]
    print(
        tabulate(
            rows, heads, tablefmt="github", floatfmt=("", "", ".2f", ".2f", ".1f", ".4f", ".4f")
        )
    )
