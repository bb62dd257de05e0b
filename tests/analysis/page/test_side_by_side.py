"""Pieces of work in copies of a process: each is done, whatever becomes of a copy."""

import os
import subprocess
import sys

import pytest

from analysis.page.side_by_side import side_by_side
from tests.support import each

# Torch is loaded here, and a process with it is not copied: hence one of its own.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from analysis.page import side_by_side as module
module._cores = lambda: 3
main, where = os.getpid(), Path(sys.argv[1])

def work(number):
    time.sleep(0.05)
    if os.getpid() != main:
        {harm}
    (where / f"{{number}}-{{os.getpid()}}").touch()
    return number % 3

told = []
print(sorted(module.side_by_side(8, work, told.append).items()))
assert told[0] == 0 and told == sorted(told)
print(len({{path.name.split("-")[1] for path in where.iterdir()}}))
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("no child is left")
"""
HARMS = {
    "none": "pass",
    "fails": "raise ValueError(number)",
    "dies": "os.kill(os.getpid(), signal.SIGKILL)",
    "speaks": "print('of a copy', file=sys.stderr)",
}
ANSWERS = {number: number % 3 for number in range(8)}


@each("harm", HARMS)
def test_every_piece_is_done_whatever_becomes_of_the_copies(harm, tmp_path):
    program = PROGRAM.format(harm=HARMS[harm])
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answers, processes, children = done.stdout.strip().splitlines()
    assert answers == str(sorted(ANSWERS.items()))
    assert (int(processes) > 1) == (harm in ("none", "speaks") and sys.platform == "linux")
    assert children == "no child is left"
    assert done.stderr == ""


def test_a_process_that_loaded_torch_does_all_itself():
    processes = []

    def work(number):
        processes.append(os.getpid())
        return number % 3

    assert side_by_side(8, work, lambda done: None) == ANSWERS
    assert processes == [os.getpid()] * 8


def test_an_error_here_is_told_and_ends_the_rest():
    def work(number):
        raise OSError(number)

    with pytest.raises(OSError, match="0"):
        side_by_side(3, work, lambda done: None)


def test_of_nothing_there_is_no_answer():
    assert side_by_side(0, lambda number: 0, lambda done: None) == {}
