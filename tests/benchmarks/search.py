"""(e) Heads searched per second against the bare loop on the same heads; what grows with them."""

import os
import resource
import tempfile
import time
from pathlib import Path

from ablations._ladder import Seeds
from tests.benchmarks.common import CPU
from tune_calib.engine.bank import DevelopmentBank, bank_key
from tune_calib.engine.population import PopulationTrainer
from tune_calib.engine.store import Store
from tune_calib.registry import DATASETS
from tune_calib.results import read_table
from tune_calib.tuning.objective import Objective
from tune_calib.tuning.plan import make_plan
from tune_calib.tuning.request import Question, SearchRequest
from tune_calib.tuning.search import open_trials, search

COUNTS = tuple(int(n) for n in os.environ.get("HEADS", "500,2000").split(","))
CORES = os.cpu_count() or 1
EPOCHS = 10


def request(out: Path, store: Path, trials: int, population: int) -> SearchRequest:
    """A search of MaC-Cal heads on digits."""
    asked = Question(
        method="mac_cal",
        defaults=DATASETS["digits"].cpu_defaults,
        given={"network": {"epochs": 5}, "head": {"epochs": EPOCHS}},
        seeds=Seeds((0,), (0,), is_paired=True),
        objective=Objective(("ece",), 0.05),
        population=population,
    )
    return SearchRequest(asked, trials, out, store, None, None, 0.0, CORES, None, "benchmark")


def rate(asked: SearchRequest) -> float:
    """Heads per second of a search, from its first result file to its last: actors are warm."""
    search(asked)
    written = sorted(
        (path.stat().st_mtime, read_table(asked.out, "trials", path.stem).num_rows)
        for path in asked.out.glob("trials/heads-*.parquet")
    )
    heads = sum(rows for _, rows in written[1:])
    return heads / (written[-1][0] - written[0][0])


def floor(asked: SearchRequest) -> float:
    """Heads per second and core of the bare loop over the same populations, without a harness."""
    trials = open_trials(asked, asked.question.candidates())
    suggestions = [trials.study.suggestion(n) for n in range(min(asked.trials, 128))]
    size = asked.question.population
    work = []
    for first in range(0, len(suggestions), size):
        batch = suggestions[first : first + size]
        planned = [trials.candidates.trials(s.point, s.number)[0] for s in batch]
        for population in make_plan(planned, set(), max(8, size // CORES)).populations:
            spec = population.trials[0].spec
            key = bank_key(spec, spec.head).identity
            bank = DevelopmentBank(Store(asked.store).folder("banks", key))
            work.append(([trial.spec.head for trial in population.trials], bank))
    start = time.perf_counter()
    for slots, bank in work:
        for _ in PopulationTrainer(slots, bank, 0, CPU):  # type: ignore[arg-type]
            pass
    return len(suggestions) / (time.perf_counter() - start)


def ask_seconds(asked: SearchRequest) -> float:
    """Mean time of an ask behind the last trial."""
    trials = open_trials(asked, asked.question.candidates())
    start = time.perf_counter()
    for number in range(asked.trials, asked.trials + 16):
        trials.study.suggestion(number)
    return (time.perf_counter() - start) / 16


def main() -> None:
    """Print a row for each number of heads and size of populations."""
    print(f"mac_cal heads on digits, {EPOCHS} epochs, {CORES} actors of one thread")
    print(" heads    K   heads/s   floor x cores   ratio   ask at the end   driver memory")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = root / "store"
        for population, count in ((1, 64), *((16, count) for count in COUNTS)):
            asked = request(root / f"{population}-{count}", store, count, population)
            reached, bare = rate(asked), floor(asked) * CORES
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{count:6d} {population:4d} {reached:9.1f} {bare:15.1f} {bare / reached:7.2f}"
                f" {1e3 * ask_seconds(asked):13.0f} ms {memory:12.0f} MiB",
                flush=True,
            )
