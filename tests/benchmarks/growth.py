"""Time and memory against the size of a task, a size a process; a table a quantity.

python -m tests.benchmarks.growth [QUANTITY[=SIZE,SIZE,...] ...] [--out FOLDER]

Quantities: samples, classes, features, heads, trials, nodes; all but nodes unless some are named.
Sizes that FOLDER holds already are not measured again.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from ray.cluster_utils import Cluster
from tabulate import tabulate

from tests.benchmarks import noop
from tests.benchmarks.common import CORES, CPU, head_slots
from tests.benchmarks.floor import MemoryBank
from tests.benchmarks.overhead import resident
from tune_calib.engine.head_batch import HeadBatchTrainer, in_parts

OUT = Path("build/growth")
BATCH, EPOCHS, LEAST_S = 128, 50, 3.0
SHORT_TRIALS = 200

Measured = dict[str, float]


def head_batch(
    samples: int = 4096, classes: int = 10, width: int = 512, heads: int = 1, hidden: int = 128
) -> Measured:
    """Fastest epoch of a head batch of MaC-Cal on one thread, and what its peak memory adds."""
    torch.set_num_threads(1)
    _epochs(MemoryBank(256, 8, 2), 1, 2)  # what torch allocates once and for all
    start_kib = resident("VmRSS")
    seconds, parts = _epochs(MemoryBank(samples, width, classes), heads, hidden)
    return {"seconds": seconds, "mebibytes": (resident("VmHWM") - start_kib) / 1024, "parts": parts}


def _epochs(bank: MemoryBank, heads: int, hidden: int) -> tuple[float, int]:
    slots = head_slots(heads, params={"width": hidden}, epochs=EPOCHS, batch_size=BATCH)
    parts, seconds = in_parts(slots, bank), 0.0
    for part in parts:
        trainer = HeadBatchTrainer(part, bank, 0, CPU)
        next(trainer)
        times: list[float] = []
        # The fastest, in time on the processor: what else runs on the machine comes and goes.
        while len(times) < 3 or (sum(times) < LEAST_S and trainer.epoch < EPOCHS):
            start = time.process_time()
            next(trainer)
            times.append(time.process_time() - start)
        seconds += min(times)
    return seconds, len(parts)


def trials(count: int) -> Measured:
    """A search of networks that train nothing; memory is all of the driver's."""
    return {**noop.measured(count), "mebibytes": resident("VmHWM") / 1024}


def nodes(count: int) -> Measured:
    """The same short trials on so many local nodes of one slot each."""
    cluster = Cluster()
    for _ in range(count):
        cluster.add_node(num_cpus=1)
    try:
        took = noop.measured(SHORT_TRIALS, count, cluster.address)
    finally:
        cluster.shutdown()
    return {**took, "mebibytes": resident("VmHWM") / 1024}


@dataclass(frozen=True)
class Quantity:
    """Something that grows.

    Attributes:
        label: of the first column.
        sizes: measured unless others are named.
        work: measures one size.
        time: what its seconds are of.
        memory: what its memory is of.
    """

    label: str
    sizes: tuple[int, ...]
    work: Callable[[int], Measured]
    time: str = "epoch on one core"
    memory: str = "memory added"


QUANTITIES = {
    "samples": Quantity(
        "training samples", (1024, 4096, 16384, 65536), lambda n: head_batch(samples=n)
    ),
    "classes": Quantity("classes", (10, 100, 1000), lambda n: head_batch(classes=n)),
    "features": Quantity(
        "features of a sample", (64, 512, 2048, 8192), lambda n: head_batch(width=n)
    ),
    "heads": Quantity(
        "heads of a batch",
        (1, 16, 128, 1024),
        lambda n: head_batch(heads=n, width=128, hidden=32),
    ),
    "trials": Quantity("trials of a search", (500, 2000), trials, "search", "driver memory"),
    "nodes": Quantity(
        "local Ray nodes", (1, 2, 4), nodes, f"{SHORT_TRIALS} trials", "driver memory"
    ),
}


def measure(name: str, sizes: Sequence[int], out: Path) -> dict[int, Measured]:
    """What is known of a quantity; sizes that are not known yet are measured and written."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.json"
    points = json.loads(path.read_text()) if path.exists() else {}
    for size in sizes:
        if str(size) not in points:
            command = [sys.executable, "-m", "tests.benchmarks.growth", "--one", f"{name}={size}"]
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            points[str(size)] = json.loads(run.stdout.splitlines()[-1])
            path.write_text(json.dumps(points, indent=1))
            print(f"{name} {size}: {points[str(size)]}", file=sys.stderr, flush=True)
    return {int(size): points[size] for size in sorted(points, key=int)}


def table(quantity: Quantity, points: dict[int, Measured]) -> str:
    """Seconds and memory with their ratios to the smallest size, in Markdown."""
    first = min(points)
    has_rates = "late" in points[first]
    rows = []
    for size, point in points.items():
        row = [f"{size:,}", f"{size / first:g}"]
        for value in ("seconds", "mebibytes"):
            row += [f"{point[value]:,.3g}" if point[value] < 1000 else f"{point[value]:,.0f}"]
            row += [f"{point[value] / points[first][value]:.3g}"]
        if has_rates:
            row += [f"{point['early']:.1f}", f"{point['late']:.1f}", f"{1e3 * point['ask_s']:.1f}"]
        rows.append(row)
    heads = [quantity.label, "ratio", f"{quantity.time} (s)", "ratio"]
    heads += [f"{quantity.memory} (MiB)", "ratio"]
    if has_rates:
        heads += ["trials/s, second tenth", "last tenth", "ask at the end (ms)"]
    return tabulate(rows, heads, "pipe", disable_numparse=True, stralign="right")


def _selected_quantities(requested: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for part in requested or [name for name in QUANTITIES if name != "nodes"]:
        name, _, sizes = part.partition("=")
        if name not in QUANTITIES:
            raise SystemExit(f"{name}: there are {', '.join(QUANTITIES)}")
        yield name, tuple(map(int, sizes.split(","))) if sizes else QUANTITIES[name].sizes


def main(arguments: Sequence[str] = ()) -> None:
    """Measure what is asked for and not known, and print its tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("quantities", nargs="*")
    parser.add_argument("--out", type=Path, default=OUT, help="of what is known, and the table")
    parser.add_argument("--one", action="store_true", help="measure one size, in this process")
    asked = parser.parse_args(arguments)
    if asked.one:
        [(name, (size,))] = _selected_quantities(asked.quantities)
        with contextlib.redirect_stdout(sys.stderr):
            point = QUANTITIES[name].work(size)
        print(json.dumps({**point, "load": os.getloadavg()[0], "cores": CORES}))
        return
    for name, sizes in _selected_quantities(asked.quantities):
        points = measure(name, sizes, asked.out)
        text = table(QUANTITIES[name], points)
        (asked.out / f"{name}.md").write_text(text + "\n")
        print(f"\n{name}\n\n{text}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
