"""Calibrators of probmetrics as methods, and its implementations next to ours."""

import importlib
import lzma
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load

from tests.methods.test_posthoc import drawn
from tune_calib.data.imported import SMALLEST
from tune_calib.engine.evaluate import SplitLogits, fit_transform
from tune_calib.errors import DivergedError
from tune_calib.methods._estimator import _reproducible, probabilities
from tune_calib.methods.probmetrics import find_class
from tune_calib.registry import read_index
from tune_calib.spec.slots.base import PostHocSlot

REAL = Path(__file__).parents[2] / "docs/networks/cifar100-resnet18-ce/logits.safetensors.xz"
FAST = [f"probmetrics:{name}" for name in ("TemperatureScaling", "BinaryHistogramBinning")]
# Others may have a bin edge or a step at a tied probability, or a solver that stops early.
STABLE = ["TemperatureScaling", "platt", "ETS"]


def file_of(classes, kind):
    """Probabilities of a file and their labels, for calib and test."""
    logits, labels = drawn(600, classes, 1.5)
    probs = logits.softmax(-1)
    if kind == "tied and extreme":
        probs = (20 * probs).round() / 20
        probs[torch.arange(600), logits.argmax(-1)] += 1 - probs.sum(-1)
    is_calib = torch.arange(600) < 400
    if kind == "a class missing":
        is_calib &= labels != 0
    test = torch.arange(600) >= 400
    return probs.float().clamp(0, 1), labels, is_calib, test


def fitted_by_us(name, logits, labels, new, **settings):
    slot = PostHocSlot.build(method=name, params=settings)
    split = SplitLogits(logits[None], labels)
    transform = fit_transform(slot, split, checks_harm=False)
    return transform.transform(new[None].double())[0].log_softmax(-1)


def fitted_by_them(name, probs, labels, new):
    with _reproducible(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrator = find_class(name.removeprefix("probmetrics:"))()
    with _reproducible(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calibrator.fit(np.asarray(probs), np.asarray(labels))
    with _reproducible(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return calibrator.predict_proba(np.asarray(new))


def test_a_calibrator_of_two_classes_is_fitted_to_each_class_against_the_rest():
    probs, labels, calib, test = file_of(4, "random")
    given, targets = probs[calib].double().numpy(), labels[calib].numpy()
    new = probs[test].double().numpy()
    calibrators = importlib.import_module("probmetrics.calibrators")
    one_by_one = calibrators.MulticlassOneVsRestCalibrator(
        calibrators.BinaryHistogramBinningCalibrator()
    )
    expected = one_by_one.fit(given, targets).predict_proba(new)
    calibrated = fitted_by_them("probmetrics:BinaryHistogramBinning", given, targets, new)
    assert calibrated == pytest.approx(expected, abs=1e-12)


KINDS = ["random", "tied and extreme", "a class missing"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3, 10, 100])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FAST else pytest.mark.slow)
        for name in read_index()["tune_calib.methods"]["families"]
    ],
)
def test_a_method_returns_the_probabilities_of_the_calibrator(name, classes, kind):
    probs, labels, calib, test = file_of(classes, kind)
    logits = probs.clamp(min=SMALLEST).log()  # as an import stores them
    seen = probabilities(logits.double())
    assert seen.numpy() == pytest.approx(probs.numpy(), abs=2e-7)
    try:
        expected = fitted_by_them(name, seen[calib], labels[calib], seen[test])
    except ImportError:
        pytest.skip(f"{name} needs a package that is not installed")
    except Exception:  # whatever it raises, the method says in one line
        with pytest.raises(DivergedError, match=f"{name} failed on calib"):
            fitted_by_us(name, logits[calib], labels[calib], logits[test])
        return
    if not ((expected >= 0) & (expected <= 1 + 1e-6)).all():
        with pytest.raises(DivergedError, match="no probabilities"):
            fitted_by_us(name, logits[calib], labels[calib], logits[test])
        return
    if expected.shape[1] < classes:  # Venn-Abers has no column for a class without samples
        present = labels[calib].unique().numpy()
        expected, columns = np.zeros((len(expected), classes)), expected
        expected[:, present] = columns
    expected = expected / expected.sum(1, keepdims=True)
    calibrated = fitted_by_us(name, logits[calib], labels[calib], logits[test]).exp().numpy()
    assert calibrated == pytest.approx(expected, abs=1e-6)


# Our method, its settings, theirs, and the tolerance of the probabilities on real logits; None: the
# optimum is not unique, or theirs stops earlier, and only our NLL on calib is not above theirs.
PAIRS = [
    ("temperature", {}, "TemperatureScaling", 1e-6),
    ("ets", {}, "ETS", 1e-5),
    ("isotonic", {}, "isotonic", 1e-9),
    ("histogram", {"binning": "equal_mass"}, "BinaryHistogramBinning", None),
    ("svs", {}, "SVS", 1e-3),
    ("sms", {}, "SMS", 1e-2),
    ("vector", {}, "VectorScaling", None),
    ("matrix", {"off_diagonal": 0.0, "intercept": 0.0}, "MatrixScaling", None),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize(("name", "settings", "theirs", "tolerance"), PAIRS)
def test_our_methods_on_real_logits_next_to_those_of_probmetrics(
    name, settings, theirs, tolerance, scale
):
    with lzma.open(REAL) as file:
        tensors = load(file.read())
    # Ten classes, since a matrix of a hundred takes minutes.
    parts = {}
    for split in ("calib", "test"):
        labels = tensors[f"{split}.labels"].long()
        logits = scale * tensors[f"{split}.logits"].float()
        parts[split] = logits[labels < 10, :10], labels[labels < 10]
    (logits, labels), (new, _) = parts["calib"], parts["test"]
    options = {"strategy": "quantile"} if name == "histogram" else {}
    both = torch.cat([logits, new])
    ours = fitted_by_us(name, logits, labels, both, **settings)
    other = fitted_by_us(f"probmetrics:{theirs}", logits, labels, both, **options)
    nll = torch.nn.functional.nll_loss
    assert nll(ours[: len(labels)], labels) <= nll(other[: len(labels)], labels) + 2e-3
    # Scaled logits are probabilities of 1e-38 and less, which theirs raise to that.
    if tolerance is not None and (scale == 1 or name == "isotonic"):
        assert ours.exp().numpy() == pytest.approx(other.exp().numpy(), abs=tolerance)
