"""Passes of a network over images: on several cores, and once for evaluation and bank."""

import json

import pytest
import torch
from torch import nn

from tests.engine.test_weights import network_of, saved
from tests.support import CPU
from tests.tuning.ray.test_frozen_networks import planned
from tests.tuning.ray.test_shared_outputs import run
from tune_calib.data.splits import load_development
from tune_calib.engine import artifacts, machine, network, predict
from tune_calib.engine.bank import bank_key
from tune_calib.files.store import Store
from tune_calib.methods._base import NetworkMethod
from tune_calib.spec.trial import TrialSpec


@pytest.fixture
def passed(monkeypatch) -> list[int]:
    """The numbers of images of all evaluations, in their order."""
    counts: list[int] = []
    forward = NetworkMethod.forward

    def count(self, network, images):
        counts.append(len(images))
        return forward(self, network, images)

    monkeypatch.setattr(NetworkMethod, "forward", count)
    return counts


@pytest.mark.parametrize("method", ["ce", "balcal"])
def test_chunks_at_once_change_no_digit(method, monkeypatch):
    monkeypatch.setattr(predict, "EVALUATION_BATCH", 40)
    spec = TrialSpec.build(network={"method": method})
    images = load_development(spec.data, None).select.images
    built, trained_by = network.build(spec, 500)
    outputs = []
    try:
        for cores in (1, 2, 3):
            machine.set_cores(cores)
            outputs.append(predict.predict(trained_by, built, images, spec.data.info))
    finally:
        machine.set_cores(1)
    for features, logits in outputs[1:]:
        assert torch.equal(features, outputs[0][0])
        assert torch.equal(logits, outputs[0][1])
        assert not logits.requires_grad


def test_modules_that_may_keep_a_pass_are_not_shared():
    built, method = network.build(TrialSpec.build(network={}), 1)
    assert predict.can_share(built, method)
    hook = built.backbone.register_forward_hook(lambda *_: None)
    assert not predict.can_share(built, method)
    hook.remove()
    built.backbone.own = type("Own", (nn.Identity,), {"__module__": "own"})()
    assert not predict.can_share(built, method)


NAMES = ["ce", "temperature", "retrain"]


def test_a_frozen_network_passes_every_image_once(tmp_path, passed):
    store = Store(tmp_path / "store")
    file = saved(tmp_path / "w.safetensors", network_of())
    trials = planned(file, store.root, NAMES, holdout="test")
    rows = run(tmp_path / "once", trials, store)
    development = load_development(trials[0].spec.data, None)
    assert sum(passed) == sum(development_sizes(store, trials[0].spec))
    assert sum(passed) > len(development.train)
    passed.clear()
    # Its bank serves the evaluation in another folder, and numbers of separate passes are equal.
    assert run(tmp_path / "again", trials, store) == rows
    assert not passed
    separate = Store(tmp_path / "own")
    apart = planned(file, separate.root, NAMES, holdout="test")
    training = artifacts.NetworkTraining(apart[0].spec, separate, development, CPU)
    assert training.step() is None
    training.close()
    assert run(tmp_path / "apart", apart, separate) == rows
    manifests = []
    for root in (store, separate):
        manifest = root.folder("networks", trials[0].spec.network_id) / "manifest.json"
        content = json.loads(manifest.read_text())
        manifests.append((content["accuracy"], content["regime"]))
    assert manifests[0] == manifests[1]


def development_sizes(store: Store, spec: TrialSpec) -> list[int]:
    folder = store.folder("banks", bank_key(spec, None).identity)
    bank = artifacts.FeatureBank(folder)
    return [len(bank.train().labels), *(len(split.labels) for split in bank.evaluated().values())]


def test_a_search_passes_no_image_of_test(tmp_path, passed):
    store = Store(tmp_path / "store")
    file = saved(tmp_path / "w.safetensors", network_of())
    trials = planned(file, store.root, NAMES, holdout="test")
    run(tmp_path / "out", trials, store, is_search=True)
    splits = load_development(trials[0].spec.data, None)
    assert sum(passed) == sum(map(len, (splits.train, splits.select, splits.calib)))
    assert not list(store.root.glob("banks/*/test.arrow"))
