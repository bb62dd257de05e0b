"""Passes of a network over images: on several cores, and none over test in a search."""

import pytest
import torch
from torch import nn

from tests.engine.test_weights import network_of, saved
from tests.tuning.ray.test_frozen_networks import planned
from tests.tuning.ray.test_shared_outputs import run
from tune_calib.data.splits import load_development
from tune_calib.engine import machine, network, predict
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


def test_a_search_passes_no_image_of_test(tmp_path, passed):
    store = Store(tmp_path / "store")
    file = saved(tmp_path / "w.safetensors", network_of())
    trials = planned(file, store.root, NAMES, holdout="test")
    run(tmp_path / "out", trials, store, is_search=True)
    splits = load_development(trials[0].spec.data, None)
    sizes = [len(split) for split in (splits.train, splits.select, splits.calib)]
    assert sum(passed) == 2 * sum(sizes) - sizes[2]  # for the artifact, and for the bank
    assert not list(store.root.glob("banks/*/test.arrow"))
