"""Folders that an earlier version made: read, reported and resumed, with the same numbers.

The archive holds a ladder with its store and an evaluated search without one. It was made by the
last version before the rooms, with the commands that the manifests tell (``--portable``).
"""

import csv
import json
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.support import CIRCUMSTANCES, here
from tune_calib.results.tables import read_table

ARCHIVE = Path(__file__).parents[1] / "made_before" / "0.1.0.tar.xz"
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


def numbers(out: Path) -> dict[str, dict]:
    """Rows by spec, without their circumstances."""
    table = read_table(out, "trials")
    kept = [name for name in table.column_names if name not in CIRCUMSTANCES]
    return {row["spec_hash"]: row for row in table.select(kept).to_pylist()}


def metrics(row: dict) -> dict:
    return {name: value for name, value in row.items() if "/" in name}


def stamps(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}


@pytest.mark.parametrize(
    ("folder", "table", "before"),
    [
        ("sweep", "tables/ladder.csv", "sweep/before/ladder.csv"),
        ("sweep", "tables/intervals.csv", "sweep/before/intervals.csv"),
        ("search", "tables/suggestions.csv", "search/before/suggestions.csv"),
        ("search/evaluation", "tables/ladder.csv", "search/before/evaluation.csv"),
    ],
)
def test_a_report_has_the_numbers_that_it_had(folder, table, before, made):
    done = here("report", made / folder)
    assert done.returncode == 0, done.stderr
    old, new = cells(made / before), cells(made / folder / table)
    told = {row["metric"] for row in old if "metric" in row}
    new = [row for row in new if not told or row["metric"] in told]  # tables may gain metrics
    assert [{name: row[name] for name in old[0]} for row in new] == old


def test_an_evaluated_search_is_told_and_not_mixed_with_numbers_of_today(made):
    told = here("status", made / "search")
    assert told.returncode == 0, told.stderr
    assert "6 of 6 suggestions ended (6 done)" in told.stdout
    assert "evaluated on test" in told.stdout
    refused = here("evaluate", made / "search", "--seeds", 2)
    assert refused.returncode == 2
    assert "with different numbers (generation 1" in refused.stderr


def stored(out):
    """Names of the artifacts in the store of a folder, e.g. ``networks/<id>``."""
    folders = [path for path in (out / "store").glob("*/*") if path.parent.name != "locks"]
    return {f"{path.parent.name}/{path.name}" for path in folders}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_ladder_goes_on_from_its_store_and_trains_what_is_missing_alone(own_ray, made):
    out = made / "sweep"
    whole = numbers(out)
    missing = set(read_table(out, "trials", LAST)["spec_hash"].to_pylist())
    for table in ("trials", "curves", "bins"):
        (out / table / f"{LAST}.parquet").unlink()
    kept, artifacts = stamps(out), stored(out)
    done = here("ablate", "mac_cal", *QUICK, "--out", out)
    assert done.returncode == 0, done.stderr
    assert {path: stamp for path, stamp in stamps(out).items() if path in kept} == kept
    # Classifiers are kept since: those of the heads that were missing.
    assert stored(out) - artifacts == {f"classifiers/{spec}" for spec in missing}
    assert stored(out) >= artifacts
    again = numbers(out)
    assert set(again) == set(whole)
    assert {row["status"] for row in again.values()} == {"done"}
    for spec in missing:
        # Another torch, or a processor that is not an x86, may give other digits.
        if all(again[spec][name] == whole[spec][name] for name in ("versions", "instruction_set")):
            # Later metrics stand beside those of then.
            assert metrics(again[spec]).items() >= metrics(whole[spec]).items()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_search_goes_on_without_its_store(own_ray, made):
    out = made / "search"
    (out / "evaluated.json").unlink()
    shutil.rmtree(out / "evaluation")
    before, kept = numbers(out), stamps(out)
    suggestions = json.loads((out / "outcome.json").read_text())["suggestions"]
    done = here("resume", out, "--trials", 8)
    assert done.returncode == 0, done.stderr
    assert {path: stamp for path, stamp in stamps(out).items() if path in kept} == kept
    assert len(numbers(out)) == len(before) + 2
    outcome = json.loads((out / "outcome.json").read_text())
    assert outcome["planned"] == 8
    assert outcome["suggestions"][:6] == suggestions
