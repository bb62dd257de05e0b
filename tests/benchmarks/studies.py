"""(i) Does searching pay? TPE against random, batches against one at a time.

The figure goes to ``runs/studies`` of the folder in which the benchmark is run.
"""

import math
import tempfile
from itertools import accumulate
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from analysis import style
from tests.benchmarks.common import CIFAR10_ROOT
from tests.benchmarks.search import CIFAR10, job
from tune_calib.spec.datasets import Settings
from tune_calib.tuning.context import Context
from tune_calib.tuning.run import execute_run
from tune_calib.tuning.search.outcome import SearchResult

HEADS, REPEATS = 96, 5
NOISY: Settings = {
    "data": {"dataset": "digits", "label_noise": 0.2},
    "network": {"epochs": 30},
    "head": {"epochs": 20},
}
"""The demo's data, on which a network is over-confident."""

WAYS: dict[str, dict[str, Any]] = {
    "random": {"sampler": "random", "population": 8},
    "TPE, one at a time": {"sampler": "tpe", "population": 1, "lag": 1},
    "TPE, batches of 8": {"sampler": "tpe", "population": 8},
}

NETWORK_EPOCHS, NETWORK_REPEATS = 27, 3
FIGURES = Path("runs") / "studies"
Histories = dict[str, list[list[float]]]


def history(found: SearchResult) -> list[float]:
    """Best first metric within the guard after each suggestion; NaN before there is one."""
    objective, standings = found.state.objective, found.state.results
    kept = objective.within_guard(standings)
    values = [kept[n].values[0] if n in kept else np.inf for n in sorted(standings)]
    return [value if np.isfinite(value) else np.nan for value in accumulate(values, min)]


def heads(root: Path, given: Settings) -> Histories:
    """Searches of MaC-Cal heads, in every way, under several seeds of the sampler."""
    histories: Histories = {}
    for name, way in WAYS.items():
        for seed in range(REPEATS):
            out = root / f"{name}-{seed}"
            asked = job(out, root / "store", HEADS, given, sampler_seed=seed, **way)
            histories.setdefault(name, []).append(history(execute_run(asked, Context())))
    return histories


def print_progress(title: str, histories: Histories) -> None:
    """Print what each way had reached after some heads."""
    at = [15, 31, 63, HEADS - 1]
    print(f"MaC-Cal on {title}: best select ECE within the guard (%), {REPEATS} sampler seeds")
    print(f"{'':22s} " + "   ".join(f"{place + 1:4d} heads  " for place in at))
    for name, runs in histories.items():
        cells = [_cell([100 * run[place] for run in runs]) for place in at]
        print(f"{name:22s} " + "   ".join(cells))
    better = sum(
        a[-1] < b[-1]
        for a, b in zip(histories["TPE, batches of 8"], histories["random"], strict=True)
    )
    print(f"batches of 8 end better than random under {better} of {REPEATS} seeds", flush=True)


def _cell(values: list[float]) -> str:
    """Mean ± sd, or under how many seeds there is nothing within the guard yet."""
    missing = sum(map(math.isnan, values))
    if missing:
        return f"{missing} of {len(values)} none"
    return f"{fmean(values):5.2f} ± {stdev(values):.2f}"


def draw(panels: dict[str, Histories]) -> Path:
    """Best value against the number of heads: each repeat thin, their mean thick."""
    style.theme()
    figure, axes = plt.subplots(1, len(panels), figsize=(style.TEXT_IN, 2.4), squeeze=False)
    for axis, (title, histories) in zip(axes[0], panels.items(), strict=True):
        for index, (name, runs) in enumerate(histories.items()):
            values, color = 100 * np.array(runs), style.color(index)
            heads = np.arange(1, values.shape[1] + 1)
            dashes = ("-", "--", ":")[index]
            steps = {"color": color, "drawstyle": "steps-post"}
            axis.plot(heads, values.T, dashes, lw=0.6, alpha=0.45, **steps)
            axis.plot(heads, values.mean(0), dashes, lw=2, label=name, **steps)
        axis.set(title=title, xlabel="heads trained", ylabel="best select ECE (%)")
    axes[0, -1].legend(frameon=False)
    style.save(figure, FIGURES, "tpe-random")
    return FIGURES


def main() -> None:
    """Print what each sampler reached, and draw the samplers."""
    settings = {"digits with noisy labels": NOISY}
    if CIFAR10_ROOT.exists():
        settings["CIFAR-10"] = CIFAR10
    panels = {}
    with tempfile.TemporaryDirectory() as folder:
        for title, given in settings.items():
            panels[title] = heads(Path(folder) / title, given)
            print_progress(title, panels[title])
        print(f"figure in {draw(panels)}")
