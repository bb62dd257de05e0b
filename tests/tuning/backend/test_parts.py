"""Ray trials of several Tuners after each other, and what workers say of what they do."""

import time

import pytest
import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import Searcher

from tests.tuning.backend.counted import Counted
from tune_calib.activity import Activity, activity
from tune_calib.names import CRASHES
from tune_calib.tuning.backend import board, launch
from tune_calib.tuning.backend.feed import Feed
from tune_calib.tuning.backend.launch import Resources, fit, ray_session


class Numbers(Feed):
    """As many Ray trials as there are."""

    def __init__(self, there):
        super().__init__()
        self.there, self.asked, self.ended = there, 0, []

    def suggest(self, trial_id):
        if self.asked == self.there:
            return Searcher.FINISHED
        self.asked += 1
        number = self.asked - 1
        return {"work": {"name": number, "told": "", "kind": "network", "trials": []}}

    def on_trial_complete(self, trial_id, result=None, error=False):
        self.ended.append(error)


@pytest.fixture(scope="module", autouse=True)
def session():
    with ray_session(None):
        yield


@pytest.mark.parametrize(
    ("there", "asked", "asha"),
    [
        pytest.param(5, 5, True, marks=pytest.mark.slow),
        (4, 4, False),
        (4, 9, True),
        pytest.param(3, 9, False, marks=pytest.mark.slow),
    ],
)
def test_all_of_them_run_whatever_their_number(tmp_path, monkeypatch, there, asked, asha):
    monkeypatch.setattr(launch, "PART", 2)
    monkeypatch.setattr(launch, "MAX_FAILURES", 0)
    scheduler = ASHAScheduler(time_attr="epoch", metric="score", mode="max") if asha else None
    feed = Numbers(there)
    kind = tune.with_resources(Counted, Resources(1).placement())
    errors = fit(asked, kind, str(tmp_path), feed, scheduler=scheduler)
    assert sorted(feed.ended) == [False] * (there - 1) + [True]
    assert ["the second one" in str(error) for error in errors] == [True]
    assert "the second one" in (tmp_path / CRASHES).read_text()


@ray.remote
def worker(board_name, name):
    board.tell(board_name, name)
    activity("epoch", 3, 7, {"select/ece": 0.5})
    time.sleep(2)


def test_a_driver_hears_what_its_workers_do():
    names = ["a", "b"]
    board.clear("one")
    assert board.told("one", names) == {}
    ray.get([worker.remote("one", "a"), worker.remote("", "b"), worker.remote("two", "a")])
    assert board.told("one", names) == {"a": Activity("epoch", 3, 7, {"select/ece": 0.5})}
    board.clear("one")
    assert board.told("one", names) == {}
    assert list(board.told("two", names)) == ["a"]
