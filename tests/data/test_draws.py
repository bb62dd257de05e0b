"""Splits that a seed draws, and subsets of calib."""

from itertools import chain

import numpy as np
import pytest
import torch

from tune_calib.data.rules import divide, draw_held_out
from tune_calib.data.splits import load_development, load_test
from tune_calib.engine.bank import draw_splits, read_split, write_split
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec

CUTS = {
    "default": {},
    "whole": {"split": "whole"},
    "holdout": {"holdout": "test", "holdout_shares": (0.2, 0.3, 0.5)},
}
WEIGHTS = {"weights": "0123456789abcdef", "epochs": 0}


def positions(**data):
    """Positions in the published parts by split, and labels; those of test come last."""
    slot = DataSlot(**data)
    development = load_development(slot, None)
    splits = (development.train, development.select, development.calib, load_test(slot, None))
    return [split.indices.tolist() for split in splits], [split.labels for split in splits]


def are_stratified(part, pool):
    """Whether each class is in a part with its share of the pool, to within two samples."""
    expected = torch.bincount(pool) * len(part) / len(pool)
    return bool((torch.bincount(part, minlength=len(expected)) - expected).abs().max() <= 2)


@pytest.mark.parametrize("cut", CUTS)
def test_splits_are_drawn_anew_with_their_sizes_within_their_part(cut):
    published, _ = positions(**CUTS[cut])
    drawn, labels = positions(**CUTS[cut], split_seed=3)
    assert [len(part) for part in drawn] == [len(part) for part in published]
    assert drawn[1] != published[1]
    # Select and calib are from the test part unless the cut is the default.
    first = 0 if cut == "default" else 1
    # Disjoint, and nothing else.
    assert sorted(chain(*drawn[first:3])) == sorted(chain(*published[first:3]))
    for part in labels[first:3]:
        assert are_stratified(part, torch.cat(labels[first:3]))
    assert drawn[3] == published[3]
    if cut != "default":
        assert drawn[0] == published[0]
        assert not set(drawn[1] + drawn[2]) & set(drawn[3])


def test_a_draw_depends_on_its_seed_only():
    fresh = positions(split_seed=7)[0]
    others = [positions(split_seed=seed)[0] for seed in (8, 7)]
    assert others[1] == fresh
    assert others[0] != fresh


def test_train_is_changed_after_the_draw():
    changed, _ = positions(split_seed=1, train_fraction=0.5)
    plain, _ = positions(split_seed=1)
    assert set(changed[0]) < set(plain[0])
    assert changed[1:] == plain[1:]


@pytest.mark.parametrize("shares", [(1, 1, 1), (90, 9, 1)])
def test_subsets_of_calib_are_nested_and_stratified(shares):
    labels = torch.from_numpy(np.repeat(np.arange(3), 10 * np.array(shares)))
    subsets = []
    for size in (10, 20, len(labels)):
        data = DataSlot(dataset="digits", calib_size=size)
        _, places = draw_held_out(data, False, torch.arange(3), labels)
        subsets.append(set((places - 3).tolist()))
        assert are_stratified(labels[places - 3], labels)
    assert [len(subset) for subset in subsets] == [10, 20, len(labels)]
    assert subsets[0] < subsets[1] < subsets[2]


def test_a_frozen_network_draws_select_and_calib_from_their_own_samples():
    labels = torch.arange(60) % 6
    data = DataSlot(split_seed=2, calib_size=12)
    select, calib = draw_held_out(data, True, labels[:24], labels[24:])
    assert len(select) == 24
    assert len(calib) == 12
    assert not set(select.tolist()) & set(calib.tolist())
    assert not torch.equal(select, torch.arange(24))
    assert torch.bincount(labels[select]).tolist() == [4] * 6


def test_groups_are_never_divided():
    groups = torch.from_numpy(np.random.RandomState(0).randint(20, size=300))
    for seed in range(5):
        first, second = divide(groups, 100, np.random.RandomState(seed), groups)
        assert not set(groups[first].tolist()) & set(groups[second].tolist())
        assert len(first) + len(second) == 300
        assert abs(len(first) - 100) < 15  # half of a group


def test_a_stored_split_is_drawn_anew_without_dividing_equal_images(tmp_path):
    image_ids = torch.arange(60) % 25  # three or two images each
    splits = {}
    for name, rows in (("select", slice(0, 30)), ("calib", slice(30, 60))):
        outputs = [(torch.rand(30, 2), torch.arange(60)[rows, None].repeat(1, 3))]
        write_split(tmp_path / name, outputs, image_ids[rows] % 3, image_ids=image_ids[rows])
        splits[name] = read_split(tmp_path / name)
    spec = TrialSpec.build(data={"split_seed": 1}, network=WEIGHTS)
    drawn = draw_splits(splits, spec)
    select, calib = (set(drawn[name].image_ids.tolist()) for name in ("select", "calib"))
    assert len(select) + len(calib) == len(select | calib) == 25
    places = torch.cat([drawn[name].logits[:, 0] for name in ("select", "calib")])
    assert sorted(places.tolist()) == list(range(60))


@pytest.mark.parametrize(
    ("network", "settings", "network_settings"),
    [
        # Trained on what the seed draws.
        ({}, {"split_seed": 1, "calib_size": 50}, {"split_seed": 1}),
        (WEIGHTS, {"split_seed": 1, "calib_size": 50}, {}),
        # Trained on the whole training part, whatever select and calib are ...
        ({}, {"split_seed": 1, "holdout": "test"}, {"holdout": "test"}),
        # ... unless its epoch is selected.
        (
            {"select": "min_val_nll"},
            {"split_seed": 1, "holdout": "test"},
            {"split_seed": 1, "holdout": "test"},
        ),
        ({"method": "adafocal"}, {"calib_size": 50}, {"calib_size": 50}),
    ],
)
def test_draws_that_cannot_change_a_network_share_it(network, settings, network_settings):
    spec = TrialSpec.build(data=settings, network=network)
    same = TrialSpec.build(data=network_settings, network=network)
    assert spec.network_id == same.hash
    assert spec.is_redrawn == ("split_seed" in settings and "split_seed" not in network_settings)
