"""A small real sweep that is disturbed, and what must be true of it afterwards."""

import random
import subprocess
import time
from pathlib import Path

import psutil

from tests.support import command_line, rows
from tune_calib.columns import TableName

SWEEP = [
    "mac_cal", "--seeds", "2", "--epochs", "6", "--head-epochs", "8",
    "--set", "network.augment=none", "--set", "head.augment=none", "--set", "head.lr=0.01",
]  # fmt: skip
LIMIT_S = 240


def start(out: Path, *options: object) -> subprocess.Popen:
    """Start the sweep in a process group of its own."""
    return subprocess.Popen(
        command_line("ablate", *SWEEP, "--out", out, *options),
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
    tables: tuple[TableName, ...] = ("trials", "curves", "bins")
    return [{"table": name, **row} for name in tables for row in rows(out, "sweep", table=name)]


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
