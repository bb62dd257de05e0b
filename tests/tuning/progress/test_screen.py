"""The screen of a process: in a terminal, in a pipe, in a file; and who watches it."""

import contextlib
import io
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time

import pytest
from rich.file_proxy import FileProxy

from tests import fake_results
from tests.support import here
from tests.tuning.progress.support import NAMES, progress
from tune_calib.errors import DamagedFileError
from tune_calib.progress import ProgressEvent, report_progress
from tune_calib.spec.names import PROGRESS
from tune_calib.tuning.folder import refuse_foreign
from tune_calib.tuning.progress import screen
from tune_calib.tuning.progress.screen import is_dead, read_progress, show_driver
from tune_calib.tuning.progress.tracker import Progress, Tracker

FILE_EVERY_S = 0.2
LONG = "a [bold] line of more columns than the terminal has, such as a path " + 100 * "x"
DRIVER = f"""
import sys, time
from pathlib import Path
from tune_calib.progress import report_progress
from tune_calib.tuning.progress import screen as module
from tune_calib.tuning.progress.screen import show_driver, screen
module.FILE_EVERY_S = {FILE_EVERY_S}
with screen("ablate mac_cal") as shown, show_driver(Path(sys.argv[1]), shown.tracker):
    report_progress("reading Digits")
    with shown.phase("networks", 5, "trials", {{"networks": 5}}):
        shown.tracker.start("a", {NAMES[0]!r}, "networks", 1)
        print("begun", flush=True)
        time.sleep(60)
"""


@contextlib.contextmanager
def terminal(monkeypatch):
    """A terminal of 100 columns in the place of stdout and stderr; what it was sent so far."""
    own, other = os.openpty()
    # Not in a fixture: pytest puts its own in their place behind those.
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, os.fdopen(os.dup(other), "w"))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    def sent() -> str:
        found = b""
        while select.select([own], [], [], 0.1)[0]:
            found += os.read(own, 65536)
            if len(found) > 10**6:
                break
        return found.decode()

    yield sent
    for name in ("stdout", "stderr"):
        getattr(sys, name).close()
    monkeypatch.undo()
    os.close(own)
    os.close(other)


def test_a_terminal_shows_the_view_below_what_is_printed(monkeypatch):
    monkeypatch.setattr(screen._LiveDisplay, "every_s", 0.3)
    with terminal(monkeypatch) as sent:
        with screen.screen("ablate mac_cal") as own:
            report_progress("reading CIFAR-10")
            text = sent()
            assert "ablate mac_cal" in text
            sys.stdout.write("a line ")
            assert "a line" not in sent()  # the view would eat a part of a line
            sys.stdout.write("that stays\n")
            sys.stdout.write(f"{LONG}\n")
            with own.phase("networks", 5, "trials", {"networks": 5}):
                own.tracker.start("a", NAMES[0], "networks", 1)
                own.tracker.update({"a": ProgressEvent("epoch", 7, 60)})
                time.sleep(1)
            sys.stderr.write("and no end of line")
        text += sent()
        assert not isinstance(sys.stdout, FileProxy)
        sys.stdout.write("after it\n")
        sys.stdout.flush()
        assert sent() == "after it\r\n"
    assert "a line that stays\r\n" in text
    unstyled = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert re.search(re.escape(NAMES[0]) + " +epoch 7/60", unstyled)
    assert "networks: 0 of 5 trials ended in 0:01\r\n" in text
    assert "and no end of line\r\n" in text
    assert f"{LONG}\r\n" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is there again


def test_a_pipe_gets_a_line_a_minute_and_slow_steps_at_once(monkeypatch):
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setattr(screen.LineDisplay, "every_s", 0.02)
    with screen.screen("ablate mac_cal"):
        report_progress("reading CIFAR-10")
        time.sleep(0.1)
        assert told.getvalue() == ""  # a mistake that is found now is one line
        report_progress("starting Ray", is_urgent=True)
        assert told.getvalue() == "0:00 starting Ray\n"
        report_progress("starting workers")
        monkeypatch.setattr(screen, "LINE_EVERY_S", 0.05)
        time.sleep(0.3)
    lines = told.getvalue().splitlines()[1:]
    assert set(lines) == {"0:00 starting workers"}


def test_a_folder_has_a_file_of_its_driver_while_it_is_worked_on(tmp_path):
    with screen.screen("evaluate") as own, show_driver(tmp_path, own.tracker):
        (tmp_path / "evaluation").mkdir()
        with show_driver(tmp_path / "evaluation", own.tracker):
            assert read_progress(tmp_path / "evaluation").title == "evaluate"
        assert read_progress(tmp_path / "evaluation") is None
        assert read_progress(tmp_path).title == "evaluate"
        own.tracker.set(entry="a, 1 of 2")
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.parametrize("failing", [(Progress, "write"), (screen.LineDisplay, "draw")])
def test_an_error_of_the_progress_ends_no_run_and_is_printed_once(
    failing, tmp_path, monkeypatch, capsys
):
    threads = []

    def fail(*_):
        threads.append(threading.current_thread())
        raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr(*failing, fail)
    monkeypatch.setattr(screen, "FILE_EVERY_S", 0.01)
    monkeypatch.setattr(screen.LineDisplay, "every_s", 0.01)
    with screen.screen("ablate mac_cal") as view, show_driver(tmp_path, view.tracker):
        report_progress("starting Ray", is_urgent=True)
        while len(threads) < 4:
            time.sleep(0.01)
    assert len(set(threads)) == 2  # that of the driver, and one that repeats
    assert capsys.readouterr().err.count("recursion depth mismatch); the run goes on") == 1


def test_a_folder_where_nothing_can_be_written_is_worked_on_all_the_same(tmp_path):
    (tmp_path / "a file").touch()
    with show_driver(tmp_path / "a file", Tracker("ablate")):
        report_progress("reading")


def test_the_progress_file_is_read_as_written(tmp_path):
    said = progress(notes=["so far: none"])
    said.write(tmp_path)
    assert read_progress(tmp_path) == said
    for content in ("", "{}", "[1", '{"host": 1}'):
        (tmp_path / PROGRESS).write_text(content)
        with pytest.raises(DamagedFileError, match=PROGRESS):
            read_progress(tmp_path)


@pytest.mark.parametrize(("silent_s", "expected"), [(30, False), (200, True), (-300, False)])
def test_a_silent_driver_is_dead(silent_s, expected):
    last = progress(every_s=2.0, written=1000.0)
    assert is_dead(last, 1000.0 + silent_s) == expected


@pytest.mark.slow
def test_a_killed_driver_leaves_its_last_progress_and_no_lock(tmp_path):
    fake_results.write(tmp_path)
    (tmp_path / "trials" / "3-0.parquet").unlink()  # something is left to do
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert driver.stdout.readline() == "begun\n"
    time.sleep(2 * FILE_EVERY_S)
    ended = here("status", tmp_path)
    assert re.search(
        rf"at work \(process {driver.pid} on .*running {re.escape(NAMES[0])}", ended.stdout
    )
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    last = read_progress(tmp_path)
    progress(**{**vars(last), "written": last.written - 150}).write(tmp_path)
    ended = here("status", tmp_path, "--watch")
    assert ended.returncode == 1
    assert f"its driver (process {driver.pid}" in ended.stdout
    assert "continue with: " in ended.stdout
    (tmp_path / "new").mkdir()
    last.write(tmp_path / "new")
    refuse_foreign(tmp_path / "new")


def test_watching_ends_with_the_driver(tmp_path, monkeypatch):
    fake_results.write(tmp_path)
    progress(host="another").write(tmp_path)
    monkeypatch.setattr(
        "tune_calib.tuning.progress.screen.time.sleep", lambda _: (tmp_path / PROGRESS).unlink()
    )
    ended = here("status", tmp_path, "--watch")
    assert ended.returncode == 0
    assert "epoch 7/60" in ended.stderr
    assert ended.stdout.endswith("no driver is running\n")
