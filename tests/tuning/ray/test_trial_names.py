"""How Ray trials are called where people read."""

import pytest

from tune_calib.spec.ladder import LADDERS, expand
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.tuning.work.jobs import make_plan

SEEDS = {
    "paired": (Seeds((0, 1), (0, 1), is_paired=True), "seed 1"),
    "crossed": (Seeds((0, 1), (0, 1, 2), is_paired=False), "seed 1, head seeds 0-2"),
}


@pytest.mark.parametrize("kind", SEEDS)
def test_networks_and_heads_are_numbered_and_named_by_rung_and_seed(kind):
    seeds, told = SEEDS[kind]
    plan = make_plan(expand(LADDERS["mac_cal"], ResolvedRequest(seeds=seeds).with_recipe()), set())
    assert [network.title for network in plan.networks] == [
        "network 1 of 2: vanilla, seed 0", "network 2 of 2: vanilla, seed 1",
    ]  # fmt: skip
    total = sum(len(head_batch.trials) for head_batch in plan.head_batches)
    last = plan.head_batches[-1]
    first = total - len(last.trials) + 1
    numbers = str(total) if first == total else f"{first}-{total}"
    assert last.title.startswith(f"head{'s' * (first < total)} {numbers} of {total}: + ")
    assert last.title.endswith(told)
    assert last.config()["title"] == last.title
