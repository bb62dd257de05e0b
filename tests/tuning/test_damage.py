"""Result folders in every state of damage: each command is right, or one line that leads on."""

import contextlib
import json
import re
import shutil
from functools import cache
from pathlib import Path

import pytest

from tests.support import DAMAGE, damaged, here, sample
from tune_calib.cli import main
from tune_calib.engine.bank import bank_key
from tune_calib.files.documents import seal
from tune_calib.files.store import ARTIFACT_MANIFEST, Store
from tune_calib.results.folders import find_run_manifest
from tune_calib.results.tables import NUMBERS, read_table, write_results
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.names import SEARCH_MANIFEST, SEARCH_OUTCOME
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning import run as driver
from tune_calib.tuning.work.jobs import lacking, make_plan

EXAMPLE = Path("analysis/example").resolve()
WAYS = sample(sorted(DAMAGE), 1)


@pytest.fixture
def run_line(capsys):
    """Exit code, stdout and stderr of a command; a failure is one line."""

    def run(*words):
        capsys.readouterr()  # what a command before it said
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        if ended.value.code:
            assert ended.value.code == 2, err
            assert err.startswith("error: "), err
            assert len(err.strip().splitlines()) == 1, err
        return ended.value.code or 0, out, err

    return run


def copy(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE / name, tmp_path / name))


READERS = {
    "status": ["status", "OUT"],
    "ranks": ["analyze", "ranks", "OUT"],
    "significance": ["analyze", "significance", "OUT", "--baseline", "BASE"],
}


@cache
def intact_outputs(name: str) -> dict[str, str]:
    """Return what the readers print of an undamaged folder: once for all kinds of damage."""
    out, outputs = EXAMPLE / name, {}
    manifest = json.loads((out / "sweep.json").read_text())
    for command, words in READERS.items():
        done = here(*_words(words, out, manifest))
        assert done.returncode == 0, done.stderr
        outputs[command] = done.stdout
    return outputs


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", ["ladder", "compare"])
def test_a_lost_manifest_is_rebuilt_from_the_rows(name, how, tmp_path, run_line):
    out, outputs = copy(name, tmp_path), intact_outputs(name)
    manifest = json.loads((out / "sweep.json").read_text())
    damaged(out / "sweep.json", how)
    for command, words in READERS.items():
        code, output, err = run_line(*_words(words, out, manifest))
        assert code == 0, err
        assert "sweep.json is lost" in output, command
        if command == "status":
            counts = [line for line in outputs[command].splitlines() if line.startswith("  ")]
            assert all(line in output for line in counts)
        else:  # the numbers are the same ones
            is_number = re.compile(r"\d\.\d").search
            numbers = [line for line in outputs[command].splitlines() if is_number(line)]
            assert numbers
            assert [line for line in numbers if line not in output.splitlines()] == []


def _words(words, out, manifest):
    base = manifest["rungs"][0]["label"]
    return [str(out) if w == "OUT" else base if w == "BASE" else w for w in words]


@pytest.mark.parametrize(
    ("name", "file", "commands"),
    [
        ("ladder", "sweep.json", ["status", "report", "analyze ranks", "analyze significance"]),
        ("search", SEARCH_MANIFEST, ["status", "report", "resume", "evaluate"]),
        ("search", SEARCH_OUTCOME, ["report"]),
    ],
)
def test_a_file_of_a_later_version_requires_an_update(name, file, commands, tmp_path, run_line):
    out = copy(name, tmp_path)
    content = json.loads((out / file).read_text())
    (out / file).write_bytes(seal(content | {"version": 99}))
    for command in commands:
        code, _, err = run_line(*command.split(), out)
        assert code == 2
        assert "has format 99" in err
        assert "update" in err


class WouldBegin(Exception):  # noqa: N818
    """Everything was right with a command; nothing is trained here."""


class Idle:
    """An executor of a run that ends when it is asked for anything."""

    def __getattr__(self, name):
        raise WouldBegin


@contextlib.contextmanager
def no_ray(*_, **__):
    yield Idle()


@pytest.fixture
def begun(monkeypatch):
    """Begin a run or a search, up to its first trial; whether it came so far."""
    monkeypatch.setattr(driver, "open_executor", no_ray)

    def begin(*words) -> bool:
        with pytest.raises((WouldBegin, SystemExit)) as ended:
            main([str(word) for word in words])
        return ended.type is WouldBegin

    return begin


def finish(out: Path) -> dict:
    """Write a row for every planned trial of a run that was begun; gives its manifest."""
    manifest = json.loads((out / "sweep.json").read_text())
    labels = {rung["index"]: rung["label"] for rung in manifest["rungs"]}
    rows = [
        {
            **entry,
            "schema_version": 1,
            "sweep": manifest["sweep"],
            "ladder": manifest["ladder"],
            "rung_label": labels[entry["rung"]],
            "data": '{"dataset":"digits"}',
            "dataset": "digits",
            "backbone": "small_cnn",
            "status": "done",
            "test/ece": 0.1 + 0.01 * entry["rung"],
            "test/accuracy": 0.8,
        }
        for entry in manifest["planned"]
    ]
    write_results(out, "all", {"trials": rows})
    return manifest


SWEEP = ["ablate", "mac_cal", "--seeds", 2]
SEARCH = ["search", "mac_cal", "--trials", 4, "--guard", 0.02]


@pytest.mark.parametrize("how", WAYS)
def test_the_same_command_restores_a_sweep_and_another_is_refused(how, tmp_path, begun, run_line):
    out = tmp_path / "out"
    assert begun(*SWEEP, "--out", out)
    manifest = finish(out)
    rows = read_table(out, "trials")
    damaged(out / "sweep.json", how)
    code, _, err = run_line("ablate", "mac_cal", "--set", "head.gamma=0.5", "--out", out)
    assert code == 2
    assert "contains another run" in err
    code, output, err = run_line(*SWEEP, "--out", out)  # nothing is left to do
    assert code == 0, err
    assert "10.00" in output
    after = json.loads((out / "sweep.json").read_text())
    assert {**after, "command": ""} == {**manifest, "command": ""}
    assert read_table(out, "trials").equals(rows)


def test_a_lost_sweep_keeps_the_seeds_that_the_command_does_not_name(tmp_path, begun, run_line):
    out = tmp_path / "out"
    assert begun("ablate", "mac_cal", "--seeds", 3, "--out", out)
    manifest = finish(out)
    damaged(out / "sweep.json", "empty")
    assert run_line(*SWEEP, "--out", out)[0] == 0
    after = json.loads((out / "sweep.json").read_text())
    assert after["network_seeds"] == [0, 1, 2]
    key = "spec_hash"
    assert sorted(p[key] for p in after["planned"]) == sorted(p[key] for p in manifest["planned"])


@pytest.mark.parametrize("is_begun", [True, False])
@pytest.mark.parametrize("how", WAYS)
def test_the_same_command_restores_a_search_and_another_is_refused(
    how, is_begun, tmp_path, begun, run_line
):
    out = tmp_path / "out"
    assert begun(*SEARCH, "--out", out)
    manifest = json.loads((out / SEARCH_MANIFEST).read_text())
    row = {
        "schema_version": 1, "sweep": manifest["search"], "ladder": "search mac_cal", "rung": -1,
        "rung_label": "baseline", "spec_hash": manifest["specs"]["baseline"][0], "status": "done",
        "network_seed": 0, "epoch": 1, "select/ece": 0.1, "select/accuracy": 0.9,
        "numbers": NUMBERS,
    }  # fmt: skip
    if is_begun:
        write_results(out, "network", {"trials": [row]})
    damaged(out / SEARCH_MANIFEST, how)
    if is_begun:
        code, _, err = run_line("search", "mac_cal", "--guard", 0.5, "--out", out)
        assert code == 2
        assert "contains another search" in err
    assert begun(*SEARCH, "--out", out)
    after = json.loads((out / SEARCH_MANIFEST).read_text())
    assert after["search"] == manifest["search"]
    assert after["question"] == manifest["question"]


def test_a_damaged_journal_is_one_line_that_leads_on(tmp_path, begun, run_line):
    out = tmp_path / "out"
    assert begun(*SEARCH, "--out", out)
    (out / "study.log").write_bytes(b"garbage\n{}\n")
    code, _, err = run_line(*SEARCH, "--out", out)
    assert code == 2
    assert "study.log is damaged; move it away" in err
    (out / "study.log").unlink()
    assert begun(*SEARCH, "--out", out)


@pytest.mark.parametrize("manifest", [b"{\xcc", b"{", b"[]", b"{}"])
def test_a_bank_with_a_damaged_manifest_is_planned_again(manifest, tmp_path):
    head = {"method": "mac_cal"}
    trial = PlannedTrial(TrialSpec.build(network={}, head=head), rung=0, label="")
    store = Store(tmp_path)
    bank = store.folder("banks", bank_key(trial.spec, trial.spec.head).identity)
    bank.mkdir(parents=True)
    (bank / ARTIFACT_MANIFEST).write_bytes(manifest)
    assert f"banks/{bank.name}" in lacking(make_plan([trial], set()), store)


@pytest.mark.parametrize(
    ("seeds", "is_paired"),
    [([(0, 0), (1, 1)], True), ([(0, 0), (0, 1), (1, 0), (1, 1)], False), ([(0, 3)], True)],
)
def test_a_manifest_rebuilt_from_rows_has_paired_or_crossed_seeds(seeds, is_paired, tmp_path):
    (row,) = read_table(EXAMPLE / "ladder", "trials").slice(0, 1).to_pylist()
    for network, head in seeds:
        name = f"{network}{head}"
        fields = {"spec_hash": name * 8, "network_seed": network, "head_seed": head}
        write_results(tmp_path, name, {"trials": [{**row, **fields}]})
    assert find_run_manifest(tmp_path).paired_seeds is is_paired
