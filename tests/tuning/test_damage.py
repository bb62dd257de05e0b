"""Result folders in every state of damage: each command is right, or one line that leads on."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from tests.support import DAMAGE, damaged, sample
from tune_calib.cli import main
from tune_calib.files.documents import seal
from tune_calib.results.tables import NUMBERS, read_table, write_results
from tune_calib.spec.names import SEARCH_MANIFEST, SEARCH_OUTCOME
from tune_calib.tuning import plan as driver

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


@pytest.mark.parametrize("how", WAYS)
def test_readers_of_a_lost_manifest_name_the_way_to_restore_it(how, tmp_path, run_line):
    out = copy("ladder", tmp_path)
    damaged(out / "sweep.json", how)
    for words in (["status"], ["report"], ["analyze", "ranks"]):
        code, _, err = run_line(*words, out)
        assert code == 2
        assert "sweep.json is lost or damaged; run the command of the run again" in err


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
