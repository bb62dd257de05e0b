"""(h) Does searching pay? TPE against random on MaC-Cal heads; ASHA against full budgets.

The figure goes to ``runs/studies`` of the folder in which the benchmark is run.
"""

import tempfile
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from ablations._ladder import Seeds
from analysis import style
from tests.benchmarks.search import CORES, request
from tune_calib.registry import DATASETS
from tune_calib.results import read_table
from tune_calib.tuning.objective import Objective
from tune_calib.tuning.request import Question, SearchRequest
from tune_calib.tuning.search import Found, search

HEADS, REPEATS = 96, 5
NETWORKS, NETWORK_EPOCHS, NETWORK_REPEATS = 12, 27, 2
FIGURES = Path("runs") / "studies"


def heads(root: Path, sampler: str, seed: int) -> list[float]:
    """Best ECE on ``select`` within the guard after each head; NaN before there is one."""
    asked = request(root / f"{sampler}-{seed}", root / "store", HEADS, 8)
    question = replace(
        asked.question,
        sampler=sampler,  # type: ignore[arg-type]
        sampler_seed=seed,
        objective=Objective(("ece",), 0.01),
        defaults={**asked.question.defaults, "data": {**LABEL_NOISE}},
        given={"network": {"epochs": 30}, "head": {"epochs": 20}, "data": LABEL_NOISE},
    )
    return history(search(replace(asked, question=question)))


LABEL_NOISE = {"dataset": "digits", "label_noise": 0.2}
"""The demo's data, on which a network is over-confident."""


def history(found: Found) -> list[float]:
    """Best first metric within the guard after each suggestion."""
    objective, verdicts = found.trials.objective, found.trials.verdicts
    kept = objective.within_guard(verdicts)
    values = [kept[n].values[0] if n in kept else np.inf for n in sorted(verdicts)]
    return [value if np.isfinite(value) else np.nan for value in accumulate(values, min)]


def networks(root: Path, scheduler: str, seed: int) -> tuple[int, float]:
    """Epochs that a search of focal loss trained in all, and its best ECE on ``select``."""
    asked = Question(
        method="fl",
        defaults=DATASETS["digits"].cpu_defaults,
        given={"network": {"epochs": NETWORK_EPOCHS}, "data": LABEL_NOISE},
        seeds=Seeds((0,), (0,), is_paired=True),
        objective=Objective(("ece",), 0.05),
        sampler="random",
        sampler_seed=seed,
        scheduler=scheduler,  # type: ignore[arg-type]
        lag=2,
    )
    out = root / f"{scheduler}-{seed}"
    found = search(
        SearchRequest(
            asked, NETWORKS, out, root / "store", None, None, 0.0, CORES, None, "benchmark"
        )
    )
    rows = read_table(out, "trials").select(["rung", "epoch"]).to_pylist()
    return sum(row["epoch"] for row in rows if row["rung"] >= 0), history(found)[-1]


def draw(histories: dict[str, Any]) -> Path:
    """Best value against the number of heads, a band over the repeats."""
    style.apply()
    figure, axis = plt.subplots(figsize=(style.TEXT_IN / 2, 2.4))
    for index, (sampler, runs) in enumerate(histories.items()):
        values = 100 * np.array(runs)
        heads = np.arange(1, values.shape[1] + 1)
        color = style.color(index)
        axis.plot(heads, values.mean(0), color=color, label=f"{sampler} (mean of {len(runs)})")
        axis.fill_between(heads, values.min(0), values.max(0), color=color, alpha=0.2, lw=0)
    axis.set(xlabel="heads trained", ylabel="best select ECE within the guard (%)")
    axis.set_title("band: smallest to largest of the repeats", fontsize=6.5)
    axis.legend(frameon=False)
    style.save(figure, FIGURES, "tpe-random")
    return FIGURES


def main() -> None:
    """Print what each sampler and each scheduler reached, and draw the samplers."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        histories = {
            sampler: [heads(root, sampler, seed) for seed in range(REPEATS)]
            for sampler in ("tpe", "random")
        }
        print(f"MaC-Cal on digits with noisy labels, {HEADS} heads, {REPEATS} sampler seeds")
        print("sampler   best select ECE within the guard (%), after 16, 32, 64 and all heads")
        for sampler, runs in histories.items():
            at = [15, 31, 63, HEADS - 1]
            cells = [[100 * run[place] for run in runs] for place in at]
            told = "   ".join(f"{fmean(cell):.2f} ± {stdev(cell):.2f}" for cell in cells)
            print(f"{sampler:9s} {told}", flush=True)
        print(f"figure in {draw(histories)}")
        print(f"fl on the same data, {NETWORKS} networks of {NETWORK_EPOCHS} epochs")
        for scheduler in ("none", "asha"):
            for seed in range(NETWORK_REPEATS):
                epochs, best = networks(root, scheduler, seed)
                print(
                    f"{scheduler:5s} seed {seed}: {epochs:4d} epochs, best ECE {100 * best:.2f} %",
                    flush=True,
                )
