"""Published rules: the first positions that the papers' programs draw."""

import random

import numpy as np
import pytest
import torch

from tune_calib.data.base import DatasetInfo, info_of
from tune_calib.errors import UserError
from tune_calib.registry import DATASETS
from tune_calib.spec import DataSlot, TrialSpec

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
    classes = info_of(slot).classes
    return info_of(slot).cut(torch.arange(train) % classes, torch.arange(test) % classes)


@pytest.mark.parametrize(("dataset", "rule"), PUBLISHED)
def test_published_positions(dataset: str, rule: str):
    size, train, validation = PUBLISHED[dataset, rule]
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    cut = cut_of(DataSlot(dataset=dataset, split=rule))
    assert states[0] == random.getstate()
    assert states[1] == np.random.get_state()[1].tolist()
    assert torch.equal(states[2], torch.get_rng_state())
    assert len(cut.train) == size
    if train is not None:
        assert cut.train[: len(train)].tolist() == train
    assert cut.validation[: len(validation)].tolist() == validation
    assert sorted(torch.cat([cut.train, cut.validation]).tolist()) == list(range(50_000))
    assert not cut.of_test
    assert cut.test is None


def test_the_whole_training_part_trains_and_test_is_cut_without_overlap():
    cut = cut_of(DataSlot(dataset="cifar10", split="whole"))
    assert cut.of_test
    assert len(cut.train) == 50_000
    assert cut.test is not None
    assert sorted(torch.cat([cut.validation, cut.test]).tolist()) == list(range(10_000))
    assert len(cut.test) == len(cut.validation) == 5000


def test_the_validation_that_is_test_is_all_of_it():
    cut = cut_of(DataSlot(dataset="cifar10", split="val_is_test"))
    assert cut.of_test
    assert cut.test is None
    assert sorted(cut.validation.tolist()) == list(range(10_000))


@pytest.mark.parametrize("dataset", list(DATASETS))
def test_options_left_alone_leave_data_set_and_hash(dataset: str):
    slot = DataSlot(dataset=dataset)
    assert info_of(slot) is DATASETS[dataset]
    assert set(slot.model_dump()) == {"dataset", "train_fraction", "label_noise", "imbalance"}


def test_each_option_makes_another_network():
    options = [{}, {"split": "tst"}, {"split": "whole"}, {"labels": "coarse"},
               {"norm": "imagenet"}, {"test_norm": "legacy_imagenet"}]  # fmt: skip
    specs = [TrialSpec.build(data={"dataset": "cifar100", **o}, network={}) for o in options]
    assert len({spec.network_id for spec in specs}) == len(options)


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        ({"dataset": "cifar10", "labels": "coarse"}, "cifar10 has no coarse labels"),
        ({"dataset": "cifar10", "split": "tts"}, "did you mean 'tst'"),
        ({"dataset": "digits", "split": "tst"}, "digits has no 'tst'"),
        ({"dataset": "cifar10", "norm": "imagnet"}, "imagenet"),
        ({"dataset": "digits", "norm": "imagenet"}, "digits is grey"),
        ({"dataset": "digits", "test_norm": "legacy_imagenet"}, "digits is grey"),
    ],
)
def test_an_option_that_does_not_fit_is_one_line(slot: dict, message: str):
    with pytest.raises(UserError, match=message) as error:
        TrialSpec.build(data=slot, network={})
    assert "\n" not in str(error.value)


def test_coarse_labels_and_legacy_constants():
    plain: DatasetInfo = DATASETS["cifar100"]
    info = info_of(DataSlot(dataset="cifar100", labels="coarse", test_norm="legacy_imagenet"))
    assert info.classes == 20
    assert np.bincount(plain.coarse).tolist() == [5] * 20
    assert info.mean == plain.mean
    assert info.of_test().mean == (0.485, 0.456, 0.406)
    assert plain.of_test() is plain
