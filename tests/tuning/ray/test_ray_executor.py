"""Ray trials of several Tuners after each other, and what workers say of what they do."""

import time

import pytest
import ray

from tests.support import shared_ray
from tests.tuning.ray.counting_trainable import Counted, Killed
from tune_calib.progress import ProgressEvent, listening, report_progress
from tune_calib.spec.names import CRASHES
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.ray import executor as ray_executor
from tune_calib.tuning.ray import trainables
from tune_calib.tuning.work.executor import OVER

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


class Numbers:
    """As many Ray trials as there are."""

    at_once = None

    def __init__(self, there):
        self.there, self.asked, self.ended = there, 0, []

    def suggest(self, trial_id):
        if self.asked == self.there:
            return OVER
        self.asked += 1
        number = self.asked - 1
        return {
            "job": {
                "name": number,
                "threads": 1,
                "title": "",
                "weight": 1,
                "kind": "network",
                "trials": [],
            }
        }

    def end(self, trial_id):
        self.ended.append(trial_id)


@pytest.fixture(autouse=True)
def session():
    """Start Ray: these tests call the executor without the command line, which would start it."""
    shared_ray()


@pytest.mark.slow
@pytest.mark.parametrize(("count", "requested"), [(5, 5), (4, 9)])
def test_any_number_of_trials_is_executed(tmp_path, monkeypatch, count, requested):
    monkeypatch.setattr(ray_executor, "PART", 2)
    monkeypatch.setattr(ray_executor, "MAX_FAILURES", 0)
    feed = Numbers(count)
    feed.total = requested
    executor = ray_executor.RayExecutor(Provenance(str(tmp_path), "store", gpus=0.0))
    executor.kind = Counted
    heard = []
    monkeypatch.setattr(ray_executor, "read_events", lambda *asked: heard.append(asked) or {})
    errors = executor.run(feed)
    assert {channel for channel, _ in heard} == {executor.provenance.channel}
    assert len(set(feed.ended)) == count
    assert ["the second one" in line for line in errors.values()] == [True]
    assert "the second one" in (tmp_path / CRASHES).read_text()


class Marked(Numbers):
    """Knows its running trials, as sources do, and tells workers a file to mark."""

    def __init__(self, count, mark):
        super().__init__(count)
        self.mark, self.running = mark, {}

    def suggest(self, trial_id):
        config = super().suggest(trial_id)
        if config == OVER:
            return OVER
        config["job"]["mark"] = str(self.mark)
        self.running[trial_id] = config["job"]["name"]
        return config

    def end(self, trial_id):
        self.ended.append(self.running.pop(trial_id))


@pytest.mark.slow
@pytest.mark.parametrize(("part", "requested"), [(500, 9), (2, 3)])
def test_a_job_is_repeated_whose_reused_actor_dies_before_it_begins(
    tmp_path, monkeypatch, part, requested
):
    monkeypatch.setattr(ray_executor, "PART", part)
    feed = Marked(3, tmp_path / "mark")
    feed.total, feed.at_once = requested, 1
    executor = ray_executor.RayExecutor(Provenance(str(tmp_path), "store", gpus=0.0))
    executor.kind = Killed
    assert executor.run(feed) == {}
    assert feed.mark.exists()
    assert feed.ended == [0, 1, 2]
    assert not (tmp_path / CRASHES).exists()


@ray.remote
def worker(channel_name, name):
    trainables._SEND_EVERY_S = 0.05
    sender = trainables.EventSender()
    sender.key = trainables._key(channel_name, name)
    with listening(sender.receive):
        report_progress("epoch", 3, 7, {"select/ece": 0.5})
    time.sleep(0.5)  # some periods of the thread that sends


@pytest.mark.slow  # starts a Ray of its own
def test_a_driver_hears_what_its_workers_do():
    names = ["a", "b"]
    trainables.clear_events("one")
    assert trainables.read_events("one", names) == {}
    ray.get([worker.remote("one", "a"), worker.remote("two", "a")])
    assert trainables.read_events("one", names) == {
        "a": ProgressEvent("epoch", 3, 7, {"select/ece": 0.5})
    }
    trainables.clear_events("one")
    assert trainables.read_events("one", names) == {}
    assert list(trainables.read_events("two", names)) == ["a"]
