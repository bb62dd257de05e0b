"""What a driver has in hand, and how long the rest may take."""

import pytest

from tests.tuning.progress.support import busy_tracker
from tune_calib.progress import ProgressEvent, count_progress, listening, report_progress
from tune_calib.tuning.progress import tracker as module
from tune_calib.tuning.progress.tracker import TRIALS, Tracker, format_summary


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test sets."""
    now = [0.0]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    return now


def test_progress_goes_to_the_last_listener_if_any():
    report_progress("nobody hears this")
    heard, inner = [], []
    with listening(heard.append):
        report_progress("reading CIFAR-10")
        with listening(inner.append):
            report_progress("epoch", 1, 2)
        report_progress("starting Ray", is_urgent=True)
    report_progress("nor this")
    assert [event.description for event in heard] == ["reading CIFAR-10", "starting Ray"]
    assert inner == [ProgressEvent("epoch", 1, 2)]


def test_items_are_counted_when_they_were_used():
    heard: list[ProgressEvent] = []
    with listening(heard.append):
        assert list(count_progress("reading", "ab", 5)) == ["a", "b"]
    assert [(event.description, event.completed, event.total) for event in heard] == [
        ("reading", 0, 5),
        ("reading", 1, 5),
        ("reading", 2, 5),
    ]


def test_time_left_is_what_was_timed_of_each_kind_over_what_runs_side_by_side(clock):
    tracker = Tracker("x")
    tracker.begin("networks and heads", 12, TRIALS, {"networks": 2, "heads": 10})
    assert tracker.record().left_s is None
    tracker.start("a", "a", "networks", 1)
    clock[0] = 10.0
    # A worker that only starts tells nothing of the rest.
    assert (tracker.record().left_s, tracker.record().is_least) == (None, True)
    tracker.update({"a": ProgressEvent("epoch", 1, 4)})
    assert (tracker.record().left_s, tracker.record().is_least) == (70.0, True)
    clock[0] = 40.0
    tracker.end("a", {"done": 1})
    tracker.start("b", "b", "networks", 1)
    tracker.start("c", "c", "heads", 5)
    tracker.update({"b": ProgressEvent("epoch", 2, 4), "c": ProgressEvent("epoch", 1, 2)})
    clock[0] = 50.0
    # 50 s for 1.5 networks, 10 s for 2.5 heads, two side by side.
    expected = (0.5 * 50 / 1.5 + 7.5 * 10 / 2.5) / 2
    assert tracker.record().left_s == pytest.approx(expected)
    assert not tracker.record().is_least
    tracker.end("b", {"done": 1})
    tracker.end("c", {"done": 4, "diverged": 1})
    record = tracker.record()
    assert record.ended == {"done": 6, "diverged": 1}
    assert {name: (kind.ended, kind.total) for name, kind in record.kinds.items()} == {
        "networks": (2, 2),
        "heads": (5, 10),
    }


def test_the_bar_of_a_search_counts_suggestions_and_not_its_trials():
    tracker = busy_tracker(is_search=True)
    tracker.end(tracker.running[0], {"done": 1})
    assert tracker.record().ended == {}
    tracker.begin("", 0, "", {})
    assert (tracker.record().running, tracker.record().notes) == ({}, [])


def test_extra_evaluations_are_counted_as_such_since_a_trial_has_one_on_each_set():
    tracker = Tracker("x")
    tracker.begin("extra evaluations", 6, "evaluations", {"extras": 6})
    tracker.start("noise", "noise", "extras", 3)
    tracker.end("noise", {"done": 3})
    text = format_summary(tracker.record(), 5)
    assert text == "extra evaluations: 3 of 6 evaluations ended (3 done) in 0:05"
