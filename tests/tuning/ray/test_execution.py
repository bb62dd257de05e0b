"""Order of the Ray trials of a plan."""

import pytest

from tests.support import small_spec
from tune_calib.spec.ladder import LADDERS, expand
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.work.executor import OVER
from tune_calib.tuning.work.jobs import JobSource, make_plan


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
    return plan, JobSource("", plan.networks, run, plan.head_batches)


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
