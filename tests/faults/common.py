"""A small real sweep that is disturbed, and what must be true of it afterwards."""

import random
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tune_calib.results import read_table

SWEEP = [
    "mac_cal", "--seeds", "2", "--epochs", "6", "--head-epochs", "8",
    "--set", "network.augment=none", "--set", "head.augment=none", "--set", "head.lr=0.01",
]  # fmt: skip
# How long a trial took, on what, and in whose company, is not its result.
CIRCUMSTANCES = ["wall_s", "own_s", "peak_memory_bytes", "actor_resets", "population", "sweep"]
LIMIT_S = 240


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tune_calib.cli", *map(str, arguments)]


def start(out: Path, *options: object) -> subprocess.Popen:
    """Start the sweep in a process group of its own."""
    return subprocess.Popen(
        command("ablate", *SWEEP, "--out", out, *options),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen) -> tuple[int, str]:
    """Wait for the end of a sweep: exit code, what it said on stderr."""
    _, said = process.communicate(timeout=LIMIT_S)
    return process.returncode, said


def run(out: Path, *options: object) -> tuple[int, str]:
    return finish(start(out, *options))


def result(out: Path) -> list[dict]:
    """Rows of all tables but for their circumstances, in one order."""
    found = []
    for table in ("trials", "curves", "bins"):
        rows = read_table(out, table)
        rows = rows.drop_columns([name for name in CIRCUMSTANCES if name in rows.column_names])
        found += sorted(({"table": table, **row} for row in rows.to_pylist()), key=repr)
    return found


def workers(process: subprocess.Popen) -> list[psutil.Process]:
    """Processes of the sweep that carry Ray trials out at this moment."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if any("Trainable" in part for part in child.cmdline()[:1]):
                found.append(child)
        except psutil.Error:
            continue
    return found


def wait_until(condition, process: subprocess.Popen, limit_s: float = LIMIT_S) -> bool:
    """Whether a condition came true while the process lived."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and process.poll() is None:
        if condition():
            return True
        time.sleep(0.02)
    return False


def chance(name: str) -> random.Random:
    """The moments of one fault: at random, and again the same on the next run."""
    return random.Random(name)
