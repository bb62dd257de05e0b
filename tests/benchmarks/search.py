"""(e) Heads searched per second against the bare loop on the same heads; what grows with them."""

import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks.common import CIFAR10_ROOT, CORES, bare_loops, steady_rate
from tune_calib.spec.datasets import Settings
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.context import Context
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.plan import execute_run
from tune_calib.tuning.search.definition import Objective, SearchDefinition
from tune_calib.tuning.search.run import SearchRun, open_state
from tune_calib.tuning.search.source import MIN_SHARE
from tune_calib.tuning.work.jobs import make_plan

COUNTS = tuple(int(n) for n in os.environ.get("HEADS", "500,2000").split(","))
POPULATION, FLOOR_BATCHES = 16, 16

DIGITS: Settings = {"network": {"epochs": 5}, "head": {"epochs": 10}}
CIFAR10: Settings = {
    "data": {"dataset": "cifar10", "train_fraction": 0.1},
    "network": {"epochs": 5},
    "head": {"epochs": 10},
}


def job(out: Path, store: Path, suggestions: int, given: Settings, **how: Any) -> SearchRun:
    """A search of MaC-Cal heads for the best ECE within a guard of five points."""
    dataset = given.get("data", {}).get("dataset", "digits")
    question = SearchDefinition(
        method="mac_cal",
        resolved=ResolvedRequest(given).with_recipe(),
        objective=Objective(("ece",), 0.05),
        **how,
    )
    root = CIFAR10_ROOT if dataset == "cifar10" else None
    return SearchRun(
        question, suggestions, RunLocation(out, store, root, command="benchmark"), CORES
    )


def floor(asked: SearchRun) -> float:
    """Heads per second of the bare loop over the same head batches, without a harness."""
    state = open_state(asked)
    suggestions = [state.study.suggestion(n) for n in range(asked.length)]
    size = asked.definition.population
    # Heads of later suggestions may cost less: some batches from all of the search.
    step = max(1, asked.length // (FLOOR_BATCHES * size)) * size
    batches = []
    for first in range(0, asked.length, step):
        batch = suggestions[first : first + size]
        planned = [state.candidates.trials(s.params, s.number)[0] for s in batch]
        head_batches = make_plan(planned, set(), max(MIN_SHARE, size // CORES)).head_batches
        batches += [head_batch.trials for head_batch in head_batches]
    return bare_loops(asked.location.store, batches)


def suggestion_seconds(asked: SearchRun) -> float:
    """Time of a suggestion behind the last trial, in a batch of 16; a study that was just opened
    is read once before."""
    study = open_state(asked).study
    study.suggestion(asked.length)
    numbers = range(asked.length + 1, asked.length + 17)
    start = time.perf_counter()
    study.suggestions(numbers)
    return (time.perf_counter() - start) / len(numbers)


def row(name: str, asked: SearchRun) -> str:
    """Search, and say what it took."""
    execute_run(asked, Context())
    reached, bare = steady_rate(asked.out), floor(asked)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size = asked.definition.population
    return (
        f"{name:8s} {asked.length:6d} {size:4d} {reached:9.1f} {bare:9.1f}"
        f" {bare / reached:7.2f} {1e3 * suggestion_seconds(asked):13.0f} ms {memory:12.0f} MiB"
    )


def main() -> None:
    """Print a row for each number of heads and suggestions of a batch."""
    actors = f"{CORES} actors of one thread"
    print(f"mac_cal heads, 10 epochs, {actors}; floor: the bare loop, a process a core")
    print("data      heads    K   heads/s     floor   ratio   ask at the end   driver memory")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        searches = [("digits", 64, 1), *(("digits", count, POPULATION) for count in COUNTS)]
        if CIFAR10_ROOT.exists():
            searches.append(("cifar10", 200, POPULATION))
        for name, count, population in searches:
            settings = CIFAR10 if name == "cifar10" else DIGITS
            out = root / f"{name}-{count}-{population}"
            print(
                row(name, job(out, root / "store", count, settings, population=population)),
                flush=True,
            )
