"""Imports and comparisons of CalArena's sizes, and our methods next to those of probmetrics.

    python -m tests.benchmarks.calarena pairs|small|many|large [--folder FOLDER]

* ``pairs``: processor seconds of a fit on 10,000 samples and of its prediction for as many, with
  the ratio of ours to that of probmetrics in the same run, on one core. Matrix scaling has no
  penalty, like theirs;
* ``small``: import of 1,791 experiments of 100 samples;
* ``many``: import and comparison of 28 experiments of 10,000 samples of 10, 100 and 1,000 classes;
* ``large``: 50,000 samples of 1,000 classes: import, comparison, and a report with intervals.

The last three print wall-clock seconds and the most memory of a process.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import sklearn.isotonic  # noqa: F401  (whose import is not measured)
import torch
from tabulate import tabulate

from tests.benchmarks.posthoc import drawn
from tune_calib.engine.evaluate import SplitLogits, fit_transform
from tune_calib.spec.slots.posthoc import PostHocSlot

PAIRS = {
    "temperature": "TemperatureScaling",
    "vector": "VectorScaling",
    "beta": "Betacal",
    "matrix": "MatrixScaling",
    "svs": "SVS",
    "sms": "SMS",
    "ets": "ETS",
    "isotonic": "isotonic",
    "histogram": "BinaryHistogramBinning",
}
MOST_CLASSES = {"beta": 2, "matrix": 100, "sms": 100}
UNPENALISED = {"off_diagonal": 0.0, "intercept": 0.0}
LINEAR = ("temperature", "vector", "svs", "ets", "isotonic", "histogram")  # O(C) parameters
REPORT = """
import sys, numpy, tune_calib
arrays = numpy.load(sys.argv[1])
print(tune_calib.calibration_report(arrays["probas"], arrays["labels"], outputs="probs"))
"""


def fitting_seconds(
    name: str, calib: SplitLogits, test: torch.Tensor, params: Mapping[str, float] = {}
) -> float:
    """Return the processor seconds of a fit and of its prediction."""
    slot = PostHocSlot.build(method=name, params=params)
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_transform(slot, calib, checks_harm=False).transform(test)
    return time.process_time() - started


def compare_pairs(samples: int = 10_000) -> None:
    """Print the seconds of each pair by number of classes."""
    torch.set_num_threads(1)
    rows = []
    for classes in (2, 10, 100, 1000):
        logits, labels = drawn(2 * samples, classes)
        calib = SplitLogits(logits[None, :samples], labels[:samples])
        test = logits[None, samples:].double()
        for ours, theirs in PAIRS.items():
            if classes > MOST_CLASSES.get(ours, classes):
                continue
            if ours == "beta" and find_spec("betacal") is None:
                print("beta: left out, since betacal is not installed")
                continue
            params = UNPENALISED if ours == "matrix" else {}
            seconds = [
                fitting_seconds(ours, calib, test, params),
                fitting_seconds(f"probmetrics:{theirs}", calib, test),
            ]
            rows.append([classes, ours, *seconds, seconds[0] / seconds[1]])
            print(*rows[-1], flush=True)
    heads = ["classes", "method", "ours (s)", "probmetrics (s)", "ratio"]
    print(tabulate(rows, heads, floatfmt=("", "", ".2f", ".2f", ".2f")))


def write_models(path: Path, sizes: Iterable[tuple[int, int]]) -> None:
    """Write models of (samples, classes) in CalArena's layout, a data set each."""
    with h5py.File(path, "w") as file:
        for number, (samples, classes) in enumerate(sizes):
            logits, labels = drawn(2 * samples, classes, seed=number)
            probabilities = logits.softmax(-1).numpy()
            group = file.create_group(f"data{number}/net")
            for split, part in (("cal", slice(samples)), ("test", slice(samples, None))):
                group[f"probas_{split}"] = probabilities[part]
                group[f"labels_{split}"] = labels[part].numpy()


def run(words: Sequence[object]) -> None:
    """Run a command, and print its seconds and its memory."""
    started = time.perf_counter()
    process = subprocess.Popen(list(map(str, words)))
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    print(f"{seconds:7.1f} s  {usage.ru_maxrss / 2**20:5.2f} GiB  {' '.join(map(str, words[:2]))}")
    if status:
        raise SystemExit(f"failed: {words}")


def compare_imports(folder: Path, methods: Sequence[str], sizes: Iterable[tuple[int, int]]) -> None:
    """Import models of these sizes, and compare methods on them unless there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    path, store = folder / "models.h5", folder / "store"
    in_child(write_models, path, sizes)
    program = [Path(sys.executable).with_name("tune-calib")]
    run([*program, "import", "arena", "--models", path, "--select", "none", "--store", store])
    if methods:
        words = ["compare", *methods, "--imported", "arena/*", "--store", store]
        run([*program, *words, "--out", folder / "out"])


def write_test(path: Path) -> None:
    """Write predictions for 50,000 samples of 1,000 classes."""
    logits, labels = drawn(50_000, 1000)
    np.savez(path, probas=logits.softmax(-1).numpy(), labels=labels.numpy())


def in_child(write: Callable[..., None], *arguments: object) -> None:
    """Write in another process: commands inherit the largest memory of this one."""
    with ProcessPoolExecutor(1) as pool:
        pool.submit(write, *arguments).result()


def measure_large(folder: Path) -> None:
    """Measure ImageNet's size."""
    compare_imports(folder, LINEAR, [(50_000, 1000)])
    in_child(write_test, folder / "test.npz")
    run([sys.executable, "-c", REPORT, folder / "test.npz"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("pairs", "small", "many", "large"))
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp())
    if arguments.part == "pairs":
        compare_pairs()
    elif arguments.part == "small":
        compare_imports(folder, (), [(100, 2 + number % 9) for number in range(1791)])
    elif arguments.part == "many":
        classes = [(10, 100, 1000)[number % 3] for number in range(28)]
        compare_imports(folder, ["--all", "posthoc"], [(10_000, count) for count in classes])
    else:
        measure_large(folder)


if __name__ == "__main__":
    main()
