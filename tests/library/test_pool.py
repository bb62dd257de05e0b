"""Pools as one network: exported from a run, and made of modules in memory."""

import json
from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

import tune_calib
from tests.library.test_onnx import run_onnx
from tests.support import CPU, SETTINGS
from tune_calib.data.augment import normalise
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import load_network
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.classifier import ensure_classifier
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.store import Store
from tune_calib.library.export import export
from tune_calib.library.onnx_file import CLOSE
from tune_calib.metrics.summary import evaluate
from tune_calib.metrics.ties import OUTPUTS
from tune_calib.results.tables import read_slots, read_table
from tune_calib.spec.trial import TrialSpec

MAPS = (None, "temperature")
CROSSED = list(product(("probabilities", "logits"), MAPS, MAPS))  # average, of members, behind


class Scaled(nn.Module):
    """A linear network whose logits are too large by a factor."""

    def __init__(self, factor, classes=3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, classes), nn.BatchNorm1d(classes))
        self.factor = nn.Parameter(torch.tensor(float(factor)))

    def forward(self, samples):
        return self.factor * self.layers(samples)


class OfRun(nn.Module):
    """The network of a trial as a user would have it: normalised images in, logits out."""

    def __init__(self, spec, store):
        super().__init__()
        trained = load_network(spec, store, CPU)
        self.network, self.method, self.info = trained.network, trained.method, spec.data.info

    def forward(self, images):
        return self.method(self.network, normalise(images, self.info)).logits


@pytest.fixture(scope="module")
def networks():
    torch.manual_seed(0)
    return [Scaled(0.5).eval(), Scaled(9).eval()]


@pytest.fixture(scope="module")
def samples(networks):
    """Samples and labels that both networks predict better than chance."""
    inputs = torch.randn(400, 4, generator=torch.manual_seed(1))
    with torch.no_grad():
        logits = networks[0](inputs) * 4 + networks[1](inputs) / 3
    return inputs, torch.distributions.Categorical(logits=logits).sample()


def method_of(name):
    return tune_calib.TemperatureScaling() if name else None


def pool_of(networks, samples, setting, **options):
    average, posthoc, method = setting
    posthoc = method_of(posthoc)
    return tune_calib.calibrate_pool(
        networks, *samples, method_of(method), posthoc=posthoc, average=average, **options
    )


@pytest.mark.parametrize("setting", CROSSED, ids=str)
def test_the_maps_and_the_average_are_applied_in_their_order(setting, networks, samples):
    average, posthoc, method = setting
    inputs, labels = samples
    members = []
    for network in networks:
        with torch.no_grad():
            logits = network(inputs).numpy()
        if posthoc:
            logits = tune_calib.TemperatureScaling().fit(logits, labels).decision_function(logits)
        members.append(logits.astype(float))
    expected = np.mean(members, 0)
    if average == "probabilities":
        expected = np.log(np.mean([softmax(logits, -1) for logits in members], 0))
    if method:
        expected = tune_calib.TemperatureScaling().fit(expected, labels).decision_function(expected)
    probs = pool_of(networks, samples, setting)(inputs).numpy()
    assert probs == pytest.approx(softmax(expected, -1), abs=1e-5)


def test_each_setting_of_a_pool_changes_its_probabilities(networks, samples):
    probs = [pool_of(networks, samples, setting)(samples[0]) for setting in CROSSED]
    for first, second in zip(*np.triu_indices(len(CROSSED), 1), strict=True):
        assert (probs[first] - probs[second]).abs().max() > 0.01


@pytest.mark.parametrize("setting", CROSSED, ids=str)
def test_a_saved_pool_is_loaded_with_modules_of_the_same_architectures(
    setting, networks, samples, tmp_path
):
    pool = pool_of(networks, samples, setting)
    tune_calib.save_calibrated(pool, tmp_path / "pool")
    others = [Scaled(1).train(), Scaled(1).train()]
    loaded = tune_calib.load_calibrated(tmp_path / "pool.safetensors", networks=others)
    assert torch.equal(loaded(samples[0]), pool(samples[0]))
    assert loaded.record.trial == pool.spec.hash
    assert others[0].factor.item() == 1  # copied, so that it keeps its weights
    assert others[0].training
    with pytest.raises(UserError, match="exists"):
        tune_calib.save_calibrated(pool, tmp_path / "pool")


@pytest.mark.parametrize(
    "setting", [CROSSED[-1], *(pytest.param(x, marks=pytest.mark.slow) for x in CROSSED[:-1])]
)
def test_a_pool_of_modules_as_onnx_gives_the_same_probabilities(
    setting, networks, samples, tmp_path
):
    pool, (inputs, _) = pool_of(networks, samples, setting), samples
    tune_calib.save_calibrated(pool, tmp_path / "pool", inputs[:1])
    for some in (inputs[:1], inputs):
        probs = run_onnx(tmp_path / "pool.onnx", "inputs", some)
        assert (probs - pool(some)).abs().max() <= CLOSE


def test_a_pool_copies_its_networks_and_names_its_classes(networks, samples):
    inputs, labels = samples
    names = np.array(["cat", "dog", "eel"])[labels]
    changed = [Scaled(9), networks[0]]
    changed[0].load_state_dict(networks[1].state_dict())
    changed[0].train()
    pool = pool_of(changed, (inputs.numpy(), names), CROSSED[-1])
    assert pool.classes == ("cat", "dog", "eel")
    assert changed[0].training
    probs = pool(inputs)
    with torch.no_grad():
        changed[0].factor.zero_()
    assert torch.equal(pool(inputs), probs)
    assert not pool(inputs).requires_grad


def test_networks_of_two_classes_may_return_scores(samples):
    torch.manual_seed(0)
    networks, inputs = [nn.Linear(4, 1), nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))], samples[0]
    with torch.no_grad():
        labels = (sum(network(inputs).flatten() for network in networks) > 0).long()
    pool = pool_of(networks, (inputs, labels), ("probabilities", None, None))
    with torch.no_grad():
        expected = sum(network(inputs).flatten().sigmoid() for network in networks) / 2
    assert torch.allclose(pool(inputs)[:, 1], expected.double(), atol=1e-6)


def test_what_is_no_pool_is_refused_in_one_line(networks, samples, tmp_path):
    first, second = networks
    soft = nn.Sequential(first, nn.Softmax(1))
    for members, message in (
        ([first], "a pool needs at least two networks, got 1"),
        ([first, Scaled(1, classes=4)], r"the same classes, got logits \[\(400, 3\), \(400, 4\)\]"),
        ([first, soft], "look like probabilities"),
    ):
        with pytest.raises((UserError, ValueError), match=message) as caught:
            pool_of(members, samples, CROSSED[0])
        assert "\n" not in str(caught.value)
    for options, message in (
        ({"method": "temperature"}, r"e\.g\. TemperatureScaling\(\), not 'temperature'"),
        ({"method": None, "average": "votes"}, "must be 'probabilities' or 'logits'"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            tune_calib.calibrate_pool(networks, *samples, **options)
        assert "\n" not in str(caught.value)
    pool = pool_of(networks, samples, CROSSED[-1])
    with pytest.raises(UserError, match="have no features in common"):
        pool.from_features(samples[0])
    tune_calib.save_calibrated(pool, tmp_path / "pool")
    with pytest.raises(UserError, match="needs 2 networks whose code it lacks, got 0"):
        tune_calib.load_calibrated(tmp_path / "pool")
    with pytest.raises(DamagedFileError, match="contains other tensors") as caught:
        tune_calib.load_calibrated(tmp_path / "pool", networks=[second, nn.Linear(4, 3)])
    assert "\n" not in str(caught.value)


def pipeline(average, posthoc, method):
    name = "pool:ce:dfl" + ("+temperature" if method else "")
    pool = {"average": average} | ({"posthoc": posthoc} if posthoc else {})
    return {"method": name, "set": {"pool": pool}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The pools of a cross-entropy and a dual-focal-loss network: trials by setting."""
    out = tmp_path_factory.mktemp("pools") / "out"
    settings = {name: SETTINGS[name] for name in ("network.augment", "data.train_fraction")}
    methods = [pipeline(*setting) for setting in CROSSED]
    tune_calib.compare(methods, epochs=20, set=settings, address="none", out=out)
    trials = {}
    for row in read_table(out, "trials").to_pylist():
        spec = TrialSpec.build(**read_slots(row))
        pool = spec.network.pool
        key = (pool.average, pool.posthoc and "temperature", spec.posthoc and "temperature")
        trials[key] = spec, row
    assert set(trials) == set(CROSSED)
    return out, trials


@pytest.mark.parametrize("setting", CROSSED, ids=str)
def test_an_exported_pool_has_the_metrics_of_its_trial(setting, run, tmp_path):
    out, trials = run
    spec, row = trials[setting]
    export(out, out / "store", None, str(tmp_path / "pool"), spec.hash)
    assert {path.name for path in tmp_path.iterdir()} == {"pool.safetensors", "pool.json"}
    network, test = tune_calib.load_calibrated(tmp_path / "pool"), load_test(spec.data, None)
    bank = FeatureBank(Store(out / "store").folder("banks", bank_key(spec, None).identity)).test()
    probs, logits = network(test.images), network.logits(test.images)
    assert (probs - network.from_logits(bank.logits)).abs().max() < 1e-6
    scores = evaluate(logits.unsqueeze(0), test.labels, dtype=OUTPUTS)
    for name in ("accuracy", "nll", "brier", "ece"):
        assert float(scores[name]) == pytest.approx(row[f"test/{name}"], abs=1e-6)
        assert network.record.metrics[f"test/{name}"] == row[f"test/{name}"]
    record = json.loads((tmp_path / "pool.json").read_text())
    assert record["trial"] == spec.hash
    assert record["images"]["size"] == 8
    assert record["samples"] > 0


@pytest.mark.parametrize("setting", CROSSED, ids=str)
def test_a_pool_of_modules_equals_the_trial_of_the_same_members(setting, run):
    out, trials = run
    spec, _ = trials[setting]
    store, calib = Store(out / "store"), load_development(spec.data, None).calib
    networks = [OfRun(member, store) for member in spec.members]
    pool = pool_of(networks, (calib.images, calib.labels), setting)
    bank = FeatureBank(store.folder("banks", bank_key(spec, None).identity)).test()
    expected = ensure_classifier(spec, store, None, CPU).logits(bank).logits[0].softmax(-1)
    probs = pool(load_test(spec.data, None).images)
    assert (probs - expected).abs().max() < 1e-6


def test_the_members_of_the_run_have_unequal_temperatures(run):
    out, trials = run
    spec, _ = trials[CROSSED[-1]]
    temperatures = []
    for member in spec.members:
        classifier = ensure_classifier(member, Store(out / "store"), None, CPU)
        temperatures.append(float(classifier.tensors["posthoc.temperature"]))
    assert abs(np.log(temperatures[0] / temperatures[1])) > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("setting", CROSSED, ids=str)
def test_an_exported_pool_as_onnx_maps_images_to_probabilities(setting, run, tmp_path):
    out, trials = run
    spec, _ = trials[setting]
    export(out, out / "store", None, str(tmp_path / "pool"), spec.hash, is_onnx=True)
    network = tune_calib.load_calibrated(tmp_path / "pool")
    images = load_test(spec.data, None).images
    for some in (images[:1], images):
        probs = run_onnx(tmp_path / "pool.onnx", "images", some)
        assert (probs - network(some)).abs().max() <= CLOSE
