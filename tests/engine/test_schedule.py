"""Learning rates over a training, against torch's own schedules."""

from itertools import pairwise

import pytest
import torch

from tune_calib.engine.steps import learning_rate
from tune_calib.spec.slots.network import NetworkSlot

EPOCHS, BATCHES = 10, 20


def rates(**network) -> list[float]:
    slot = NetworkSlot(epochs=EPOCHS, lr=0.2, **network)
    return [learning_rate(slot, e, b, BATCHES) for e in range(EPOCHS) for b in range(BATCHES)]


def test_cosine_is_that_of_torch_batch_by_batch():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * BATCHES)
    expected = []
    for _ in range(EPOCHS * BATCHES):
        expected.append(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    assert rates(schedule="cosine") == pytest.approx(expected, abs=1e-12)


def test_one_cycle_equals_that_of_torch_up_to_the_position_in_a_batch():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.2)
    steps = EPOCHS * BATCHES
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.2, total_steps=steps, pct_start=0.3, cycle_momentum=False
    )
    expected = []
    for _ in range(steps):
        expected.append(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    found = rates(schedule="one_cycle", warmup=0.3)
    assert found == pytest.approx(expected, abs=0.2 * 2 * torch.pi / steps)
    assert max(found) == pytest.approx(0.2, rel=1e-3)
    assert found[0] < 0.2 / 20
    assert 0 < found[-1] < 0.2 / 1000


@pytest.mark.parametrize("schedule", ["steps", "cosine"])
@pytest.mark.parametrize("warmup", [0.1, 0.25])
def test_a_warm_up_rises_linearly_and_never_is_zero(schedule, warmup):
    found, plain = rates(schedule=schedule, warmup=warmup), rates(schedule=schedule)
    rising = round(EPOCHS * BATCHES * warmup)
    steps = [later - earlier for earlier, later in pairwise(found[:rising])]
    assert steps == pytest.approx([0.2 / rising] * (rising - 1))
    assert found[0] > 0
    assert max(found) <= 0.2
    # What is left after the warm-up is the whole fall, on fewer batches.
    steeper = (1 - warmup) ** -2 if schedule == "cosine" else 1
    assert found[-1] == pytest.approx(plain[-1] * steeper, rel=1e-3)


def test_milestones_divide_the_rate_by_ten():
    assert rates(milestones=(0.5, 0.8)) == pytest.approx(
        [0.2] * (5 * BATCHES) + [0.02] * (3 * BATCHES) + [0.002] * (2 * BATCHES)
    )
