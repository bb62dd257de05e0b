"""Folders that an earlier version made: read and reported with the same numbers, never continued.

The archive holds a ladder with its store and an evaluated search without one. It was made by the
last version before the rooms, with the commands that the manifests tell (``--portable``).
"""

import csv
import tarfile
from pathlib import Path

import pytest

from tests.support import here

ARCHIVE = Path(__file__).parents[1] / "present_format" / "0.1.0.tar.xz"
QUICK = [
    "--epochs", "4", "--head-epochs", "2", "--set", "network.augment=none",
    "--set", "head.augment=none", "--set", "data.train_fraction=0.3", "--portable",
]  # fmt: skip
LAST = "heads-5bbfb6d08c800f92-1"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def cells(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def read_files(folder: Path) -> dict[Path, bytes]:
    """Its tables and manifests."""
    paths = [*folder.rglob("*.parquet"), *folder.rglob("*.json")]
    return {path: path.read_bytes() for path in paths}


@pytest.mark.parametrize(
    ("folder", "table", "before"),
    [
        ("sweep", "tables/ladder.csv", "sweep/before/ladder.csv"),
        ("sweep", "tables/intervals.csv", "sweep/before/intervals.csv"),
        ("search", "tables/suggestions.csv", "search/before/suggestions.csv"),
        ("search/evaluation", "tables/ladder.csv", "search/before/evaluation.csv"),
    ],
)
def test_a_report_has_the_stored_numbers(folder, table, before, made):
    done = here("report", made / folder)
    assert done.returncode == 0, done.stderr
    old, new = cells(made / before), cells(made / folder / table)
    told = {row["metric"] for row in old if "metric" in row}
    new = [row for row in new if not told or row["metric"] in told]  # tables may gain metrics
    assert [{name: row[name] for name in old[0]} for row in new] == old


def test_the_status_of_an_evaluated_search_is_printed(made):
    done = here("status", made / "search")
    assert done.returncode == 0, done.stderr
    assert "6 of 6 suggestions ended (6 done)" in done.stdout
    assert "evaluated on test" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("ablate", "mac_cal", *QUICK, "--out", "sweep"),
        ("evaluate", "search", "--seeds", 2),
    ],
)
def test_runs_of_other_numbers_are_refused(command, made, monkeypatch):
    for table in ("trials", "curves", "bins"):
        (made / "sweep" / table / f"{LAST}.parquet").unlink(missing_ok=True)
    before = read_files(made)
    monkeypatch.chdir(made)
    refused = here(*command)
    assert refused.returncode == 2
    assert "with different numbers (generation 1, now 2)" in refused.stderr
    assert read_files(made) == before
