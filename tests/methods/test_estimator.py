"""Estimators in scikit-learn's style as post-hoc methods."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

import tune_calib
from tests.classifiers import run_trials, spec_of
from tests.methods.test_posthoc import drawn
from tests.support import CPU
from tune_calib.conformance.bench import Bench
from tune_calib.conformance.suite import results
from tune_calib.data.imported import SMALLEST
from tune_calib.engine.classifier import KIND, ensure_classifier
from tune_calib.engine.evaluate import SplitLogits, evaluate_one, fit_transform
from tune_calib.errors import DivergedError, UserError
from tune_calib.files.store import Store
from tune_calib.library.export import export
from tune_calib.methods import from_estimator
from tune_calib.methods._estimator import probabilities
from tune_calib.spec import plugins
from tune_calib.spec.describe import describe_method
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.base import PostHocSlot
from tune_calib.tuning.work.workers import NetworkWorker

ROOT = Path(__file__).parents[2]
PAPER = {"paper": "Cover and Hart, IEEE", "year": 1967, "url": "https://doi.org/10.1109/x"}


class Uniform:
    """Returns equal probabilities."""

    def __init__(self, share: float | None = None, wrong="no", method="x"):
        if wrong == "value":
            raise ValueError("wrong must be no")
        if wrong == "package":
            raise ImportError("The 'absent' package is required.")
        self.share, self.wrong = share, wrong

    def fit(self, probs, labels):
        if self.wrong == "fit":
            raise RuntimeError("no samples\nof class 2")
        if self.wrong == "warns":
            import warnings

            warnings.warn("not converged", stacklevel=1)
        if self.wrong == "overflows":
            np.exp(np.float64(1000))
        self.drawn = np.random.rand(), float(torch.rand(1))
        sys.stdout.write("fitted")

    def predict_proba(self, probs):
        if self.wrong == "nan":
            return np.full_like(probs, np.nan)
        return np.full_like(probs, 1 / probs.shape[1])


def fitted(info, logits, labels, **settings):
    transform = info.implementation(info.params(**settings))
    transform.fit(logits[None], labels)
    return transform


def test_the_record_has_the_parameters_and_the_description_of_the_estimator():
    info = from_estimator("uniform", Uniform, **PAPER)
    assert info.params().model_dump() == {"share": None, "wrong": "no"}
    text = describe_method(info)
    assert info.title == "Uniform"
    assert "Returns equal probabilities." in text
    assert "`posthoc.share`</span> = `none` (number or `none`)\n" in text
    assert "latex" not in text
    assert "bibtex" not in text


@pytest.mark.parametrize("missing", [-1, 0, 2])
def test_it_returns_the_probabilities_of_the_estimator(missing):
    logits, labels = drawn(300, 4)
    logits, labels = logits[labels != missing], labels[labels != missing]
    info = from_estimator("neighbours", KNeighborsClassifier, **PAPER)
    transform = fitted(info, logits, labels, n_neighbors=9)
    oracle = KNeighborsClassifier(9).fit(logits.softmax(1).numpy(), labels.numpy())
    expected = np.zeros((50, 4))
    expected[:, oracle.classes_] = oracle.predict_proba(logits[:50].softmax(1).numpy())
    probs = transform.transform(logits[None, :50])[0].softmax(-1)
    assert probs.numpy() == pytest.approx(expected, abs=1e-9)


def test_its_random_numbers_are_the_same_in_each_fit_and_those_of_the_caller_stay(capsys):
    info = from_estimator("uniform", Uniform, **PAPER)
    logits, labels = drawn(30, 3)
    torch.manual_seed(5)
    np.random.seed(5)
    expected = float(torch.rand(1)), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    first = fitted(info, logits, labels)._state_of(0)["estimator"].drawn
    assert (float(torch.rand(1)), np.random.rand()) == expected
    # By now both generators of the caller stand elsewhere.
    assert fitted(info, logits, labels)._state_of(0)["estimator"].drawn == first
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ("value", UserError, "wrong must be no"),
        ("package", UserError, "The 'absent' package is required. Install that package"),
        ("fit", DivergedError, "uniform failed .*RuntimeError: no samples of class 2"),
        ("nan", DivergedError, "uniform failed .*numbers that are no probabilities"),
    ],
)
def test_an_error_of_the_estimator_is_one_line(monkeypatch, wrong, error, message):
    info = from_estimator("uniform", Uniform, **PAPER)
    monkeypatch.setitem(METHODS._records, "uniform", info)
    monkeypatch.setitem(METHODS._origins, "uniform", None)
    logits, labels = drawn(30, 3)

    def fit():
        slot = PostHocSlot.build(method="uniform", params={"wrong": wrong})
        split = SplitLogits(logits[None], labels)
        evaluate_one({"calib": split, "select": split}, slot)

    with pytest.raises(error, match=message) as caught:
        fit()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("is_unusable", [False, True])
def test_a_cross_validation_that_fails_is_a_flag_of_a_fit_that_succeeds(is_unusable, monkeypatch):
    info = from_estimator("neighbours", KNeighborsClassifier, **PAPER)
    monkeypatch.setitem(METHODS._records, "neighbours", info)
    monkeypatch.setitem(METHODS._origins, "neighbours", None)
    logits, labels = drawn(30, 3)
    # A part of calib has 24 samples, too few for 25 neighbours.
    slot = PostHocSlot.build(method="neighbours", params={"n_neighbors": 25 if is_unusable else 9})
    split = SplitLogits(logits[None], labels)
    found = evaluate_one({"calib": split, "select": split}, slot)
    assert ("posthoc_unchecked" in found.flags) is is_unusable
    assert "posthoc_harms" not in found.flags
    oracle = KNeighborsClassifier(slot.params.n_neighbors)
    expected = oracle.fit(logits.softmax(1).numpy(), labels.numpy()).predict_proba(
        logits.softmax(1).numpy()
    )
    probs = found.transform.transform(logits[None])[0].softmax(-1)
    assert probs.numpy() == pytest.approx(expected, abs=1e-6)


def test_equal_probabilities_and_zeros_stay_equal_after_logarithms():
    rows = torch.tensor([[0.3, 0.7, 0.0], [0.3, 0.5, 0.2], [0.3, 0.1, 0.6], [0.0, 1.0, 0.0]])
    logits = rows.clamp(min=SMALLEST).log()
    probs = probabilities(logits.double())
    assert probs.numpy() == pytest.approx(rows.double().numpy(), abs=1e-6)
    assert len(probs[:3, 0].unique()) == 1
    assert torch.equal(probs == 0, rows == 0)
    scaled = 3 * logits.double()
    assert torch.equal(probabilities(scaled), scaled.softmax(-1))


@pytest.fixture
def neighbours():
    """The provenance of a run with the plug-in of the documentation."""
    with plugins.restored():
        plugins.load("docs/examples/plugin_calibrator.py", folder=ROOT)
        yield {"plugins": [plugin.plain() for plugin in plugins.in_use()]}


@pytest.fixture
def store(trained, bank, tmp_path):
    """A network and its clean bank, without any classifier."""
    for kind in ("networks", "banks"):
        shutil.copytree(trained.root / kind, tmp_path / "store" / kind)
    return Store(tmp_path / "store")


def never():
    raise AssertionError("no image is needed")


def test_it_is_fitted_again_instead_of_stored_and_cannot_be_exported(neighbours, bank, store):
    spec = spec_of(posthoc="neighbours")
    calib, test = bank.calib(), bank.evaluated()["test"]
    transform = fit_transform(spec.posthoc, SplitLogits(calib.logits[None], calib.labels))
    expected = transform.transform(test.logits[None].double())
    for _ in range(2):
        classifier = ensure_classifier(spec, store, never, CPU)
        assert torch.equal(classifier.logits(test).logits, expected)
    assert not store.holds(KIND, spec.hash)
    out = store.root.parent / "out"
    run_trials(NetworkWorker, [spec], store, out, **neighbours)
    with pytest.raises(UserError, match="neighbours cannot be exported: its fit is an object of"):
        export(out, store.root, None, str(out / "calibrated"))
    networks, neighbours = [torch.nn.Identity()] * 2, tune_calib.EstimatorTransform()
    with pytest.raises(UserError, match="neighbours cannot be exported"):
        tune_calib.calibrate_pool(networks, calib.logits, calib.labels, None, posthoc=neighbours)


@pytest.fixture
def bench(trained):
    return Bench(trained)


@pytest.mark.parametrize("name", ["probmetrics:BinaryHistogramBinning"])
def test_calibrators_of_probmetrics_pass_the_checks_of_all_methods(name, bench):
    outcomes = {result.check.name: result.outcome for result in results(name, bench)}
    assert "failed" not in outcomes.values()
