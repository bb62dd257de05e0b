"""(f) What asking for many suggestions at once costs: best value on Hartmann-6, minimised.

And what the sampler's speed costs: its searches against those of Optuna's own sampler, seed by
seed, on Hartmann-6 and on the heads of ``studies``.
"""

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from unittest import mock

import numpy as np
from optuna.samplers import TPESampler
from scipy import stats

from tests.benchmarks.search import job
from tests.benchmarks.studies import HEADS, NOISY, WAYS, history
from tune_calib.spec.space import Space, uniform
from tune_calib.tuning.search import study as studies
from tune_calib.tuning.search.driver import search
from tune_calib.tuning.search.objective import Objective, Standing
from tune_calib.tuning.search.storage import open_storage
from tune_calib.tuning.search.study import SearchStudy

EVALUATIONS = 128
REPEATS = int(os.environ.get("REPEATS", "10"))
OPTIMUM = -3.32237
LONG = 500
"""Evaluations beyond what the sampler reads."""

# Dixon and Szegoe (1978), as tabulated by Surjanovic and Bingham.
_ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6(point: dict[str, float]) -> float:
    x = np.array(list(point.values()))
    return float(-(_ALPHA * np.exp(-(_A * (x - _P) ** 2).sum(1))).sum())


class Plain(TPESampler):
    """Optuna's own, which reads every trial and fits its densities for each suggestion."""

    def __init__(self) -> None:
        super().__init__(multivariate=True, group=True, constant_liar=True)

    def reseed(self, seed: int) -> None:
        self._rng.rng.seed(seed)
        self._random_sampler._rng.rng.seed(seed)


def best(
    out: Path, sampler: str, seed: int, population: int, lag: int, evaluations: int = EVALUATIONS
) -> float:
    """Best value after some evaluations, asked and told as ``search_heads`` does."""
    out.mkdir(parents=True)
    space = Space("any", {f"head.x{i}": uniform(0.0, 1.0) for i in range(6)})
    objective = Objective(("ece",), 1.0)
    study = SearchStudy(open_storage(None, out), "q", space, objective, sampler, seed, [])  # type: ignore[arg-type]
    values: list[float] = []
    waiting: deque[range] = deque()
    for start in range(0, evaluations, population):
        if len(waiting) == lag:
            tell(study, waiting.popleft(), values)
        batch = range(start, min(start + population, evaluations))
        known = max(0, start - (lag - 1) * population)
        values += [hartmann6(dict(each.point)) for each in study.suggestions(batch, known)]  # type: ignore[arg-type]
        waiting.append(batch)
    return min(values)


def tell(study: SearchStudy, batch: range, values: list[float]) -> None:
    for number in batch:
        study.tell(number, Standing("done", (values[number],), 0.0))


def heads(root: Path, seed: int) -> float:
    """Best ECE (%) of a search of MaC-Cal heads as ``studies`` makes it, NaN if none is kept."""
    asked = job(
        root / str(seed),
        root.parent / "store",
        HEADS,
        NOISY,
        sampler_seed=seed,
        **WAYS["TPE, populations of 8"],
    )
    return 100 * history(search(asked))[-1]


def against_plain(title: str, searched: Callable[[Path, int], float], folder: Path) -> None:
    """Print how much worse searches end than with Optuna's own sampler, seed by seed."""
    found, took = {}, {}
    for name, sampler in (("ours", studies.RecentTPESampler), ("plain", Plain)):
        with mock.patch.object(studies, "RecentTPESampler", sampler):
            start = time.process_time()
            found[name] = np.array([searched(folder / name, s) for s in range(REPEATS)])
            took[name] = time.process_time() - start
    worse = found["ours"] - found["plain"]
    half = stats.t.ppf(0.975, REPEATS - 1) * worse.std(ddof=1) / REPEATS**0.5
    same = int((abs(worse) < 1e-9).sum())
    print(
        f"{title:34s} {found['ours'].mean():8.3f} {found['plain'].mean():8.3f}"
        f" {worse.mean():+9.4f} ± {half:.4f} {same:5d} of {REPEATS}"
        f" {took['plain'] / took['ours']:8.1f} times",
        flush=True,
    )


def main() -> None:
    """Print a row for each way of asking."""
    print(f"Hartmann-6 (optimum {OPTIMUM:.3f}), {EVALUATIONS} evaluations, {REPEATS} seeds")
    print("sampler     K  lag   mean of the best   median   worst")
    ways = [("random", 1, 1), ("tpe", 1, 1)]
    ways += [("tpe", population, lag) for population in (8, 16) for lag in (1, 2, 3)]
    with tempfile.TemporaryDirectory() as folder:
        for sampler, population, lag in ways:
            out = Path(folder) / f"{sampler}-{population}-{lag}"
            out.mkdir()
            found = [best(out / str(s), sampler, s, population, lag) for s in range(REPEATS)]
            print(
                f"{sampler:8s} {population:4d} {lag:4d} {fmean(found):18.3f} {median(found):8.3f}"
                f" {max(found):7.3f}",
                flush=True,
            )
    print(f"\nagainst Optuna's own sampler, {REPEATS} seeds (difference with 95 % interval)")
    print(f"{'':34s}     ours    plain      ours - plain         equal    driver's time")
    with tempfile.TemporaryDirectory() as folder:
        for count in (EVALUATIONS, LONG):
            against_plain(
                f"Hartmann-6, {count} evaluations, K = 8",
                lambda out, seed, count=count: best(out / str(seed), "tpe", seed, 8, 2, count),  # type: ignore[misc]
                Path(folder) / str(count),
            )
        against_plain(f"ECE (%) of {HEADS} heads, noisy digits", heads, Path(folder) / "heads")
