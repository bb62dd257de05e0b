"""Published rules: the first positions that the papers' programs draw."""

import random

import numpy as np
import pytest
import torch

from tune_calib.data.rules import held_out_of_test
from tune_calib.data.splits import cut_parts, load_development, load_test
from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec

# Data set, rule: size of train, its first positions, the first positions of validation.
PUBLISHED = {
    ("cifar10", "default"): (45_000, [45573, 39021, 36044, 45885], [26247, 35067, 34590, 16668]),
    ("cifar10", "tst"): (40_000, [45845, 11799, 43880], [27752, 1086, 35238]),
    ("cifar10", "plp"): (45_000, [18447, 17768, 45879], [40277, 32284]),
    ("cifar10", "mdca"): (45_000, None, [11251, 5926, 43812]),
    ("cifar100", "default"): (45_000, [45573, 39021], [26247, 35067]),
    ("cifar100", "tst"): (47_500, None, [46368, 25041, 35989]),
    ("cifar100", "plp"): (45_000, [18447, 17768, 45879], [40277, 32284]),
}


def cut_of(slot: DataSlot, train: int = 50_000, test: int = 10_000):
    classes = slot.info.classes
    return cut_parts(slot.info, torch.arange(train) % classes, torch.arange(test) % classes)


@pytest.mark.parametrize(("dataset", "rule"), PUBLISHED)
def test_positions_of_the_rules_are_the_published_ones(dataset: str, rule: str):
    size, train, validation = PUBLISHED[dataset, rule]
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    slot = DataSlot(dataset=dataset, split=rule)
    cut = cut_of(slot)
    assert slot.holds_out_train
    assert states[0] == random.getstate()
    assert states[1] == np.random.get_state()[1].tolist()
    assert torch.equal(states[2], torch.get_rng_state())
    assert len(cut.train) == size
    if train is not None:
        assert cut.train[: len(train)].tolist() == train
    held_out = torch.cat([cut.select, cut.calib])
    assert len(cut.select) == len(held_out) // 2
    assert held_out[: len(validation)].tolist() == validation
    assert sorted(torch.cat([cut.train, held_out]).tolist()) == list(range(50_000))
    assert not cut.of_test
    assert cut.test is None


def test_the_whole_training_part_trains_and_test_is_cut_without_overlap():
    slot = DataSlot(dataset="cifar10", split="whole")
    cut = cut_of(slot)
    assert not slot.holds_out_train
    assert cut.of_test
    assert len(cut.train) == 50_000
    assert cut.test is not None
    assert sorted(torch.cat([cut.select, cut.calib, cut.test]).tolist()) == list(range(10_000))
    assert len(cut.test) == len(cut.select) + len(cut.calib) == 5000


def test_validation_on_test_uses_all_of_it():
    slot = DataSlot(dataset="cifar10", split="val_is_test")
    cut = cut_of(slot)
    assert not slot.holds_out_train
    assert cut.of_test
    assert cut.test is None
    assert sorted(torch.cat([cut.select, cut.calib]).tolist()) == list(range(10_000))


SHARES = [None, (0.1, 0.2, 0.7), (0.05, 0.05, 0.9), (0.4, 0.3, 0.3)]


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "digits"])
def test_the_test_part_is_cut_in_three_by_classes(dataset, shares):
    further = {} if shares is None else {"holdout_shares": shares}
    slot = DataSlot(dataset=dataset, holdout="test", **further)
    cut = cut_of(slot)
    labels = torch.arange(10_000) % slot.info.classes
    parts = [cut.select, cut.calib, cut.test]
    assert not slot.holds_out_train
    assert cut.of_test
    assert len(cut.train) == 50_000
    assert sorted(torch.cat(parts).tolist()) == list(range(10_000))
    for part, share in zip(parts, slot.holdout_shares, strict=True):
        counts = labels[part].bincount(minlength=slot.info.classes)
        assert counts.min() == counts.max() == round(share * 10_000 / slot.info.classes)
        assert part.tolist() == sorted(part.tolist())
    again = cut_of(slot)
    assert torch.equal(cut.select, again.select)
    assert torch.equal(cut.calib, again.calib)


@pytest.mark.parametrize("counts", [(3, 3, 3), (3, 100, 7), (5, 4, 3)])
def test_small_classes_are_in_all_three_splits(counts):
    labels = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    cut = held_out_of_test((0.25, 0.25, 0.5), labels, labels)
    parts = [cut.select, cut.calib, cut.test]
    assert sorted(torch.cat(parts).tolist()) == list(range(len(labels)))
    for part in parts:
        assert labels[part].bincount(minlength=3).min() > 0


def test_a_holdout_of_test_goes_with_what_changes_train():
    plain = load_development(DataSlot(holdout="test"), None)
    for change in ({"train_fraction": 0.5}, {"label_noise": 0.2}, {"imbalance": 3.0}):
        changed = load_development(DataSlot(holdout="test", **change), None)
        for name in ("select", "calib"):
            assert torch.equal(getattr(plain, name).indices, getattr(changed, name).indices)
        assert plain.fingerprint() != changed.fingerprint()
    test = load_test(DataSlot(holdout="test"), None)
    held = [plain.select.indices, plain.calib.indices, test.indices]
    whole = load_test(DataSlot(), None)
    assert sorted(torch.cat(held).tolist()) == sorted(whole.indices.tolist())
    assert plain.fingerprint() != load_development(DataSlot(), None).fingerprint()


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        ({"holdout": "test", "split": "whole"}, "leave split=whole out"),
        ({"holdout_shares": (0.2, 0.2, 0.6)}, "needs holdout=test"),
        ({"holdout": "test", "holdout_shares": (0.5, 0.5, 0.5)}, "sum to 1"),
        ({"dataset": "cifar10", "norm": [[0.5], [0.5]]}, "has 3 channels, and constants for 1"),
        ({"dataset": "cifar10", "labels": "coarse"}, "cifar10 has no coarse labels"),
        ({"dataset": "cifar10", "split": "tts"}, "did you mean 'tst'"),
        ({"dataset": "digits", "norm": "imagenet"}, "digits is grey"),
    ],
)
def test_an_option_that_does_not_fit_is_one_line(slot: dict, message: str):
    with pytest.raises(UserError, match=message) as error:
        TrialSpec.build(data=slot, network={})
    assert "\n" not in str(error.value)


def test_coarse_labels_and_legacy_constants_are_the_published_ones():
    plain: DatasetInfo = DATASETS["cifar100"]
    info = DataSlot(dataset="cifar100", labels="coarse", test_norm="legacy_imagenet").info
    assert info.classes == 20
    assert np.bincount(plain.coarse).tolist() == [5] * 20
    assert info.mean == plain.mean
    assert info.of_test().mean == (0.485, 0.456, 0.406)
    assert plain.of_test() is plain
