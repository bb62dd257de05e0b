"""What disturbs real runs leaves none of them behind."""

import subprocess
import sys

import pytest

from tests.faults.common import finish, session_of, spawn, stop_all, wait_until

# As Ray's workers: a process group of its own, in the session of what started it.
SCRIPT = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
subprocess.Popen(sleep, process_group=0)
time.sleep(60)
"""


def times_out(process):
    with pytest.raises(subprocess.TimeoutExpired):
        finish(process, limit_s=0.1)


def is_forgotten(process):
    stop_all()


@pytest.mark.slow
@pytest.mark.parametrize("ends", [times_out, is_forgotten])
def test_nothing_that_a_program_started_outlives_it(ends):
    process = spawn([sys.executable, "-c", SCRIPT])
    assert wait_until(lambda: len(session_of(process.pid)) == 2, process, limit_s=60)
    ends(process)
    assert session_of(process.pid) == []
    assert process.poll() is not None
