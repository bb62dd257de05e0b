"""Head batches in parts, and views on a GPU with little memory."""

from types import SimpleNamespace

import pytest
import torch

from tests.support import CPU, drive, rows, run_of, sample, small_spec
from tune_calib.engine import head_batch
from tune_calib.engine.head_steps import Views
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.tuning.work.jobs import make_plan
from tune_calib.tuning.work.workers import HeadWorker


@pytest.mark.parametrize("size", sample([1, 2, 10**9], 1))
def test_the_rows_of_a_population_do_not_depend_on_its_parts(
    size, trained, bank, tmp_path, monkeypatch
):
    specs = [small_spec(method="mac_cal", seed=s, select="min_val_nll") for s in range(3)]
    [ray_trial] = make_plan([PlannedTrial(spec, 0, "") for spec in specs], set()).head_batches
    found = []
    for name, heads in (("whole", 10**9), ("parts", size)):
        monkeypatch.setattr(head_batch, "HEAD_BATCH_BYTES", 10**12)
        if heads < 3:
            size = 10**12 // heads
            monkeypatch.setattr(head_batch, "_bytes_of_a_head", lambda *_, size=size: size)
        actor = HeadWorker({
            "run": run_of(tmp_path / name, trained) | {"gpus": 1 / 4}, "job": ray_trial.config(),
            "epochs_per_step": 99,
        })  # fmt: skip
        drive(actor)
        found.append(rows(tmp_path / name))
        assert actor.trainer.views.share == 1 / 4
        assert len(actor.trainer.slots) == min(3, heads) or heads == 2
    assert found[0] == found[1]


@pytest.mark.parametrize("shape", [(100,), (3, 100)])
def test_batches_are_those_of_the_order(shape, bank):
    views = Views(bank, CPU)
    split = views.view(0)
    order = torch.stack([torch.randperm(len(split.labels)) for _ in range(3)])
    order = order[:, :100] if len(shape) == 2 else order[0, :100]
    given = list(views.batches(split, order, 32))
    for positions, (features, labels) in zip(order.split(32, dim=-1), given, strict=True):
        assert torch.equal(features, split.features[positions])
        assert torch.equal(labels, split.labels[positions])


@pytest.fixture
def gpu(monkeypatch):
    """A GPU with 80 bytes, of which torch has reserved some, and tensors without numbers."""

    def reserve(free, reserved, allocated):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 80))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocated)
        return torch.device("meta")

    return reserve


@pytest.mark.parametrize(
    ("memory", "share", "expected"),
    [
        ((60, 10, 10), 1, 30),  # half of what is free
        ((20, 50, 10), 1, 30),  # what torch has cached is free for it
        ((60, 10, 10), 1 / 4, 10),  # half of a fourth of the GPU
        ((60, 10, 10), 1 / 2, 20),
        ((8, 10, 10), 1 / 4, 4),  # the others have taken more than their share
    ],
)
def test_views_take_half_of_a_process_s_share_of_a_gpu(gpu, bank, memory, share, expected):
    bank = SimpleNamespace(views=99)
    assert Views(bank, gpu(*memory), share).count_places(size=1) == expected
