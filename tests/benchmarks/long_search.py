"""(f) A search of thousands of heads whose rows are copied instead of trained.

The driver's own time a suggestion, its memory, the size of the study, and the time of ``status``
and ``report``: ``python -m tests.benchmarks.long_search 10000 tpe [FOLDER]``. Seconds are those of
the processor, so that other programs on the machine count less.
"""

import itertools
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from tests.benchmarks.search import DIGITS, job
from tune_calib.results.columns import TableName
from tune_calib.results.tables import read_table, write_results
from tune_calib.spec.names import IN_PROCESS, JOURNAL
from tune_calib.tuning.context import Context
from tune_calib.tuning.plan import execute_run
from tune_calib.tuning.progress.tracker import Tracker
from tune_calib.tuning.search.outcome import write_outcome
from tune_calib.tuning.search.run import SearchRun
from tune_calib.tuning.work.jobs import Job

BATCH = 64  # suggestions, over which times are averaged too
MARKS = (100, 300, 1000, 3000, 10_000)
TABLES = cast(tuple[TableName, ...], ("trials", "curves", "bins"))

Rows = dict[TableName, list[dict[str, Any]]]


def find_examples(root: Path) -> tuple[Rows, Rows]:
    """Train a baseline and two heads; return the rows of the baseline, and of a head."""
    run = job(root / "example", root / "store", 2, DIGITS, population=2)
    run = replace(run, location=replace(run.location, address=IN_PROCESS), at_once=1)
    execute_run(run, Context())
    tables: dict[TableName, list[dict[str, Any]]] = {}
    for table in TABLES:
        tables[table] = read_table(run.out, table).to_pylist()
    hashes = {row["head_method"]: row["spec_hash"] for row in tables["trials"]}
    examples = []
    for method in (None, "mac_cal"):
        of_trial = hashes[method]
        examples.append(
            {name: [r for r in rows if r["spec_hash"] == of_trial] for name, rows in tables.items()}
        )
    return examples[0], examples[1]


def answer(run: SearchRun, job: Job, examples: tuple[Rows, Rows]) -> None:
    """Write the rows of a job: those of an example, with an ECE that depends on its settings."""
    rows: Rows = {table: [] for table in TABLES}
    for trial in job.trials:
        head, spec_hash = trial.spec.head, trial.spec.hash
        for table, of_example in examples[head is not None].items():
            rows[table] += [{**row, "spec_hash": spec_hash} for row in of_example]
        if head is not None:
            ece = (
                0.03
                + 0.02 * abs(math.log10(head.lr) + 1)
                + 0.01 * random.Random(spec_hash).random()
            )
            rows["trials"][-1] |= {"rung": trial.rung, "select/ece": ece, "select/accuracy": 0.99}
    write_results(run.out, job.name, rows)


def answer_all(run: SearchRun, examples: tuple[Rows, Rows]) -> None:
    """Complete a search by answers, two jobs at a time; print what suggestions take by number."""
    manifest = run.build_manifest()
    manifest.write(run.out)
    state = run.open(run.plan())
    provenance = run.location.build_provenance(sweep=manifest.identity, is_search=True)
    for source in run.sources(state, provenance, Tracker("")):
        spent, times, numbers = 0.0, list[float](), map(str, itertools.count())
        running = deque[tuple[str, Job]]()
        while True:
            started = time.process_time()
            config = source.suggest(number := next(numbers))
            spent += time.process_time() - started
            if isinstance(config, dict):
                running.append((number, cast(Any, source).running[number]))
            if len(running) < 2 and isinstance(config, dict):
                continue
            if not running:
                break
            number, job = running.popleft()
            answer(run, job, examples)
            started = time.process_time()
            source.end(number)
            spent += time.process_time() - started
            times += [spent / len(job.trials)] * len(job.trials)
            spent = 0.0
            for mark in MARKS:
                if len(times) - len(job.trials) < mark <= len(times):
                    mean = 1e3 * fmean(times[-BATCH:])
                    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                    size = (run.out / JOURNAL).stat().st_size / 2**20
                    print(
                        f"{mark:7d} {mean:9.1f} ms a suggestion {sum(times):8.1f} s in total "
                        f"{memory:7.0f} MiB of memory {size:7.1f} MiB of study",
                        flush=True,
                    )
    write_outcome(state, run.location)


def time_command(*words: object) -> float:
    """Return the processor seconds of a command in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "tune_calib.cli", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(count: int = 10_000, sampler: str = "tpe", folder: Path | None = None) -> None:
    """Search as many heads by a sampler, and read the result, in a folder that stays if named."""
    with tempfile.TemporaryDirectory() as scratch:
        root = folder or Path(scratch)
        examples = find_examples(root)
        out = root / f"{sampler}-{count}"
        run = job(out, root / "store", count, DIGITS, sampler=sampler, population=BATCH)
        location = replace(run.location, address=IN_PROCESS)
        print(f"{count} suggestions of mac_cal by {sampler}, in batches of {BATCH}")
        answer_all(replace(run, location=location, at_once=1), examples)
        for command in ("status", "report"):
            print(f"{command}: {time_command(command, run.out):.1f} s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]) if len(sys.argv) > 3 else None)
