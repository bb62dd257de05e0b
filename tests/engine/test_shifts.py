"""Features of shifted images: made once, the same in any batches, by the network of the bank."""

from dataclasses import replace

import pytest
import torch

from tests.support import CPU, sample, small_spec
from tune_calib.data.shift import Part, ShiftSet, open_set
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.artifacts import ensure_bank, load_network
from tune_calib.engine.bank import FeatureBank, bank_key
from tune_calib.engine.evaluate import network_logits
from tune_calib.engine.extra import ExtraEvaluation, network_behind
from tune_calib.engine.predict import predict
from tune_calib.files.store import Store
from tune_calib.spec.datasets import DATASETS


def development():
    return load_development(small_spec().data, None)


def load_split():
    return load_test(small_spec().data, None)


CLEAN = "clean"


def clean_set():
    split = load_split()
    return ShiftSet(CLEAN, "", lambda: [Part("", split)])


def made(spec, store, name):
    shift = clean_set() if name == CLEAN else opened(name, spec)
    return ExtraEvaluation(spec, store, None, CPU).ensure_shifted(shift)


def opened(name, spec):
    return open_set(name, spec.data, None, None, load_split)


@pytest.fixture
def store(trained, tmp_path):
    """The trained network in a store of its own."""
    (tmp_path / "networks").symlink_to(trained.root / "networks")
    return Store(tmp_path)


HEADS = {
    "none": {},
    "eval": {"method": "retrain"},
    "train": {"method": "retrain", "bn_mode": "train", "augment": "standard", "views": 2},
}


@pytest.mark.parametrize("head", sample(HEADS, 1))
def test_the_test_split_has_the_features_of_the_bank(head, store):
    spec = small_spec(**HEADS[head])
    splits = development(), load_split()
    bank = ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), store, lambda: splits, CPU)
    (clean,) = made(spec, store, CLEAN).values()
    assert torch.equal(clean.features, bank.test().features)
    assert torch.equal(clean.logits, bank.test().logits)
    assert torch.equal(clean.labels, bank.test().labels)


@pytest.mark.parametrize("name", sample(["generated/fog", "ood/noise"], 1))
def test_shifted_features_are_those_of_the_network_on_the_images(name, store):
    spec = small_spec()
    trained = network_behind(spec, store, development, CPU)
    found = made(spec, store, name)
    parts = {part.name: part for part in opened(name, spec).parts()}
    assert list(found) == list(parts)
    for label, part in parts.items():
        images = torch.cat(list(part.chunks(97, CPU)))
        wanted = predict(trained.method, trained.network, images, spec.data.info)
        assert torch.allclose(found[label].features, wanted[0], atol=1e-5)
        assert torch.equal(found[label].labels, part.split.labels)


def test_shifted_features_are_computed_once_and_again_if_damaged(store, monkeypatch):
    spec = small_spec()
    wanted = made(spec, store, "generated/fog")["3"].features.clone()

    def refuse(*_):
        raise AssertionError("made again")

    monkeypatch.setattr("tune_calib.engine.extra.network_behind", refuse)
    made(spec, store, "generated/fog")
    # Views of train change nothing of a network in evaluation mode.
    heads = small_spec(method="retrain", augment="standard", views=3)
    made(heads, store, "generated/fog")
    monkeypatch.undo()
    (file,) = store.root.glob("shifts/*/3.arrow")
    file.write_bytes(file.read_bytes()[:-9])
    assert torch.equal(made(spec, store, "generated/fog")["3"].features, wanted)


def test_statistics_that_drifted_have_shifted_features_of_their_own(store):
    calm = made(small_spec(method="retrain"), store, "ood/noise")
    drifted = made(small_spec(**HEADS["train"]), store, "ood/noise")
    assert len(list(store.root.glob("shifts/*"))) == 2
    one, other = (found[""].features for found in (calm, drifted))
    assert not torch.allclose(one, other, atol=1e-2)


def test_the_images_of_test_alone_are_normalised_by_constants_of_their_own(store, monkeypatch):
    changed = replace(DATASETS["digits"], test_constants=((0.4,), (0.2,)))
    monkeypatch.setitem(DATASETS._records, "digits", changed)
    spec = small_spec(method="retrain")
    info, splits = spec.data.info, (development(), load_split())
    bank = ensure_bank(FeatureBank, spec, bank_key(spec, spec.head), store, lambda: splits, CPU)
    trained = load_network(spec, store, CPU)
    passed = network_logits(trained, info, *splits)

    def logits_of(split, constants):
        return predict(trained.method, trained.network, split.images, constants)[1]

    for name in ("select", "calib"):
        wanted = logits_of(getattr(splits[0], name), info)
        for found in (getattr(bank, name)(), passed[name].one(0)):
            assert torch.equal(found.logits.reshape(wanted.shape), wanted)
    wanted = logits_of(splits[1], info.of_test())
    assert not torch.allclose(wanted, logits_of(splits[1], info), atol=1e-2)
    (clean,) = made(spec, store, CLEAN).values()
    for found in (bank.test(), passed["test"].one(0), clean):
        assert torch.equal(found.logits.reshape(wanted.shape), wanted)
