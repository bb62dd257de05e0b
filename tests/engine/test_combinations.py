"""Every network method under every kind of slot, every head and post-hoc method on one network."""

import itertools

import pytest
import torch

from tests.support import CPU, sample
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank, load_network
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.evaluate import bank_logits, evaluate_one, network_logits
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.errors import UserError
from tune_calib.files.store import Store
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec


def named(kind):
    return [name for name in METHODS if METHODS[name].kind == kind]


def spec_of(network, head=None, posthoc=None):
    slots = {
        "data": {"train_fraction": 0.1},
        "network": {"method": network, "epochs": 1, "augment": "none"},
    }
    if head is not None:
        slots["head"] = {"method": head, "epochs": 1, "augment": "none"}
    if posthoc is not None:
        slots["posthoc"] = {"method": posthoc}
    return TrialSpec.build(**slots)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("combinations"))


def metrics_of(spec, store):
    development = load_development(spec.data, None)
    run = NetworkTraining(spec, store, development, CPU)
    while run.step() is not None:
        pass
    run.close()
    test = load_test(spec.data, None)
    if spec.head is None:
        trained = load_network(spec, store, CPU)
        logits = network_logits(trained, DATASETS[spec.data.dataset], development, test)
    else:
        key = bank_key(spec, spec.head)
        bank = ensure_bank(FeatureBank, spec, key, store, lambda: (development, test), CPU)
        trainer = HeadBatchTrainer([spec.head], bank, spec.network.seed, CPU)
        list(trainer)
        logits = bank_logits(bank, trainer.device, trainer)
    evaluation = evaluate_one(logits, spec.posthoc)
    assert evaluation is not None
    return evaluation.metrics


POSTHOC = [name for name in named("posthoc") if METHODS[name].classes is None]  # digits are ten


def check_pipeline(network, head, posthoc, store):
    metrics = metrics_of(spec_of(network, head, posthoc), store)
    assert {"select/ece", "test/ece"} <= set(metrics)
    assert all(torch.tensor(value).isfinite() for value in metrics.values())


@pytest.mark.parametrize("network", sample(named("network"), 2))
def test_a_network_has_finite_metrics_under_a_transform_and_under_a_head(network, store):
    check_pipeline(network, None, "temperature", store)
    check_pipeline(network, "mac_cal", None, store)


@pytest.mark.parametrize(
    ("posthoc", "head"), sample(list(zip(POSTHOC, itertools.cycle(named("head")), strict=False)), 5)
)
def test_a_transform_follows_a_head(head, posthoc, store):
    check_pipeline("ce", head, posthoc, store)


STARTS = {
    "continued": ("retrain", {}),
    "frozen": (
        "mac_cal", {"shape": "linear", "masking": "functional", "evaluation": "expected"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", named("network"))
def test_a_head_continues_only_from_a_head_that_was_trained(name, start):
    method, params = STARTS[start]
    head = {"method": method, "params": {**params, "start": start}}
    slots = {"network": {"method": name}, "head": head}
    if METHODS[name].trains_own_head:
        assert TrialSpec.build(**slots).head.params.start == start
        return
    with pytest.raises(UserError, match="cannot continue"):
        TrialSpec.build(**slots)
