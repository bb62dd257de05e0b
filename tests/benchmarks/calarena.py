"""Our methods next to those of probmetrics, which CalArena compares.

    python -m tests.benchmarks.calarena

It prints processor seconds of a fit on 10,000 samples and of its prediction for as many, with the
ratio of ours to that of probmetrics in the same run, on one core. Matrix scaling has no penalty,
like theirs.
"""

import time
import warnings
from collections.abc import Mapping
from importlib.util import find_spec

import sklearn.isotonic  # noqa: F401  (whose import is not measured)
import torch
from tabulate import tabulate

from tests.benchmarks.posthoc import drawn
from tune_calib.engine.evaluate import SplitLogits, fit_transform
from tune_calib.spec.slots.base import PostHocSlot

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


if __name__ == "__main__":
    compare_pairs()
