"""One spec has one number of threads, whatever else is planned."""

import json
import math

import pytest
import torch

from tests.support import sample, small_spec
from tune_calib.engine.head_batch import head_batch_key
from tune_calib.results.tables import read_table, write_results
from tune_calib.spec.ladder import LADDERS, build_comparison, expand
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.forecast import Forecast
from tune_calib.tuning.ray.trainables import trainable
from tune_calib.tuning.work.execution import resources_of
from tune_calib.tuning.work.jobs import HEAD_THREADS, make_plan
from tune_calib.tuning.work.provenance import Provenance


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
    asked = {need.cpus for need in resources_of(plan.jobs, 0.0)}
    assert asked == {threads or 1, *([HEAD_THREADS] if plan.head_batches else [])}


def test_methods_of_a_comparison_may_have_different_threads():
    ladder = build_comparison(["ce", "ls"], [{}, {"network": {"threads": 2}}])
    plan = make_plan(expand(ladder, ResolvedRequest()), set())
    assert [trial.threads for trial in plan.networks] == [1, 2]
    assert [need.cpus for need in resources_of(plan.jobs, 0.0)] == [1, 2]


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


WIDE = {"method": "mac_cal", "shape": "bottleneck", "width": 256}


def spec_of(head: dict) -> TrialSpec:
    params = {key: head[key] for key in head.keys() - {"method"}}
    return TrialSpec.build(network={}, head={"method": head["method"], "params": params})


def test_a_clock_times_every_shape_of_head_by_itself(tmp_path):
    """Rows of linear heads say nothing of a bottleneck of 256."""
    linear = spec_of({"method": "mac_cal", "shape": "linear"})
    row = {
        "spec_hash": "a",
        "data": canonical_json(linear.data),
        "backbone": linear.network.backbone,
        "head": canonical_json(linear.head),
        "head_method": "mac_cal",
        "status": "done",
        "device": "cpu",
        "own_s": 1e6 * linear.head.epochs,
        "network": canonical_json(linear.network),
    }
    write_results(tmp_path / "out" / "earlier", "a", {"trials": [row]})
    location = RunLocation(tmp_path / "out", tmp_path / "store")

    def epoch_s(spec):
        return Forecast(location)._heads_s(spec, 1, "cpu") / spec.head.epochs

    assert epoch_s(linear) == pytest.approx(1e6)
    assert math.isnan(epoch_s(spec_of(WIDE)))
    longer = linear.head.model_copy(update={"epochs": 7})
    assert head_batch_key(longer) != head_batch_key(linear.head)
    again = linear.model_copy(update={"head": longer})
    assert epoch_s(again) == pytest.approx(1e6)
