"""Logits of many samples and classes: imported in a process whose memory is limited."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.imports.files import outputs

GIB = 1024


def limit_data(mebibytes: int) -> None:
    """Private memory that this process may take from here on."""
    fields = Path("/proc/self/status").read_text().split()
    now = int(fields[fields.index("VmData:") + 1]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (now + mebibytes * 2**20,) * 2)


def take_in(folder: str, mebibytes: str) -> None:
    """In a process of its own; what it prints is the growth of its memory, in MiB."""
    from tune_calib.engine.imports import check_files, read_record, write_import
    from tune_calib.files.store import Store
    from tune_calib.tuning.work.worker import peak_memory

    path = Path(folder)
    for name in ("first", "mine"):  # libraries that take memory once do so in the first
        files = {
            each: [f"{role}={path}/{name}-{each}-{role}.npy" for role in ("logits", "labels")]
            for each in ("calib", "test")
        }
        if name == "mine":
            limit_data(int(mebibytes))
        store = Store(path / "store")
        write_import(name, check_files(train=(), select=(), head=(), **files), store, replace=False)
    assert read_record("mine", store).is_cut
    sys.stdout.write(str(peak_memory("cpu") // 2**20))


def peak_of(folder: Path, mebibytes: int) -> int:
    code = "import sys; from tests.imports import test_memory as t; t.take_in(*sys.argv[1:])"
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(mebibytes)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def write_splits(folder: Path, samples: dict[str, int], classes: int) -> None:
    for seed, (name, count) in enumerate(samples.items()):
        save(folder / f"first-{name}", **outputs(50, seed=seed))
        chance = np.random.default_rng(seed)
        logits = chance.standard_normal((count, classes), np.float32)
        labels = chance.integers(classes, size=count)
        save(folder / f"mine-{name}", logits=logits, labels=labels)


def save(path: Path, **arrays: np.ndarray) -> None:
    for role, values in arrays.items():
        np.save(f"{path}-{role}.npy", values)


@pytest.mark.slow
def test_logits_larger_than_memory_are_imported(tmp_path):
    write_splits(tmp_path, {"calib": 1000, "test": 60_000}, 1000)  # 229 MiB
    peak_of(tmp_path, 200)


@pytest.mark.slow
def test_the_logits_of_imagenet_within_2_gib(tmp_path):
    write_splits(tmp_path, {"calib": 50_000, "test": 50_000}, 1000)
    assert peak_of(tmp_path, 2 * GIB) < 2 * GIB
