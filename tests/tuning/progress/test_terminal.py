"""A real run in a terminal of 100 columns: it is never still while work goes on."""

import os
import re
import select
import subprocess
import time

import pytest

from tests.support import command_line
from tune_calib.spec.names import PROGRESS

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

STILL_S = 5.0
ENVIRONMENT = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}


CONTROL = r"\x1b\[[0-9;?]*[a-zA-Z]"
ERASED = "\x1b[1A\x1b[2K"  # the line above the cursor


def text_of(sent: str) -> str:
    """What can be read of it: without colours and moves of the cursor, and without the spinner."""
    return re.sub(rf"{CONTROL}|[\u2800-\u28ff]", "", sent)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What a run sent to its terminal, longest time without another text; its watcher; bytes."""
    out = tmp_path_factory.mktemp("terminal") / "out"
    terminal, other = os.openpty()
    # Long enough to be seen: what workers do is asked for once a second.
    words = command_line("ablate", "mac_cal", "--epochs", 60, "--head-epochs", 60, "--out", out)
    process = subprocess.Popen(words, stdout=other, stderr=other, env=ENVIRONMENT)
    os.close(other)
    watcher, raw, sent, longest = None, b"", "", 0.0
    began = changed = time.monotonic()
    first = None
    while True:
        is_ready = select.select([terminal], [], [], 0.2)[0]
        try:
            part = os.read(terminal, 65536) if is_ready else b""
        except OSError:  # the other end is closed
            break
        more, raw = text_of(part.decode(errors="replace")), raw + part
        if more.strip() and more not in sent[-2 * len(more) :]:
            longest, changed = max(longest, time.monotonic() - changed), time.monotonic()
            first = first or changed - began
        sent += more
        if watcher is None and (out / PROGRESS).exists():
            watcher = subprocess.Popen(
                command_line("status", out, "--watch"), text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
    os.close(terminal)
    assert process.wait() == 0
    assert watcher is not None
    output, line = watcher.communicate()
    return sent, longest, (watcher.returncode, output, line), raw.decode()


def test_the_live_view_redraws_between_events(run):
    sent, longest, _, raw = run
    assert longest < STILL_S
    steps = ["loading the program", "starting Ray", "starting workers", "network 1 of 1: vanilla",
             r"epoch \d+/60", "heads? .* of 5: ", r"6 of 6 trials ended \(6 done\)", "stopping Ray",
             "drawing figures"]  # fmt: skip
    at = 0
    for step in steps:
        match = re.compile(step).search(sent, at)
        assert match, f"{step} in {sent[at:]}"
        at = match.start()
    # The table stands below, on stdout; the view is drawn below it once more and erased.
    assert "figures  " in sent[sent.index("drawing figures") :]
    last = raw[raw.rindex("drawing figures") :]
    assert ERASED in last
    assert not re.sub(CONTROL, "", last[last.index(ERASED) :]).strip()


def test_a_watcher_sees_the_end_of_a_run(run):
    code, output, lines = run[2]
    assert code == 0
    assert re.match(r"\d+:\d\d \w+", lines)
    assert "6 done" in output
    assert output.endswith("no driver is running\n")
