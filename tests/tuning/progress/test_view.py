"""How tracker looks, in a terminal of any width and in a pipe."""

import io

import pytest
from rich.console import Console

from tests.tuning.progress.support import NAMES, busy_tracker, progress
from tune_calib.tuning.progress.tracker import clock, draw_view, format_line


def drawn(record, width=100, height=40) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True,
                      color_system=None)  # fmt: skip
    segments = console.render(draw_view(record, console))
    return [line.rstrip() for line in "".join(line.text for line in segments).splitlines()]


@pytest.mark.parametrize("is_search", [False, True])
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_view_fits_the_terminal_and_names_what_runs(width, is_search):
    lines = drawn(busy_tracker(is_search=is_search).record(), width)
    assert len(lines) == (7 if is_search else 5)
    assert max(map(len, lines)) <= width
    assert "epoch 7/60" in lines[-1]
    if width >= 100:
        assert "network 2 of 5: + decaying" in lines[-1]
        assert "Accuracy 91.20 %, ECE 3.12 %" in lines[-1]


def test_trials_that_do_not_fit_are_counted():
    lines = drawn(busy_tracker(running=5).record(), height=7)
    assert len(lines) <= 7
    assert lines[-1] == "  and 3 more"


def test_the_log_line_has_the_content_of_the_view():
    said = format_line(
        progress(began=1000.0, written=1187.0, ended={"done": 11, "diverged": 1}, left_s=260.0)
    )
    assert said.startswith(
        "3:07 networks and heads: networks 0 of 5, heads 0 of 25, 2 running; 12 of 30 trials ended "
        f"(1 diverged, 11 done); at least 4 min left; running {NAMES[0]}, epoch 7/60, Accuracy"
    )
    assert "1 more" in format_line(busy_tracker(running=5).record())
    assert "\n" not in said


@pytest.mark.parametrize(("seconds", "message"), [(0, "0:00"), (59.9, "0:59"), (3725, "1:02:05")])
def test_a_clock_has_hours_where_there_are_any(seconds, message):
    assert clock(seconds) == message
