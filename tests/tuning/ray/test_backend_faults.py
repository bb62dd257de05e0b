"""Faults of Ray, of a study's database and of a disk reach the driver as what they are."""

import pytest
import ray
from ray.exceptions import RaySystemError

from tune_calib.errors import RefusedError, UserError
from tune_calib.files.paths import atomic_write
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.ray import executor, session
from tune_calib.tuning.ray.executor import _SourceSearcher, _Watcher
from tune_calib.tuning.ray.trainables import EventSender, JobTrainable


class Lost:
    """A source whose database is lost when a trial ends, and that expects each end once."""

    total, at_once = 1, None

    def __init__(self):
        self.running = {"1": "a trial"}

    def suggest(self, trial_id):
        pytest.fail("the run has failed")

    def end(self, trial_id):
        del self.running[trial_id]
        raise UserError("the database no longer responds")


def test_the_first_failure_of_a_source_ends_the_run(tmp_path, monkeypatch):
    searcher = _SourceSearcher(Lost())
    provenance = Provenance(str(tmp_path), "store", git_revision=None)
    monkeypatch.setattr(ray, "cluster_resources", dict)
    watcher = _Watcher(executor.RayExecutor(provenance), searcher)
    watcher.on_step_begin(0, [])
    searcher.on_trial_complete("1", {"done": True})
    searcher.on_trial_complete("1", error=True)  # as Ray Tune did after an exception
    assert searcher.suggest("2") is None
    with pytest.raises(UserError, match="the database no longer responds"):
        watcher.on_step_begin(1, [])


class Full:
    """A worker on a full disk."""

    def step(self):
        atomic_write(self.path / "below a file", b"")

    def cleanup(self): ...


def test_a_worker_that_dies_is_started_again(monkeypatch):
    class Tuner:
        def __init__(self, kind, tune_config, run_config):
            self.run_config = run_config

        def fit(self):
            assert self.run_config.failure_config.max_failures == executor.MAX_FAILURES > 0
            raise UserError("as expected")

    monkeypatch.setattr(ray, "cluster_resources", dict)
    monkeypatch.setattr(executor.tune, "Tuner", Tuner)
    on_ray = executor.RayExecutor(Provenance("out", "store", git_revision=None))
    with pytest.raises(UserError, match="as expected"):
        on_ray.run(Lost())


def test_a_disk_that_cannot_be_written_to_refuses_the_run_and_no_trial(tmp_path):
    (tmp_path / "file").write_text("")
    trial = JobTrainable.__new__(JobTrainable)
    trial.next, trial.worker, trial.sender = None, Full(), EventSender()
    trial.worker.path = tmp_path / "file"
    result = trial.step()
    assert result["done"]
    source = Lost()
    searcher = _SourceSearcher(source)
    searcher.on_trial_complete("1", result)
    assert source.running == {"1": "a trial"}  # the study is not told of a crash
    assert isinstance(searcher.failure, RefusedError)
    assert "cannot write" in str(searcher.failure)


def test_a_ray_that_does_not_start_or_dies_is_one_line(monkeypatch):
    def fail(**_):
        raise Exception("The current node timed out during startup.\nmore")  # as Ray does

    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(UserError, match=r"Ray does not start here: The current .* startup\. more$"):
        session._connect(None, {})

    def die():
        raise RaySystemError("the head node is gone")

    monkeypatch.setattr(session, "_connect", lambda *_: None)
    monkeypatch.setattr(ray, "nodes", die)
    with (
        pytest.raises(UserError, match=r"Ray failed \(.*the head node is gone"),
        session.ray_session(None),
    ):
        pytest.fail("it began")
