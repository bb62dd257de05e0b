"""Finished trials once more: the same classifier."""

import pytest

from tests.support import CPU, sample, small_spec
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.classifier import ensure_classifier
from tune_calib.engine.evaluate import SplitLogits, bank_logits, evaluate_one
from tune_calib.engine.extra import network_behind
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.predict import predict
from tune_calib.spec.trial import TrialSpec


@pytest.fixture(scope="module")
def test_split():
    return load_test(small_spec().data, None)


def outputs_of(spec, store, images, info):
    trained = network_behind(spec, store, lambda: load_development(spec.data, None), CPU)
    return predict(trained.method, trained.network, images, info)


def judged(spec, store, test):
    """Evaluate a trial again from the images, with a new fit of its transform."""
    development, info = load_development(spec.data, None), spec.data.info
    classifier = ensure_classifier(spec, store, lambda: development, CPU)
    splits = {"select": development.select, "calib": development.calib, "test": test}
    logits = {}
    for name, split in splits.items():
        own = info.of_test() if name == "test" else info
        outputs = outputs_of(spec, store, split.images, own)
        logits[name] = SplitLogits(classifier.uncalibrated(*outputs), split.labels)
    return evaluate_one(logits, spec.posthoc)


@pytest.mark.parametrize("posthoc", sample([None, "temperature"], 1))
@pytest.mark.parametrize("augment", sample(["none", "standard"], 1))
@pytest.mark.parametrize("bn_mode", ["eval", "train"])
def test_a_head_gives_its_numbers_again(bn_mode, augment, posthoc, trained, test_split):
    head = {"method": "retrain", "bn_mode": bn_mode, "augment": augment, "views": 2, "epochs": 2}
    slots = {"posthoc": {"method": posthoc}} if posthoc else {}
    network = small_spec().network.model_dump(mode="json")
    spec = TrialSpec.build(network=network, head=head, **slots)
    splits = load_development(spec.data, None), test_split
    bank = ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), trained, lambda: splits, CPU)
    trainer = HeadBatchTrainer([spec.head], bank, spec.network.seed, CPU)
    for _ in trainer:
        pass
    trained_now = evaluate_one(bank_logits(bank, trainer.device, trainer), spec.posthoc)
    again = judged(spec, trained, test_split)
    assert again.metrics == trained_now.metrics
    assert again.fitted == trained_now.fitted
