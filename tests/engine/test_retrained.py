"""Finished trials once more: the same classifier."""

import pytest
import torch

from tests.support import CPU, sample, small_spec
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import ensure_bank
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.classifier import load_classifier
from tune_calib.engine.evaluate import SplitLogits, evaluate_one, head_batch_logits
from tune_calib.engine.extra import network_behind
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.engine.network import predict
from tune_calib.errors import UserError
from tune_calib.results.tables import read_table, write_results
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.pictures import SAMPLES, take_pictures


@pytest.fixture(scope="module")
def test_split():
    return load_test(small_spec().data, None)


def outputs_of(spec, store, images, info):
    trained = network_behind(spec, store, lambda: load_development(spec.data, None), CPU)
    return predict(trained.method, trained.network, images, info)


def judged(spec, store, test):
    """Evaluate a trial again from the images, with a new fit of its transform."""
    development, info = load_development(spec.data, None), spec.data.info
    classifier = load_classifier(spec, store, lambda: development, CPU)
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
    trained_now = evaluate_one(head_batch_logits(trainer, bank), spec.posthoc)
    again = judged(spec, trained, test_split)
    assert again.metrics == trained_now.metrics
    assert again.fitted == trained_now.fitted


def test_batch_statistics_that_drift_make_another_classifier(trained, test_split):
    calm, drifted = (
        outputs_of(spec, trained, test_split.images, spec.data.info)[0]
        for spec in (small_spec(method="retrain", bn_mode=mode) for mode in ("eval", "train"))
    )
    assert not torch.allclose(calm, drifted, atol=1e-2)


def row_of(spec, metrics):
    return {
        "schema_version": 1, "spec_hash": spec.hash, "rung": 0, "rung_label": "vanilla",
        "status": "done", "network_seed": 0, "data": canonical_json(spec.data),
        "network": canonical_json(spec.network), **metrics,
    }  # fmt: skip


def test_pictures_are_made_once_and_need_equal_metrics(trained, test_split, tmp_path):
    spec = small_spec()
    metrics = judged(spec, trained, test_split).metrics
    for name, value in {"test/ece": 0.9, "test/accuracy": metrics["test/accuracy"] + 1e-5}.items():
        write_results(tmp_path, "a", {"trials": [row_of(spec, {**metrics, name: value})]})
        with pytest.raises(UserError, match=f"but was {value:.6f} in its trial"):
            take_pictures(tmp_path, trained.root, None)
        assert not (tmp_path / "logits").exists()
    write_results(tmp_path, "a", {"trials": [row_of(spec, metrics)]})
    (line,) = take_pictures(tmp_path, trained.root, None)
    assert line == f"vanilla: logits of {SAMPLES} samples"
    assert take_pictures(tmp_path, trained.root, None) == ["vanilla: logits exist"]
    assert read_table(tmp_path, "logits").num_rows == SAMPLES


def test_a_folder_without_numbers_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no trial with numbers on test"):
        take_pictures(tmp_path, tmp_path, None)
