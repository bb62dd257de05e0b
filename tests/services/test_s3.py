"""Sweeps whose results and artifacts lie on S3: the same, killed or not, wherever they go on."""

import os
import shutil
import signal
import subprocess

import pytest

from tests.faults.common import command, finish, result, run, start, wait_until
from tune_calib.places import files, place
from tune_calib.results import read_table

pytestmark = [pytest.mark.s3, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Result of the sweep on the disk of this machine."""
    out = tmp_path_factory.mktemp("reference") / "sweep"
    code, said = run(out)
    assert code == 0, said
    return result(out)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """This machine's copies, at first none."""
    monkeypatch.setenv("TUNE_CALIB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def cli(*arguments):
    return subprocess.run(command(*arguments), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["networks", "heads"])
def test_killed_and_run_again_on_an_empty_machine_it_is_the_same(kind, bucket, reference, cache):
    out, store = place(f"{bucket}/{kind}"), place(f"{bucket}/{kind}-store")
    process = start(out, "--store", store)
    if kind == "networks":  # in the middle of a network
        assert wait_until(lambda: list((store / "checkpoints").iterdir()), process)
    else:
        assert wait_until(lambda: files(out / "trials", "heads-*.parquet"), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = {path.name for path, _ in files(out / "trials", "*.parquet")}
    shutil.rmtree(cache)
    code, said = run(out, "--store", store)
    assert code == 0, said
    assert result(out) == reference
    assert before <= {path.name for path, _ in files(out / "trials", "*.parquet")}
    assert not [*(store / "checkpoints").iterdir()]
    again = {path.url: copy.name for path, copy in files(out / "trials", "*.parquet")}
    code, said = run(out, "--store", store)
    assert code == 0, said
    # A copy is named after the version of its file.
    assert {path.url: copy.name for path, copy in files(out / "trials", "*.parquet")} == again
