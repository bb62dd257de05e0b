"""The inner loop of a training: it knows torch alone, and tells where an epoch's time went."""

import torch

from tests.support import CPU
from tune_calib.data.augment import crop_flip, draw_views
from tune_calib.data.splits import load_development
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.steps import Stopwatch, batches_of
from tune_calib.spec.trial import TrialSpec


def test_draws_of_an_epoch_at_once_are_those_of_its_batches_one_by_one():
    images = torch.randint(0, 256, (50, 3, 8, 8), dtype=torch.uint8)
    order = torch.randperm(50).split(16)
    at_once = list(batches_of(images, order, 2, True, torch.Generator().manual_seed(3)))
    chance = torch.Generator().manual_seed(3)
    assert [len(positions) for positions, _ in at_once] == [16, 16, 16, 2]
    for (positions, taken), batch in zip(at_once, order, strict=True):
        assert torch.equal(positions, batch)
        alone = crop_flip(images[batch], draw_views([len(batch)], 2, True, chance))
        assert torch.equal(taken, alone)


def test_a_watched_epoch_has_the_same_digits_and_its_phases_are_its_time():
    spec = TrialSpec.build(data={"train_fraction": 0.2}, network={"epochs": 2})
    plain, watched = (
        NetworkTrainer(spec, load_development(spec.data, None), CPU) for _ in range(2)
    )
    watched.watch = watch = Stopwatch()
    with watch.phase("all"):
        reports = list(watched)
    assert reports == list(plain)
    whole = watch.seconds.pop("all")
    assert set(watch.seconds) == {
        "images", "forward", "backward", "optimiser", "records", "feedback", "judgement on select",
    }  # fmt: skip
    assert 0.8 * whole < sum(watch.seconds.values()) <= whole
