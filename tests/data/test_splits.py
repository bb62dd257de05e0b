"""Smaller, imbalanced and noisy training splits."""

import numpy as np
import pytest
import torch

from tune_calib.data.base import Split
from tune_calib.data.splits import add_label_noise, imbalance_counts, load_development, load_test
from tune_calib.errors import UserError
from tune_calib.spec.slots.data import DataSlot


def test_the_other_splits_stay_clean():
    plain = load_development(DataSlot(), None)
    slot = DataSlot(train_fraction=0.7, label_noise=0.3, imbalance=5)
    shaped = load_development(slot, None)
    for name in ("select", "calib"):
        assert torch.equal(getattr(plain, name).images, getattr(shaped, name).images)
        assert torch.equal(getattr(plain, name).labels, getattr(shaped, name).labels)
    assert torch.equal(load_test(slot, None).labels, load_test(DataSlot(), None).labels)
    assert set(shaped.train.indices.tolist()) < set(plain.train.indices.tolist())


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5, 0.999])
def test_train_fraction_is_stratified(fraction: float):
    whole = load_development(DataSlot(), None).train
    train = load_development(DataSlot(train_fraction=fraction), None).train
    assert len(train) == round(fraction * len(whole))
    kept, all_ = train.labels.bincount(minlength=10), whole.labels.bincount(minlength=10)
    assert bool(((kept - fraction * all_).abs() < 1).all())


def test_a_smaller_fraction_is_part_of_a_larger_one():
    small, large = (
        load_development(DataSlot(train_fraction=f), None).train.indices.tolist()
        for f in (0.2, 0.6)
    )
    assert set(small) < set(large)


def test_imbalance_profile_is_the_published_one():
    counts = imbalance_counts(np.full(10, 5000), 100)
    published = [int(5000 * 0.01 ** (k / 9) + 1e-6) for k in range(10)]
    assert counts.tolist() == published
    assert (counts[0], counts[-1]) == (5000, 50)


def test_imbalance_never_needs_more_images_than_available():
    available = np.array([4, 50, 50])
    counts = imbalance_counts(available, 4)
    assert counts.tolist() == [4, 2, 1]
    train = load_development(DataSlot(imbalance=10), None).train
    sizes = train.labels.bincount(minlength=10)
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)
    assert 8 < float(sizes[0] / sizes[-1]) < 13


@pytest.mark.parametrize("noise", [0.01, 0.2, 0.75])
def test_label_noise_changes_exactly_that_share_to_other_classes(noise: float):
    clean = load_development(DataSlot(), None).train
    noisy = load_development(DataSlot(label_noise=noise), None).train
    changed = clean.labels != noisy.labels
    assert int(changed.sum()) == round(noise * len(clean))
    assert torch.equal(clean.indices, noisy.indices)
    assert 0 <= int(noisy.labels.min()) <= int(noisy.labels.max()) < 10


def test_label_noise_is_uniform_over_the_other_classes():
    labels = torch.zeros(20_000, dtype=torch.int64)
    split = Split(torch.zeros(20_000, 1, 1, 1, dtype=torch.uint8), labels, torch.arange(20_000))
    counts = add_label_noise(split, 0.9, 10).labels.bincount(minlength=10)
    assert int(counts[0]) == 2000
    assert bool(((counts[1:] - 2000).abs() < 5 * 2000**0.5).all())
    assert int(labels.sum()) == 0


def test_noise_and_imbalance_act_in_the_documented_order():
    sizes = load_development(DataSlot(imbalance=10), None).train
    both = load_development(DataSlot(imbalance=10, label_noise=0.2), None).train
    assert torch.equal(sizes.indices, both.indices)
    assert int((sizes.labels != both.labels).sum()) == round(0.2 * len(sizes))


@pytest.mark.parametrize("slot", [DataSlot(train_fraction=0.01), DataSlot(imbalance=1000)])
def test_a_class_without_samples_is_an_error(slot: DataSlot):
    with pytest.raises(UserError, match="no training samples left") as error:
        load_development(slot, None)
    assert "\n" not in str(error.value)


# --- augmentation
