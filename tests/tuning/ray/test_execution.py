"""Order of the Ray trials of a plan."""

import shutil

import pytest

from tests.support import small_spec
from tune_calib.errors import RefusedError
from tune_calib.spec.ladder import LADDERS, expand
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.tuning.ray.trainables import trainable
from tune_calib.tuning.work.execution import JobSource
from tune_calib.tuning.work.executor import OVER
from tune_calib.tuning.work.jobs import make_plan
from tune_calib.tuning.work.provenance import Provenance


@pytest.fixture
def plan_and_source(trained, tmp_path):
    """Two networks with heads; the store holds the first network, the second never ends well."""
    asked = small_spec().network
    settings = {"network": {key: getattr(asked, key) for key in ("backbone", "epochs", "augment")}}
    planned = expand(LADDERS["mac_cal"], ResolvedRequest(settings, Seeds((0, 1), (0,), False)))
    plan = make_plan(planned, set())
    assert [trained.holds("networks", trial.network_id) for trial in plan.networks] == [True, False]
    run = Provenance(
        out=str(tmp_path), store=str(trained.root), data_root=None, sweep="s", ladder="l"
    )
    return plan, JobSource(plan, run)


def names(source, ids):
    return [source.suggest(number)["job"]["name"] for number in ids]


def test_heads_start_as_soon_as_their_network_is_finished_and_others_still_run(plan_and_source):
    plan, source = plan_and_source
    first, second = plan.networks
    assert names(source, "ab") == [first.name, second.name]
    assert source.suggest("c") is None
    source.end("a")
    heads = [trial.name for trial in plan.head_batches if trial.network_id == first.network_id]
    assert names(source, "cdefg"[: len(heads)]) == heads
    assert source.suggest("z") is None  # the second network is not finished


def test_heads_of_a_network_that_failed_do_not_start(plan_and_source):
    _, source = plan_and_source
    names(source, "ab")
    source.end("b")
    assert source.suggest("c") is None
    source.end("a")
    while (suggested := source.suggest("h")) != OVER:
        work = suggested["job"]
        assert work["kind"] == "head"
        assert work["trials"][0]["spec"]["network"]["seed"] == 0
        source.end("h")


@pytest.mark.parametrize("now", ["nothing", "another sweep", "no manifest"])
def test_a_trial_writes_no_row_into_a_folder_that_is_not_its_own(trained, tmp_path, now):
    slots = small_spec(method="mac_cal", epochs=1).model_dump(mode="json")
    out = tmp_path / "out"
    out.mkdir()
    (out / "sweep.json").write_text('{"sweep": "mine"}')
    run = Provenance(str(out), str(trained.root), sweep="mine", git_revision=None)
    actor = trainable("mac_cal")({**slots, "run": run.plain()})
    out.rename(tmp_path / "moved")
    if now != "nothing":
        out.mkdir()
    if now == "another sweep":
        (out / "sweep.json").write_text('{"sweep": "other"}')
    with pytest.raises(RefusedError, match="was moved, removed or replaced"):
        actor.step()
    assert not (out / "trials").exists()
    assert out.exists() == (now != "nothing")
    shutil.rmtree(out, ignore_errors=True)
    (tmp_path / "moved").rename(out)
    assert actor.step()["status"] == "done"
