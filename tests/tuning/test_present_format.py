"""A run, a search and their stores in the present format: they stay readable and can be continued.

The archive was made by these commands in an empty folder, with QUICK behind the first two::

    tune-calib ablate mac_cal --out run
    tune-calib search mac_cal --trials 6 --population 2 --sampler random --out search
    tune-calib evaluate search --seeds 2
    tune-calib report run

and the tables in ``expected`` are copies of those that ``report`` wrote; the stores of the search
and all classifiers but one were left out to save space. A change of a format needs
a new version of it, and keeps this archive readable.
"""

import csv
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support import here
from tune_calib.determinism import PORTABLE
from tune_calib.results.tables import read_table

ARCHIVE = Path(__file__).parents[1] / "present_format" / "formats-1.tar.xz"
QUICK = [
    "--epochs", "6", "--head-epochs", "4", "--set", "network.augment=none",
    "--set", "head.augment=none", "--set", "data.train_fraction=0.3", "--portable",
]  # fmt: skip


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def read_cells(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("folder", "tables"),
    [
        ("run", ("ladder", "intervals")),
        ("search", ("suggestions",)),
        ("search/evaluation", ("ladder",)),
    ],
)
def test_a_report_has_the_stored_numbers(folder, tables, unpacked):
    done = here("report", unpacked / folder)
    assert done.returncode == 0, done.stderr
    for table in tables:
        expected = read_cells(unpacked / folder / "expected" / f"{table}.csv")
        metrics = {row.get("metric") for row in expected}
        cells = []  # reports may have further metrics and columns
        for row in read_cells(unpacked / folder / "tables" / f"{table}.csv"):
            if row.get("metric") in metrics:
                cells.append({head: row[head] for head in expected[0]})
        assert cells == expected


def test_the_status_of_an_evaluated_search_is_printed(unpacked):
    done = here("status", unpacked / "search")
    assert done.returncode == 0, done.stderr
    assert "6 of 6 suggestions ended (6 done)" in done.stdout
    assert "evaluated on test" in done.stdout


@pytest.mark.slow
def test_stored_networks_give_another_run_the_same_numbers(unpacked, tmp_path):
    folder = shutil.copytree(unpacked, tmp_path / "copy")
    first_rows = {row["spec_hash"]: row for row in read_table(folder / "run", "trials").to_pylist()}
    # The code of the program is not that of the archive.
    options = ["--store", "run/store", "--address", "none", "--accept-code"]
    command = [sys.executable, "-m", "tune_calib.cli", "ablate", "mac_cal", *QUICK, *options]
    how = {"cwd": folder, "env": {**os.environ, **PORTABLE}, "stderr": subprocess.PIPE}
    continued = subprocess.run([*command, "--out", "run"], text=True, **how)
    assert continued.returncode == 2
    assert "begun by a version of the program with other defaults" in continued.stderr  # of gamma
    pinned = [*command, "--set", "head.gamma=0.95", "--out", "new"]
    done = subprocess.run(pinned, text=True, **how)
    assert done.returncode == 0, done.stderr
    after = {row["spec_hash"]: row for row in read_table(folder / "new", "trials").to_pylist()}
    assert after.keys() == first_rows.keys()
    for spec_hash, row in first_rows.items():
        metrics = {name: value for name, value in row.items() if "/" in name}
        assert {name: after[spec_hash][name] for name in metrics} == metrics
