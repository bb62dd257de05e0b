"""Record a command in a terminal of 100 columns: ``python -m docs.record FILE COMMAND...``.

The command runs in tmux. A frame is taken whenever its window changes in more than clock, spinner
and numbers, and every ``EVERY_S`` seconds; ``FRAMES`` of them are kept. The header of a frame is
its time.
"""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

COLUMNS, LINES = 100, 30
FRAMES = 3
EVERY_S = 10.0
LOOK_EVERY_S = 0.25

_PROMPT = "$ "
_MOVES = re.compile(r"[\u2800-\u28ff━╸╺]|\d+")
_SESSION = "tune-calib-recording"


def _tmux(*words: str) -> str:
    command = ["tmux", "-L", _SESSION, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _window() -> str:
    lines = _tmux("capture-pane", "-p", "-t", _SESSION).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def record(words: Sequence[str]) -> list[str]:
    """Run a command and return its frames, each below a line with its second."""
    shell = f"env PS1={shlex.quote(_PROMPT)} bash --norc --noprofile"
    size = ["-x", str(COLUMNS), "-y", str(LINES)]
    _tmux("new-session", "-d", "-s", _SESSION, *size, shell)
    try:
        while not _window():
            time.sleep(LOOK_EVERY_S)
        _tmux("send-keys", "-t", _SESSION, shlex.join(words), "Enter")
        frames, last, shape, seen = [], "", "", 0.0
        started = time.monotonic()
        while not (is_over := last.endswith(f"\n{_PROMPT.rstrip()}")):
            time.sleep(LOOK_EVERY_S)
            last, now = _window(), time.monotonic() - started
            is_over = last.endswith(f"\n{_PROMPT.rstrip()}")
            new = _MOVES.sub("", last)
            if new != shape or now - seen > EVERY_S or is_over:
                frames.append(f"{f'── {now:.0f} s ':─<{COLUMNS}}\n{last}")
                shape, seen = new, now
        return frames
    finally:
        _tmux("kill-server")


def choose(frames: Sequence[str]) -> list[str]:
    """Return ``FRAMES`` frames, evenly spread up to the last one, which shows the end."""
    last = len(frames) - 1
    return [frames[number * last // FRAMES] for number in range(1, FRAMES + 1)]


def main(path: str, *words: str) -> None:
    """Write the recording of a command to a file."""
    Path(path).write_text("\n\n".join(choose(record(words))) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
