"""A comparison over 100 draws of the calibration data, on imported logits without Ray.

``python -m tests.benchmarks.splits [DRAWS]`` prints the seconds of each part.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tune_calib.api.runs import run_ladder
from tune_calib.engine.imports import check_files, write_import
from tune_calib.files.store import Store
from tune_calib.spec.request import CompareRequest, build_request

SAMPLES, CLASSES = 10_000, 100
METHODS = ("ce", "temperature", "ets", "vector", "svs", "spline", "histogram")
"""Those with at most O(C) parameters, and the unchanged network."""


def draw_logits(folder: Path) -> None:
    """Write logits of an over-confident network, half for calib and half for test."""
    chance = np.random.default_rng(0)
    labels = chance.integers(CLASSES, size=SAMPLES)
    logits = chance.normal(size=(SAMPLES, CLASSES))
    logits[np.arange(SAMPLES), labels] += 4 * chance.random(SAMPLES)
    for name, part in (("calib", slice(0, None, 2)), ("test", slice(1, None, 2))):
        values = (2 * logits[part]).astype(np.float32)
        np.savez(folder / f"{name}.npz", logits=values, labels=labels[part])


@contextmanager
def timed(part: str) -> Iterator[None]:
    started, used = time.monotonic(), time.process_time()
    yield
    wall, used = time.monotonic() - started, time.process_time() - used
    print(f"{part:30s} {wall:7.1f} s, of which processor {used:7.1f} s", flush=True)


def main(draws: int) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder, store = Path(temporary), str(Path(temporary) / "store")
        draw_logits(folder)
        files = {name: [str(folder / f"{name}.npz")] for name in ("calib", "test")}
        with timed("import"):
            checked = check_files(train=(), select=(), head=(), **files)
            write_import("logits", checked, Store(Path(store)), replace=False)
        request = {"methods": METHODS, "imported": "logits", "split_seeds": draws}
        request |= {"out": str(folder / "run"), "store": store, "address": "none"}
        with timed(f"{draws} draws x {len(METHODS) - 1} methods"):
            results = run_ladder(build_request(CompareRequest, request), "")
        with timed("report"):
            results.report()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
