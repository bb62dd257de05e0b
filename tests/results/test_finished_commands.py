"""A command that left no trial to do is recognised by its manifest and its rows."""

import pytest

from tests import fake_results
from tune_calib.results import digests
from tune_calib.results.folders import is_finished
from tune_calib.results.manifests import RunManifest

COMMAND = "tune-calib ablate mac_cal"


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setattr(digests, "digest_program", lambda: "this program")
    fake_results.write(tmp_path / "out")
    change(tmp_path / "out", command=COMMAND, program="this program")
    return tmp_path / "out"


def change(out, **fields):
    RunManifest.read(out).model_copy(update=fields).write(out)


def test_the_same_command_of_the_same_program_is_finished(out, tmp_path):
    assert is_finished(out, COMMAND)
    assert not is_finished(tmp_path / "nothing", COMMAND)


CHANGES = {
    "another command": lambda out: change(out, command=f"{COMMAND} --seeds 9"),
    "another program": lambda out: change(out, program="another"),
    "files beside the command": lambda out: change(out, program=""),
    "a lost row": lambda out: next(out.glob("trials/*.parquet")).unlink(),
    "a lost manifest": lambda out: (out / "sweep.json").unlink(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_folder_is_not_finished(what, out):
    CHANGES[what](out)
    assert not is_finished(out, COMMAND)


def test_passwords_are_not_compared(out):
    change(out, command="tune-calib ablate x --set a=postgresql://me:***@db/s")
    assert is_finished(out, "tune-calib ablate x --set a=postgresql://me:secret@db/s")


def test_the_program_is_what_is_installed_and_not_what_imports_add_to_the_path(
    tmp_path, monkeypatch
):
    before = digests.digest_program()
    for name, is_installed in (("thirdparty_files", False), ("site-packages", True)):
        (tmp_path / name / "lab-1.0.dist-info").mkdir(parents=True)
        with monkeypatch.context() as changed:
            changed.syspath_prepend(tmp_path / name)
            assert (digests.digest_program() != before) == is_installed
    assert digests.digest_program() == before
