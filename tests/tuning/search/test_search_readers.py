"""Who looks at a search beside its driver changes nothing, and takes nothing for what it is not."""

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.tuning.search.support import any_job, definition_of, moved, searched, stored
from tune_calib.cli import main
from tune_calib.errors import UserError
from tune_calib.results.tables import write_results
from tune_calib.spec.names import SEARCH_MANIFEST, SEARCH_OUTCOME
from tune_calib.tuning.folder import LOCK
from tune_calib.tuning.search.run import load_search, open_state
from tune_calib.tuning.search.storage import JOURNAL

DRIVER = """
import sys
from pathlib import Path
from tune_calib.tuning.folder import only_driver
with only_driver(Path(sys.argv[1])):
    print("at work", flush=True)
    sys.stdin.read()
"""


def write_rows(state, numbers) -> None:
    """The result files of some suggestions and of the baseline, as their Ray trials leave them."""
    rungs = {trial.spec.hash: -1 for trial in state.candidates.baseline()}
    for number in numbers:
        point = state.study.suggestion(number).params
        for trial in state.candidates.trials(point, number):
            rungs.setdefault(trial.spec.hash, number)
    rows = []
    for spec_hash, rung in rungs.items():
        fields = {"dataset": "digits", "backbone": "small_cnn", "rung": rung}
        rows.append({**stored(spec_hash, state.rows[spec_hash]), **fields})
    write_results(state.out, "all", {"trials": rows})


@pytest.fixture
def half(tmp_path):
    """A search that was stopped half-way, and its driver's view of it."""
    out = tmp_path / "out"
    question = definition_of("mac_cal", "random")
    job = replace(any_job(out), definition=question, length=12)
    manifest = job.build_manifest()
    state = searched(out, question, 5)
    state.study.suggestion(5)
    manifest.write(out)
    write_rows(state, range(5))
    return state


def read_files(out) -> dict:
    written = (SEARCH_OUTCOME, "report.html")
    return {
        path: path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name not in written and path.parent == out
    }


def run_reader(*arguments, capsys) -> str:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert not ended.value.code, captured.err
    return captured.out


TAILS = [b"", b'{"op_code":5,"worker_id":"', b'{"op_code":5}']
BESIDE = [(command, tail) for command in ("report", "status") for tail in TAILS]


@pytest.mark.parametrize(
    ("command", "tail"),
    [
        pytest.param(*pair, marks=[] if pair[1] == TAILS[1] else [pytest.mark.slow])
        for pair in BESIDE
    ],
)
def test_a_reader_during_a_run_writes_none_of_its_files(half, capsys, command, tail):
    out, journal = half.out, half.out / JOURNAL
    with journal.open("ab") as file:
        file.write(tail)
    (out / f"{JOURNAL}.lock").touch()
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout.readline() == "at work\n"
    files = read_files(out)
    assert {journal, out / LOCK, out / f"{JOURNAL}.lock"} <= files.keys()
    text = run_reader(command, out, capsys=capsys)
    assert read_files(out) == files
    assert driver.poll() is None
    driver.communicate()
    assert "5 done" in text
    assert "7 missing" in text or "5 of 12 suggestions ended" in text


def test_a_reader_during_a_run_reports_no_crashes(half):
    """What is told after the rows were read has rows that were not."""
    job = replace(any_job(half.out), definition=definition_of("mac_cal", "random"), length=12)
    reader = open_state(job, is_read_only=True)
    read = reader.read_rows

    def read_and_be_overtaken():
        hashes = read()
        for number in range(5, 9):
            suggestion = half.study.suggestion(number)
            for planned in half.start([suggestion]):
                half.collect(type("Done", (), {"trials": [planned]}))
            half.settle(suggestion)
        return hashes

    reader.read_rows = read_and_be_overtaken
    reader.settle_ended()
    assert len(reader.results) == 5
    assert {standing.status for standing in reader.results.values()} == {"done"}


def test_a_password_is_in_no_file_and_is_named_again(tmp_path, monkeypatch):
    out = tmp_path / "out"
    url = f"sqlite:///file:{tmp_path}/study.db?uri=true&password=SECRET"
    monkeypatch.setattr(sys, "argv", ["tune-calib", "search", "ls", "--study-storage", url])
    job = moved(any_job(out), command="tune-calib search mac_cal", study_storage=url)
    open_state(job)
    job.build_manifest().write(out)
    written = (out / SEARCH_MANIFEST).read_text()
    assert "SECRET" not in written
    assert "password=***" in written
    with pytest.raises(UserError, match="give its URL as `study_storage`") as refused:
        load_search(out, None)
    assert "SECRET" not in str(refused.value)
    again = replace(load_search(out, url), definition=job.definition)
    assert again.location.study_storage == url
    again.build_manifest().write(out)
    with pytest.raises(UserError, match="is stored in sqlite"):
        moved(job, study_storage=None).build_manifest()
