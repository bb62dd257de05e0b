"""A small real run that is disturbed, and what must be true of it afterwards."""

import contextlib
import os
import random
import subprocess
import time
from pathlib import Path

import psutil

from tests.support import command_line, rows
from tune_calib.results.columns import TableName

SWEEP = [
    "mac_cal", "--seeds", "2", "--epochs", "6", "--head-epochs", "8",
    "--set", "network.augment=none", "--set", "head.augment=none", "--set", "head.lr=0.01",
    "--plugin", str(Path(__file__).with_name("checkpoints.py")),
]  # fmt: skip
LIMIT_S = 240
_SPAWNED: list[subprocess.Popen] = []


def spawn(command: list[str]) -> subprocess.Popen:
    """Start a program in a session of its own, which ``stop_all`` ends."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _SPAWNED.append(process)
    return process


def start(out: Path, *options: object) -> subprocess.Popen:
    """Start the run."""
    return spawn(command_line("ablate", *SWEEP, "--out", out, *options))


def finish(process: subprocess.Popen, limit_s: float = LIMIT_S) -> tuple[int, str]:
    """Wait for the end of a program: exit code, what it said on stderr.

    Raises:
        subprocess.TimeoutExpired: it took too long, and was stopped.
    """
    try:
        _, output = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        stop(process)
        raise
    return process.returncode, output


def killed(process: subprocess.Popen, after_s: float) -> bool:
    """Kill a process after some seconds; False if it has ended by then."""
    try:
        process.wait(timeout=after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def stop(process: subprocess.Popen) -> None:
    """Kill a program with all that it started: Ray's workers have process groups of their own."""
    if process.poll() is not None and psutil.pid_exists(process.pid):
        return  # it ended, so that whatever has its number now is another program
    while members := session_of(process.pid):
        for member in members:
            with contextlib.suppress(psutil.Error):
                member.kill()
        psutil.wait_procs(members, timeout=1)
    process.wait()


def stop_all() -> None:
    """Stop every program that was started, so that none runs beside the next test."""
    while _SPAWNED:
        stop(_SPAWNED.pop())


def session_of(leader: int) -> list[psutil.Process]:
    """Return the processes of a session that run."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def run(out: Path, *options: object) -> tuple[int, str]:
    return finish(start(out, *options))


def result(out: Path) -> list[dict]:
    """Rows of all tables but for their circumstances, in one order."""
    tables: tuple[TableName, ...] = ("trials", "curves", "bins")
    return [{"table": name, **row} for name in tables for row in rows(out, "sweep", table=name)]


def workers(process: subprocess.Popen) -> list[psutil.Process]:
    """Processes of the run that carry Ray trials out at this moment."""
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
