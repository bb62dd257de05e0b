"""Result folders of others: nothing that they name is run, however its path is written."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

import tune_calib
from tests import fake_results
from tests.support import here
from tune_calib.errors import UserError
from tune_calib.files.documents import seal
from tune_calib.spec import plugins

MARK = """
from dataclasses import replace
from pathlib import Path
from tune_calib.spec.methods import METHODS

Path({canary!r}).touch()
METHODS.register(replace(METHODS["fl"], name="planted"))
"""
# How a manifest may name the file ``planted.py`` that lies in its own folder.
PATHS = {
    "absolute": "{folder}/planted.py",
    "relative": "out/planted.py",
    "without a suffix": "{folder}/planted",
    "by the process": "/proc/self/cwd/out/planted.py",
    "two slashes": "/{folder}/planted.py",
    "dots": "{folder}/trials/../planted.py",
    "a link": "{home}/link.py",
    "a module": "planted_module",
    "a module of a package": "planted_package.planted",
    "a folder": "{folder}",
    "a device": "/dev/zero",
    "a zero byte": "{folder}/planted\0.py",
    "a loop": "{home}/loop/x.py",
}


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A current folder with results that brought files along; `canary` appears if one is run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "out"
    fake_results.write(out)
    text = MARK.format(canary=str(tmp_path / "canary"))
    for name in ("planted.py", "planted"):
        (out / name).write_text(text)
    (tmp_path / "planted_module.py").write_text(text)
    (tmp_path / "planted_package").mkdir()
    for name in ("__init__", "planted"):
        (tmp_path / "planted_package" / f"{name}.py").write_text(text)
    (tmp_path / "link.py").symlink_to(out / "planted.py")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


def plant(home: Path, where: str) -> Path:
    """Let the manifest name a plug-in, with the hash of its text as far as it is known."""
    out = home / "out"
    where = where.format(folder=out, home=home)
    content = plugins.read(str(out / "planted.py")).content
    if where != "/dev/zero":  # which has no end
        with contextlib.suppress(UserError, ValueError):
            content = plugins.read(where).content
    path = out / "sweep.json"
    manifest = json.loads(path.read_text())
    manifest["plugins"] = [{"name": "planted", "content": content, "where": where}]
    path.write_bytes(seal(manifest))
    stored = out / "plugins" / content / "planted.py"
    stored.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(out / "planted.py", stored)
    (home / "canary").unlink(missing_ok=True)
    return out


@pytest.mark.parametrize("where", PATHS)
def test_reading_results_runs_nothing_that_came_with_them(where, home):
    done = here("status", plant(home, PATHS[where]))
    assert done.returncode == 0, done.stderr
    assert "is read without the plug-in planted" in done.stderr
    assert "to run the code, add --plugin " in done.stderr
    assert not (home / "canary").exists()
    assert plugins.in_use() == ()


def test_no_command_on_a_folder_runs_what_it_names(home):
    out = plant(home, "{folder}/planted")
    test = ["analyze", "significance", out, "--baseline", "vanilla"]
    for words in (
        ["analyze", "ranks", out],
        test,
        ["analyze", "diff", out, shutil.copytree(out, home / "other")],
    ):
        done = here(*words)
        assert done.returncode == 0, done.stderr
        assert "is read without the plug-in planted" in done.stderr
    for words in (["report", out, "--pictures"], ["export", out, home / "x.safetensors"]):
        done = here(*words)
        assert done.returncode == 2
        assert "needs the plug-in planted, and only code that you name is run" in done.stderr
    with pytest.warns(UserWarning, match="tune_calib.plugins.load"):
        assert "vanilla" in tune_calib.open_results(out).table()
    assert not (home / "canary").exists()
    assert plugins.in_use() == ()


def test_a_path_is_offered_as_it_leads_and_can_be_typed(home):
    out = plant(home, "/proc/self/cwd/out/planted.py")
    assert f"--plugin {out}/planted.py" in here("status", out).stderr
    done = here("status", out, "--plugin", out / "planted.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert (home / "canary").exists()
    out = plant(home, "{home}/x.py; touch canary")
    assert f"--plugin {out}/plugins/" in here("status", out).stderr  # the copy has the text
    shutil.rmtree(out / "plugins")
    assert f"--plugin '{home}/x.py; touch canary'" in here("status", out).stderr


def test_a_plug_in_that_python_ran_for_its_user_stays_known_there(home):
    out = plant(home, "{folder}/planted.py")
    with plugins.restored():
        plugins.load(str(out / "planted.py"))
    (home / "canary").unlink()
    assert "vanilla" in tune_calib.open_results(out).table()  # without a warning
    assert not (home / "canary").exists()


def test_no_database_is_created_at_the_url_of_a_folder(home):
    out = home / "search"
    fake_results.write_search(out, [fake_results.DEFAULTS], [0.05])
    manifest = json.loads((out / "search.json").read_text())
    needed = {"store": None, "data_root": None, "address": None, "gpus": 0.0, "at_once": 1}
    url = f"sqlite:///{home}/made.db"
    (out / "search.json").write_bytes(
        seal(manifest | needed | {"search": "x", "study_storage": url})
    )
    assert "give its URL as --study-storage" in here("status", out).stderr
    assert not (home / "made.db").exists()
