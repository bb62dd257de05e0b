"""An experiment file: complete, resumable, a failing entry apart."""

import json
import re
from pathlib import Path

import pytest

from tests.support import cli, rows
from tune_calib.results.tables import read_table
from tune_calib.tuning.folder import spent_s
from tune_calib.tuning.plan import affordable
from tune_calib.tuning.search.run import count_suggestions

SWEEP = """
out: OUT
address: none
seeds: 2
set:
  network: {epochs: 2}
  head: {epochs: 2}
entries:
  bad: {methods: [ls, mac_cal]}
  rivals: {methods: [ce, ls+mac_cal+temperature, {method: fl, set: {network: {gamma: 1}}}]}
  tuned:
    methods: [mac_cal]
    search: {trials: 8, sampler: random, population: 4, at_once: 1}
  timed:
    methods: [mac_cal]
    search: {hours: 0.0001, sampler: random, population: 4, at_once: 1}
"""


@pytest.mark.parametrize(
    ("ended", "spent_s", "more"),
    [
        (0, 0.0, 8),  # the first batch
        (8, 10.0, 8),  # at most twice as many
        (8, 50.0, 8),
        (16, 60.0, 8),
        (24, 80.0, 0),  # six would fit, a batch is eight
        (24, 200.0, 0),
    ],
)
def test_a_search_for_some_hours_grows_by_what_fits(ended, spent_s, more):
    assert affordable(ended, spent_s, limit_s=100.0, batch=8) == more


def written(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("*/trials/*.parquet")}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_file_is_carried_out_and_goes_on_where_an_entry_failed(tmp_path):
    out, file = tmp_path / "out", tmp_path / "experiment.yaml"
    file.write_text(SWEEP.replace("OUT", str(out)))
    foreign = out / "bad-digits" / "foreign.txt"
    foreign.parent.mkdir(parents=True)
    foreign.touch()

    first = cli("run", file)
    assert first.returncode == 1
    assert "Traceback" not in first.stderr
    assert re.search(r"^bad-digits: .*foreign.txt, which is not part of a run", first.stderr, re.M)
    assert "== rivals-digits ==" in first.stdout
    assert "chosen: trial" in first.stdout
    report = (out / "report.txt").read_text()
    assert report.count("== ") == 4
    assert read_table(out / "rivals-digits", "trials").num_rows == 6
    assert count_suggestions(out / "tuned-mac_cal-digits", None)[0] == 8
    # The budget was over after the first batch.
    assert count_suggestions(out / "timed-mac_cal-digits", None)[0] == 4
    assert spent_s(out / "timed-mac_cal-digits") > 0

    before, plan = written(out), cli("run", file, "--dry-run").stdout
    # Those of bad are in the store, since rivals and the searches needed the same ones.
    assert "networks: 0 to train, 4 already in" in plan
    assert "small_cnn" not in plan  # nothing to train, nothing to time
    foreign.unlink()
    second = cli("run", file)
    assert second.returncode == 0, second.stderr
    assert {path: time for path, time in written(out).items() if path in before} == before
    assert read_table(out / "bad-digits", "trials").num_rows == 4
    # ce, ls and fl under two seeds: each trained once, whoever needed it.
    assert len(list((out / "store" / "networks").iterdir())) == 6


AGAIN = """
out: OUT
address: none
set:
  network: {epochs: 2}
  head: {epochs: 2}
entries:
  rivals: {methods: [ce, ls+temperature, mac_cal]}
  heads:
    methods: [mac_cal]
    search: {trials: 24, population: 4, at_once: 1}
  networks:
    methods: [fl]
    search: {trials: 6, at_once: 1, guard: 0.5, metric: aece}
"""


def results(out: Path) -> dict[str, list[dict]]:
    """Every row of a run's tables but for its circumstances, and every suggestion."""
    found = {}
    for folder in sorted(out.glob("*-digits")):
        for name in ("trials", "curves", "bins"):
            found[f"{folder.name}/{name}"] = rows(folder, table=name)
    for file in sorted(out.glob("*/outcome.json")):
        found[f"{file.parent.name}/suggestions"] = json.loads(file.read_text())["suggestions"]
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_same_file_in_two_fresh_processes_gives_the_same_suggestions_and_numbers(tmp_path):
    found = []
    for name in ("first", "second"):
        out, file = tmp_path / name, tmp_path / f"{name}.yaml"
        file.write_text(AGAIN.replace("OUT", str(out)))
        done = cli("run", file)
        assert done.returncode == 0, done.stderr
        found.append(results(out))
    assert found[0] == found[1]
    assert len(found[0]["heads-mac_cal-digits/suggestions"]) == 24
    assert len(found[0]["networks-fl-digits/suggestions"]) == 6
