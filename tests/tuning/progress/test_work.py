"""What a driver has in hand, and how long the rest may take."""

import pytest

from tests.tuning.progress.support import at_work
from tune_calib.progress import Activity, activity, listening
from tune_calib.tuning.progress import work as module
from tune_calib.tuning.progress.work import TRIALS, Work


@pytest.fixture
def clock(monkeypatch):
    """Seconds that a test sets."""
    now = [0.0]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    return now


def test_whoever_listens_last_hears_and_nobody_need_listen():
    activity("nobody hears this")
    heard, inner = [], []
    with listening(heard.append):
        activity("reading CIFAR-10")
        with listening(inner.append):
            activity("epoch", 1, 2)
        activity("starting Ray", at_once=True)
    activity("nor this")
    assert [each.doing for each in heard] == ["reading CIFAR-10", "starting Ray"]
    assert inner == [Activity("epoch", 1, 2)]


def test_time_left_is_what_was_timed_of_each_kind_over_what_runs_side_by_side(clock):
    work = Work("x")
    work.begin("networks and heads", 12, TRIALS, {"networks": 2, "heads": 10})
    assert work.record().left_s is None
    work.start("a", "a", "networks", 1)
    clock[0] = 10.0
    # A worker that only starts tells nothing of the rest.
    assert (work.record().left_s, work.record().is_least) == (None, True)
    work.hear({"a": Activity("epoch", 1, 4)})
    assert (work.record().left_s, work.record().is_least) == (70.0, True)
    clock[0] = 40.0
    work.end("a", {"done": 1})
    work.start("b", "b", "networks", 1)
    work.start("c", "c", "heads", 5)
    work.hear({"b": Activity("epoch", 2, 4), "c": Activity("epoch", 1, 2)})
    clock[0] = 50.0
    # 50 s for 1.5 networks, 10 s for 2.5 heads, two side by side.
    expected = (0.5 * 50 / 1.5 + 7.5 * 10 / 2.5) / 2
    assert work.record().left_s == pytest.approx(expected)
    assert not work.record().is_least
    work.end("b", {"done": 1})
    work.end("c", {"done": 4, "diverged": 1})
    record = work.record()
    assert record.ended == {"done": 6, "diverged": 1}
    assert {name: (kind.ended, kind.total) for name, kind in record.kinds.items()} == {
        "networks": (2, 2),
        "heads": (5, 10),
    }


def test_the_bar_of_a_search_counts_suggestions_and_not_its_trials():
    work = at_work(is_search=True)
    work.end(work.running[0], {"done": 1})
    assert work.record().ended == {}
    work.begin("", 0, "", {})
    assert (work.record().running, work.record().notes) == ({}, [])


def test_a_word_of_a_trial_that_has_ended_is_nothing():
    work = at_work(running=1)
    (name,) = work.running
    work.end(name, {"done": 1})
    work.hear({name: Activity("epoch", 8, 60)})
    work.end(name, {})
    assert work.record().running == {}
