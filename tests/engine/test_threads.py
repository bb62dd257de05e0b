"""One spec has one number of threads, whatever else is planned."""

import json

import pytest
import torch

from tests.support import sample, small_spec
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import LADDERS, expand
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.ray.trainables import trainable
from tune_calib.tuning.work.jobs import HEAD_THREADS, make_plan, resources_of


@pytest.mark.parametrize("seeds", [1, 2, 5])
@pytest.mark.parametrize("threads", [None, 1, 3])
@pytest.mark.parametrize("name", ["mac_cal", "fedlas"])
def test_threads_follow_from_the_spec_alone(name, threads, seeds):
    given = {} if threads is None else {"network": {"threads": threads}}
    planned = expand(
        LADDERS[name], ResolvedRequest(given, Seeds.count(seeds, None, None), controls=True)
    )
    plan = make_plan(planned, set())
    assert {trial.threads for trial in plan.networks} == {threads or 1}
    assert {trial.config()["threads"] for trial in plan.networks} == {threads or 1}
    assert {trial.threads for trial in plan.head_batches} <= {HEAD_THREADS}
    asked = {need.cpus for need in resources_of(plan.networks + plan.head_batches, 0.0)}
    assert asked == {threads or 1, *([HEAD_THREADS] if plan.head_batches else [])}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("head", sample([False, True], 1))
def test_a_trial_runs_on_and_records_the_threads_of_its_spec(threads, head, tmp_path):
    network = {**small_spec().network.model_dump(mode="json"), "threads": threads}
    slots = {"head": {"method": "retrain", "epochs": 1, "augment": "none"}} if head else {}
    run = Provenance(
        out=str(tmp_path / "out"), store=str(tmp_path / "store"), git_revision=None
    ).plain()
    torch.set_num_threads(3)
    try:
        actor = trainable("retrain" if head else "ce")(
            {"data": {"train_fraction": 0.1}, "network": network, **slots, "run": run}
        )
        while not actor.step().get("done"):
            pass
    finally:
        torch.set_num_threads(1)
    assert read_table(tmp_path / "out", "trials")["threads"].to_pylist() == [
        HEAD_THREADS if head else threads
    ]
    (manifest,) = (tmp_path / "store" / "networks").glob("*/manifest.json")
    assert json.loads(manifest.read_text())["threads"] == threads
