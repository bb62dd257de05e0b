"""Classifiers of finished trials: kept, read, made again, and the same to the last digit."""

import shutil

import pytest
import torch

from tests.classifiers import TOLD, run_trials, spec_of
from tests.support import CPU, rows, sample
from tune_calib.engine.bank import FeatureSplit
from tune_calib.engine.classifier import (
    KIND,
    ensure_classifier,
    store_classifier,
    tensors_of_trial,
    train_again,
)
from tune_calib.engine.evaluate import bank_logits, evaluate_one
from tune_calib.engine.head_batch import HeadBatchTrainer
from tune_calib.errors import UserError
from tune_calib.files.paths import RemotePath
from tune_calib.files.store import ARTIFACT_MANIFEST, Store, artifact_manifest
from tune_calib.metrics.summary import evaluate
from tune_calib.metrics.ties import OUTPUTS
from tune_calib.tuning.work.workers import HeadWorker, NetworkWorker


def never():
    raise AssertionError("no image is needed")


@pytest.fixture
def store(trained, bank, tmp_path):
    """The network and its clean bank, without any classifier."""
    for kind in ("networks", "banks"):
        shutil.copytree(trained.root / kind, tmp_path / "store" / kind)
    return Store(tmp_path / "store")


def split_of(bank, name="test"):
    return bank.evaluated()[name]


@pytest.mark.parametrize("rule", ["last", "min_val_nll"])
@pytest.mark.parametrize("message", sample(TOLD, 1))
def test_one_head_of_a_population_is_stored_with_its_transform(message, rule, bank, store):
    specs = [spec_of(message, "temperature", seed, select=rule, epochs=4) for seed in range(2)]
    trainer = HeadBatchTrainer([s.head for s in specs], bank, 0, CPU)
    for _ in trainer:
        pass
    logits = bank_logits(bank, trainer.device, trainer)
    for k, spec in enumerate(specs):
        logits_of_head = {name: split.one(k) for name, split in logits.items()}
        stored = evaluate_one(logits_of_head, spec.posthoc)
        store_classifier(
            store, spec, tensors_of_trial(trainer, k, stored.transform), stored.metrics
        )
        classifier = ensure_classifier(spec, store, never, CPU)
        for name in ("select", "test"):
            given = classifier.logits(split_of(bank, name))
            after = evaluate(given.logits, given.labels, dtype=OUTPUTS)
            assert {f"{name}/{key}": float(v) for key, v in after.items()}.items() <= (
                stored.metrics.items()
            )
        if k == 1:
            again = train_again(spec, store, never, CPU)
            assert torch.equal(again.logits(split_of(bank)).logits, given.logits)
        assert classifier.select.items() <= stored.metrics.items()


@pytest.mark.parametrize("message", ["vtst", "mac_cal drawn", "tst", "mac_cal"])
def test_a_part_of_a_split_has_the_digits_of_the_whole(message, bank, store):
    classifier = ensure_classifier(spec_of(message, "temperature"), store, never, CPU)
    split = split_of(bank)
    whole = classifier.logits(split).logits
    first = 300
    part = FeatureSplit(split.features[first:], split.logits[first:], split.labels[first:])
    is_close = torch.allclose(classifier.logits(part).logits, whole[:, first:], atol=1e-5)
    assert is_close == (message != "vtst")  # whose draws depend on the position in the split


def test_classifiers_of_trials_are_stored_but_not_of_suggestions(store, bank, tmp_path):
    heads = [spec_of("retrain", seed=seed) for seed in range(2)]
    heads += [spec_of("retrain", "temperature", seed=0)]
    networks = [spec_of(), spec_of(posthoc="temperature")]
    run_trials(HeadWorker, heads[:1], store, tmp_path / "search", is_search=True)
    assert not (store.root / KIND).exists()
    run_trials(HeadWorker, heads, store, tmp_path / "heads")
    run_trials(NetworkWorker, networks, store, tmp_path / "networks")
    told = [*rows(tmp_path / "heads"), *rows(tmp_path / "networks")]
    kept = {path.name for path in (store.root / KIND).iterdir()}
    assert kept == {spec.hash for spec in (*heads, networks[1])}
    assert len(told) == 5
    for row in told:
        spec = next(s for s in (*heads, *networks) if s.hash == row["spec_hash"])
        given = ensure_classifier(spec, store, never, CPU).logits(split_of(bank))
        scores = evaluate(given.logits, given.labels, dtype=OUTPUTS)
        assert {name: float(score) for name, score in scores.items()} == {
            name: row[f"test/{name}"] for name in scores
        }


def test_stored_classifiers_stay_and_damaged_ones_are_rebuilt(store, bank):
    spec = spec_of("retrain", "temperature")
    first = ensure_classifier(spec, store, never, CPU)
    folder = store.folder(KIND, spec.hash)
    written = (folder / ARTIFACT_MANIFEST).stat().st_mtime_ns
    tensors = {n: each + 1 for n, each in first.tensors.items() if n.startswith("head.")}
    store_classifier(store, spec, tensors, {"select/ece": 0.0})
    assert (folder / ARTIFACT_MANIFEST).stat().st_mtime_ns == written
    (folder / "tensors.safetensors").write_bytes(b"x")
    second = ensure_classifier(spec, store, never, CPU)
    assert second.select == first.select
    third = ensure_classifier(spec, store, never, CPU)
    assert first.state_dict().keys() == third.state_dict().keys()
    assert all(torch.equal(t, third.state_dict()[name]) for name, t in first.state_dict().items())


def test_a_store_out_of_reach_breaks_no_trial(store):
    spec = spec_of("retrain", "temperature")
    tensors = ensure_classifier(spec, store, never, CPU).tensors
    with pytest.raises(UserError, match="cannot read nowhere://bucket"):
        artifact_manifest(RemotePath("nowhere://bucket/store"))
    store_classifier(Store(RemotePath("nowhere://bucket/store")), spec, tensors, {})


def test_a_classifier_moves_and_is_saved_as_any_module(store, bank):
    classifier = ensure_classifier(spec_of("mac_cal", "temperature"), store, never, CPU)
    split = split_of(bank)
    before = classifier.logits(split).logits
    state = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    other = ensure_classifier(spec_of("mac_cal", "temperature", seed=1), store, never, CPU)
    assert not torch.equal(other.logits(split).logits, before)
    other.load_state_dict(state)
    other.slots = classifier.slots
    assert torch.equal(other.logits(split).logits, before)
