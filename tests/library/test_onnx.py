"""ONNX files give the probabilities of the module, for every head and every transform."""

import json

import numpy as np
import onnxruntime
import pytest
import torch

from tests.classifiers import HEADS, OF_DIGITS, POSTHOC, TOLD, classifier_of, spec_of
from tests.support import CPU, sample
from tune_calib.data.splits import load_test
from tune_calib.engine.artifacts import load_network
from tune_calib.engine.classifier import Classifier, tensors_of_trial
from tune_calib.engine.evaluate import SplitLogits, fit_transform
from tune_calib.errors import UserError
from tune_calib.library.calibrated import CalibratedNetwork
from tune_calib.library.onnx_file import CLOSE, write_onnx
from tune_calib.methods import _posthoc
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec

DRAWN = {"vtst", "mac_cal drawn"}
SMALL = {"mac_cal": {"width": 8}, "vtst": {"latent": 8, "evaluation": "mean"}, "tst": {"latent": 8}}


def run_onnx(file, name, inputs, output="probabilities"):
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    assert [input_.name for input_ in session.get_inputs()] == [name]
    return torch.from_numpy(session.run([output], {name: np.asarray(inputs)})[0])


@pytest.mark.slow
@pytest.mark.parametrize("settings", [settings for settings in TOLD if settings not in DRAWN])
def test_an_onnx_file_of_every_head_maps_images_to_probabilities(settings, bank, trained, tmp_path):
    check_images(settings, bank, trained, tmp_path)


def check_images(settings, bank, trained, tmp_path):
    spec = spec_of(settings, "temperature", epochs=1)
    network = CalibratedNetwork(spec, classifier_of(spec, bank), load_network(spec, trained, CPU))
    network.classes = tuple("abcdefghij")
    write_onnx(network, tmp_path / "x.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "x.onnx"))
    names = session.get_modelmeta().custom_metadata_map["class_names"]
    assert tuple(json.loads(names)) == network.classes
    images = load_test(spec.data, None).images
    for some in (images[:1], images[:7], images):
        outputs = run_onnx(tmp_path / "x.onnx", "images", some)
        assert outputs.dtype == torch.float32
        assert (outputs - network(some)).abs().max() <= CLOSE


# An affine map of logits is that of matrix, one of log-probabilities that of dirichlet.
SPLINE = (None, "spline")  # other tests export a temperature and isotonic curves
ONCE = [(None, name) for name in OF_DIGITS if name not in ("vector", "svs", "sms", "spline")]
ONCE += [(settings, "temperature") for settings in (*HEADS, "mac_cal functional")]
CROSSED = [
    (settings, name)
    for settings in (None, *HEADS)
    for name in OF_DIGITS
    if (settings, name) not in (SPLINE, *ONCE)
]
TWO_CLASSES = [name for name in POSTHOC if name not in OF_DIGITS]


@pytest.mark.parametrize(
    ("message", "posthoc"),
    [SPLINE, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ONCE + CROSSED)],
)
def test_onnx_files_hold_every_head_with_every_transform(message, posthoc, bank, tmp_path):
    params = SMALL.get(message, {})
    spec = spec_of(message, posthoc, **({"epochs": 1, "params": params} if message else {}))
    network = CalibratedNetwork(spec, classifier_of(spec, bank), None)
    write_onnx(network, tmp_path / "x.onnx")
    test = bank.test()
    name, inputs = ("features", test.features) if message else ("logits", test.logits)
    outputs = run_onnx(tmp_path / "x.onnx", name, inputs)
    logits = run_onnx(tmp_path / "x.onnx", name, inputs, "uncalibrated")
    uncalibrated = network.classifier.uncalibrated(test.features, test.logits)[0]
    assert torch.allclose(logits, uncalibrated, rtol=CLOSE, atol=CLOSE)
    # On the same logits: a transform may have steps, and enlarges their last digits there.
    calibrated = network.classifier.transform.transform(logits.double()[None])[0].softmax(-1)
    assert (outputs - calibrated).abs().max() <= CLOSE
    if not message:
        assert (outputs - network.from_logits(inputs)).abs().max() <= CLOSE
    some = with_bad_rows(inputs[:5])
    outputs = run_onnx(tmp_path / "x.onnx", name, some)
    assert outputs.isnan().all(1).tolist() == [True] * 4 + [False]


def with_bad_rows(inputs):
    """Inputs whose first four rows have a NaN, only NaN, inf and -inf."""
    changed = inputs.clone()
    changed[0, 1], changed[1], changed[2, 0], changed[3, 2 % inputs.shape[1]] = (
        torch.nan, torch.nan, torch.inf, -torch.inf,
    )  # fmt: skip
    return changed


def test_every_transform_gives_nan_for_a_row_that_is_not_finite():
    for name in POSTHOC:
        logits, labels = saturated(60, METHODS[name].classes or 3)
        network = of_logits(name, logits / 20, labels)
        some = with_bad_rows(logits[:5])
        probs = network.classifier(some[:, :0], some)[0].softmax(-1)
        assert probs.isnan().all(1).tolist() == [True] * 4 + [False], name
        assert torch.equal(probs[4], network.from_logits(logits[:5])[4])


def of_logits(posthoc, logits, labels):
    """A network that is a transform alone."""
    record = {
        "digest": "x", "classes": logits.shape[1], "width": 0, "train": 0, "select": 1, "calib": 1,
        "test": 1, "is_cut": False, "outputs": "logits",
    }  # fmt: skip
    spec = TrialSpec.build(
        data={"dataset": "imported", "imported": record},
        network={"backbone": "imported", "epochs": 0},
        posthoc={"method": posthoc},
    )
    transform = fit_transform(spec.posthoc, SplitLogits(logits[None], labels))
    classifier = Classifier(None, spec.posthoc, tensors_of_trial(None, 0, transform))
    return CalibratedNetwork(spec, classifier, None)


@pytest.mark.slow
@pytest.mark.parametrize("posthoc", TWO_CLASSES)
def test_onnx_files_hold_transforms_of_two_classes(posthoc, tmp_path):
    chance = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(300, 2, generator=chance), torch.arange(300) % 2
    logits[range(300), labels] += 1
    network = of_logits(posthoc, logits, labels)
    write_onnx(network, tmp_path / "x.onnx")
    outputs = run_onnx(tmp_path / "x.onnx", "logits", logits)
    assert (outputs - network.from_logits(logits)).abs().max() <= CLOSE


def saturated(samples=1500, classes=10):
    chance = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(samples, classes, generator=chance)
    labels = torch.multinomial((logits / 2).softmax(1), 1, generator=chance).squeeze(1)
    return 20 * logits, labels


@pytest.mark.slow
@pytest.mark.parametrize("posthoc", OF_DIGITS)
def test_onnx_files_are_exact_on_saturated_and_tied_logits(posthoc, tmp_path):
    logits, labels = saturated()
    network = of_logits(posthoc, logits, labels)
    write_onnx(network, tmp_path / "x.onnx")
    fresh = torch.randn(300, 10, generator=torch.Generator().manual_seed(1))
    tied = fresh.round().clamp(-1, 1)
    for inputs in (30 * fresh, 300 * fresh, tied, 200 * tied, 1000 * torch.eye(10), 0 * fresh):
        outputs = run_onnx(tmp_path / "x.onnx", "logits", inputs)
        assert (outputs - network.from_logits(inputs)).abs().max() <= CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("has_network", sample([False, True], 1))
def test_a_file_that_differs_on_saturated_logits_is_refused(
    has_network, bank, trained, tmp_path, monkeypatch
):
    # The exporter rounds numbers of Python to single precision.
    monkeypatch.setattr(_posthoc, "exact", lambda value, like: value)
    network = of_logits("isotonic", *saturated())
    if has_network:
        spec = spec_of(None, "isotonic")
        network = CalibratedNetwork(spec, network.classifier, load_network(spec, trained, CPU))
    with pytest.raises(
        UserError, match="of isotonic was not written, since its numbers on saturated"
    ) as caught:
        write_onnx(network, tmp_path / "x.onnx")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("message", sorted(DRAWN))
def test_a_stochastic_head_is_refused_in_one_line(message, bank, tmp_path):
    spec = spec_of(message, epochs=1)
    network = CalibratedNetwork(spec, classifier_of(spec, bank), None)
    with pytest.raises(UserError, match="draws random numbers") as caught:
        write_onnx(network, tmp_path / "x.onnx")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
