"""kill -9 of searches that end suggestions early: they end as they would have."""

import os
import time

import pytest

from tests.faults.common import chance, finish, killed, result, spawn
from tests.support import command_line
from tune_calib.results.manifests import SearchOutcome

pytestmark = [pytest.mark.faults, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("SEARCH_KILLS", "8"))  # of each search
_NETWORKS = ["--set", "network.augment=none", "--set", "data.train_fraction=0.25"]
_HEADS = ["--epochs", 3, "--set", "network.augment=none", "--set", "head.augment=none"]
SEARCHES = {
    "race of networks": ["ce", "--race", "--seeds", 3, "--trials", 12, "--epochs", 4, *_NETWORKS],
    "halving of networks": ["ls", "--halving", 3, "--trials", 9, "--epochs", 27, *_NETWORKS],
    "race of heads": [
        "retrain", "--race", "--seeds", 3, "--trials", 16, "--population", 4,
        "--head-epochs", 6, *_HEADS,
    ],
    "halving of heads": ["retrain", "--halving", 3, "--trials", 18, "--head-epochs", 27, *_HEADS],
}  # fmt: skip


def start(name, out, address):
    words = [*SEARCHES[name], "--guard", 0.1, "--out", out, "--address", address]
    return spawn(command_line("search", *words))


def outcome(out):
    read = SearchOutcome.read(out)
    return read.suggestions, read.front, read.chosen, result(out)


@pytest.mark.parametrize("address", ["none", "local"])
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_that_is_killed_again_and_again_ends_as_an_undisturbed_one(
    name, address, tmp_path
):
    if address == "local" and "networks" in name:
        pytest.skip("networks on Ray are suggested in the order in which others end")
    moments, started = chance(f"{name} {address}"), time.monotonic()
    code, output = finish(start(name, tmp_path / "whole", address), limit_s=1200)
    assert code == 0, output
    length_s, whole, landed = time.monotonic() - started, outcome(tmp_path / "whole"), 0
    statuses = {suggestion.status for suggestion in whole[0]}
    assert statuses >= {"done", "raced" if "race" in name else "stopped"}
    while landed < KILLS:
        out = tmp_path / f"killed-{landed}"
        # Another search takes the kills that are left when this one is over.
        while landed < KILLS and killed(
            start(name, out, address), moments.uniform(0.1, 1) * length_s
        ):
            landed += 1
        code, output = finish(start(name, out, address), limit_s=1200)
        assert code == 0, output
        assert outcome(out) == whole
