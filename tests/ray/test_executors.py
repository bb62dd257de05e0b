"""Ray and the driver's own process carry the same trials out: equal rows, to the last digit."""

import pytest

from tests.support import QUICK, here, rows

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

TABLES = ("trials", "curves", "bins", "intervals")
COMMANDS = {
    "ladder": ["ablate", "mac_cal", "--controls"],
    "comparison": ["compare", "ce", "ls", "mac_cal", "temperature", "--bootstrap", 100],
    "search of heads": ["search", "mac_cal", "--trials", 12],
    "search of networks": ["search", "ls", "--trials", 2, "--at-once", 1],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_both_executors_give_the_same_rows(name, tmp_path):
    found = {}
    for address in ([], ["--address", "none"]):
        out = tmp_path / "-".join(["out", *address])
        done = here(*COMMANDS[name], *QUICK, "--out", out, *address)
        assert done.returncode == 0, done.stderr
        found[bool(address)] = {table: rows(out, table=table) for table in TABLES}
    assert found[True] == found[False]
    assert len(found[True]["trials"]) >= 3
