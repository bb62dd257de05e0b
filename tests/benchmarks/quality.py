"""(f) What asking for many suggestions at once costs: best value on Hartmann-6, minimised."""

import os
import tempfile
from collections import deque
from pathlib import Path
from statistics import fmean, median

import numpy as np

from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.space import SPACES, Space, uniform
from tune_calib.tuning.search.definition import Objective, SearchDefinition, SuggestionResult
from tune_calib.tuning.search.study import SearchStudy

EVALUATIONS = 128
REPEATS = int(os.environ.get("REPEATS", "10"))
OPTIMUM = -3.32237

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


def best(
    out: Path, sampler: str, seed: int, population: int, lag: int, evaluations: int = EVALUATIONS
) -> float:
    """Best value after some evaluations, asked and told as ``tuning.search.study`` does."""
    out.mkdir(parents=True)
    space = Space("hartmann6", {f"head.x{i}": uniform(0.0, 1.0) for i in range(6)})
    if "hartmann6" not in SPACES:
        SPACES.register(space)
    definition = SearchDefinition(
        "hartmann6", ResolvedRequest(), Objective(("ece",), 1.0), sampler, seed
    )
    definition.__dict__.update(identity="hartmann6", points=[])  # of no method
    study = SearchStudy(definition, out)
    values: list[float] = []
    waiting: deque[range] = deque()
    for start in range(0, evaluations, population):
        if len(waiting) == lag:
            write_results(study, waiting.popleft(), values)
        batch = range(start, min(start + population, evaluations))
        known = max(0, start - (lag - 1) * population)
        values += [
            hartmann6(dict(suggestion.point)) for suggestion in study.suggestions(batch, known)
        ]  # type: ignore[arg-type]
        waiting.append(batch)
    return min(values)


def write_results(study: SearchStudy, batch: range, values: list[float]) -> None:
    for number in batch:
        study.write_result(number, SuggestionResult("done", (values[number],), 0.0))


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
