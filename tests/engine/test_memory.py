"""Banks and head batches larger than the memory that there is: each in a process with a limit."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.support import CPU, drive, rows, run_of, sample, small_spec
from tune_calib.engine import head_batch
from tune_calib.engine.bank import DevelopmentBank, write_arrow, write_split
from tune_calib.engine.head_batch import HeadBatchTrainer, in_parts
from tune_calib.engine.head_steps import Views
from tune_calib.files.store import write_folder
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.tuning.work.jobs import make_plan
from tune_calib.tuning.work.rows import peak_memory
from tune_calib.tuning.work.workers import HeadWorker

CLASSES = 10
MIB = 2**20


def random_outputs(samples, width, seed, chunk=500):
    chance = torch.Generator().manual_seed(seed)
    for first in range(0, samples, chunk):
        count = min(chunk, samples - first)
        yield torch.rand(count, width, generator=chance), torch.rand(count, CLASSES)


def random_bank(folder: Path, samples: int, width: int, views: int = 1) -> DevelopmentBank:
    def fill(path):
        labels = torch.arange(samples) % CLASSES
        for view in range(views):
            outputs = random_outputs(samples, width, view)
            write_split(path / f"train-{view:03d}.arrow", outputs, labels)
        for name in ("select", "calib"):
            outputs = random_outputs(50, width, 99)
            write_split(path / f"{name}.arrow", outputs, labels[:50])
        head = torch.zeros(CLASSES, width), torch.zeros(CLASSES, 1)
        write_arrow(path / "head.arrow", {"weight": head[0], "bias": head[1]})

    about = {"train_views": views, "accuracy": {"train": 1.0, "select": 1.0}}
    write_folder(folder, fill, about)
    return DevelopmentBank(folder)


def limit_data(mebibytes: int) -> None:
    """Private memory that this process may take from here on."""
    fields = Path("/proc/self/status").read_text().split()
    now = int(fields[fields.index("VmData:") + 1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (now + mebibytes * MIB,) * 2)


def alone(call: str, *arguments: object) -> str:
    """What a function of this file prints in a process of its own."""
    code = f"import sys; from tests.engine import test_memory as t; t.{call}(*sys.argv[1:])"
    # Memory that was freed goes back at once, so that what is counted is what is held.
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- in the processes with a limit


def write_a_view(folder: str) -> None:
    samples, width = 24_000, 2048  # 187 MiB
    warm = torch.rand(500, width) @ torch.rand(width, 2)
    del warm
    limit_data(128)
    outputs = random_outputs(samples, width, 0)
    write_split(Path(folder) / "train-000.arrow", outputs, torch.zeros(samples, dtype=torch.long))


def write_and_train(view: str, bank: str) -> None:
    train_on_views(bank)
    write_a_view(view)


def train_on_views(folder: str) -> None:
    torch.set_num_threads(1)
    bank = DevelopmentBank(Path(folder))
    slot = small_spec(method="retrain", epochs=bank.views, augment="standard", batch_size=500).head
    trainer = HeadBatchTrainer([slot], bank, 0, CPU)
    next(trainer)
    before = peak_memory("cpu")
    list(trainer)
    sys.stdout.write(str((peak_memory("cpu") - before) // MIB))


def train_heads(folder: str, head_batch_bytes: str, mebibytes: str) -> None:
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    bank = DevelopmentBank(Path(folder))
    # Threads and libraries that take memory once do so now.
    slot = small_spec(method="mac_cal", epochs=1, params={"width": 2}).head
    list(HeadBatchTrainer([slot], bank, 0, CPU))
    limit_data(int(mebibytes))
    head_batch.HEAD_BATCH_BYTES = int(head_batch_bytes)
    slots = [
        small_spec(method="mac_cal", seed=s, epochs=1, select="min_val_nll").head for s in range(12)
    ]
    logits = []
    for part in in_parts(slots, bank):
        trainer = HeadBatchTrainer(part, bank, 0, CPU)
        list(trainer)
        logits += trainer.predict(bank.select()).tolist()
        del trainer
    sys.stdout.write(json.dumps(logits))


# --- tests


@pytest.mark.slow
def test_views_larger_than_memory_are_streamed_and_written(tmp_path):
    random_bank(tmp_path / "bank", 8_000, 1024, views=8)  # 31 MiB each
    assert int(alone("write_and_train", tmp_path, tmp_path / "bank")) < 100
    assert (tmp_path / "train-000.arrow").stat().st_size > 180 * MIB


@pytest.mark.slow
def test_a_head_batch_larger_than_memory_is_split(tmp_path):
    random_bank(tmp_path / "bank", 64, 2048)
    whole = alone("train_heads", tmp_path / "bank", 2**40, 100_000)
    assert alone("train_heads", tmp_path / "bank", 150 * MIB, 200) == whole
    with pytest.raises(AssertionError, match=r"alloc|memory"):
        alone("train_heads", tmp_path / "bank", 2**40, 200)


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
@pytest.mark.parametrize("gathered", [1, 2**30])
def test_batches_are_those_of_the_order(shape, gathered, bank, monkeypatch):
    monkeypatch.setattr("tune_calib.engine.head_steps.GATHERED_BYTES", gathered)
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


@pytest.mark.parametrize(("fits", "expected"), [(9, 9), (4, 4), (3, 2), (0, 0)])
def test_fewer_views_are_held_where_memory_is_less_than_it_seems(
    gpu, bank, monkeypatch, fits, expected
):
    views = Views(bank, gpu(80, 0, 0))
    monkeypatch.setattr(views, "count_places", lambda size: 9)
    new_empty = torch.Tensor.new_empty

    def allocate(tensor, count, *shape, **options):
        if count > fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return new_empty(tensor, count, *shape, **options)

    monkeypatch.setattr(torch.Tensor, "new_empty", allocate)
    views.hold(0)
    assert len(views.places) == expected
    assert (views.held is not None) == (expected > 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_epoch_does_not_synchronise_with_the_gpu(bank):
    for method in ("retrain", "mac_cal", "tst", "vtst"):
        slots = [small_spec(method=method, seed=s).head for s in range(3)]
        trainer = HeadBatchTrainer(slots, bank, 0, torch.device("cuda"))
        next(trainer)
        trainer.method.begin_epoch(1)
        torch.cuda.set_sync_debug_mode("error")
        try:
            trainer._train_epoch(0)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_view_that_does_not_fit_a_gpu_is_streamed(bank, monkeypatch):
    slots = [small_spec(method="mac_cal", seed=s).head for s in range(3)]
    logits = []
    for share in (0.5, 0.0):
        monkeypatch.setattr("tune_calib.engine.head_steps.SHARE_OF_VIEWS", share)
        trainer = HeadBatchTrainer(slots, bank, 0, torch.device("cuda"))
        list(trainer)
        assert (trainer.views.held is not None) == (share > 0)
        logits.append(trainer.predict(bank.select()))
    assert torch.equal(*logits)


@pytest.mark.parametrize("samples", [3, 5])
def test_a_bank_whose_outputs_are_not_one_a_sample_is_not_written(samples, tmp_path):
    with pytest.raises(ValueError, match=f"{samples} outputs for 4 samples"):
        write_split(tmp_path / "bank", random_outputs(samples, 2, 0, chunk=2), torch.zeros(4))
    assert not list(tmp_path.iterdir())
