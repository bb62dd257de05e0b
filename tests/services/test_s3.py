"""Runs whose results and artifacts lie on S3: the same, killed or not, wherever they go on."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.common import result, run, start, wait_until
from tests.support import cli
from tune_calib.files.paths import fetch_files, parse_path

pytestmark = [pytest.mark.s3, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Result of the run on the disk of this machine."""
    out = tmp_path_factory.mktemp("reference") / "sweep"
    code, output = run(out)
    assert code == 0, output
    return result(out)


@pytest.fixture(autouse=True)
def another_machine(tmp_path, monkeypatch):
    """Go on as on a machine that has no copies yet."""

    def move(name="first"):
        monkeypatch.setenv("TUNE_CALIB_CACHE", str(tmp_path / name))

    move()
    return move


def refused(*arguments):
    """What a command says that ends with 2, in one line."""
    ended = cli(*arguments)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    (line,) = ended.stderr.strip().splitlines()
    return line


def versions(out):
    """Result files; a copy is named after the version of its file."""
    return {path.url: copy.name for path, copy in fetch_files(out / "trials", "*.parquet")}


def in_the_middle_of_a_network(out, store):
    return any((path / "manifest.json").exists() for path in (store / "checkpoints").iterdir())


def between_heads(out, store):
    return bool(fetch_files(out / "trials", "heads-*.parquet"))


@pytest.mark.parametrize("moment", [in_the_middle_of_a_network, between_heads])
def test_a_killed_run_resumed_elsewhere_gives_the_same_rows(
    moment, bucket, reference, another_machine
):
    out, store = (
        parse_path(f"{bucket}/{moment.__name__}"),
        parse_path(f"{bucket}/{moment.__name__}-store"),
    )
    process = start(out, "--store", store)
    assert wait_until(lambda: moment(out, store), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = versions(out)
    another_machine("second")
    code, output = run(out, "--store", store)
    assert code == 0, output
    assert result(out) == reference
    after = versions(out)
    assert before.items() <= after.items()
    assert not [*(store / "checkpoints").iterdir()]
    code, output = run(out, "--store", store)
    assert code == 0, output
    assert versions(out) == after


def test_a_run_is_reported_from_object_storage(bucket, reference):
    out = parse_path(f"{bucket}/reported")
    code, output = run(out)
    assert code == 0, output
    assert result(out) == reference
    done = cli("status", out)
    assert done.returncode == 0, done.stderr
    assert f"{out}: 12 trials planned: 12 done" in done.stdout
    again = cli("report", out)
    assert again.returncode == 0, again.stderr
    assert f"  {out}/report.html" in again.stdout
    for name in ("tables/ladder.md", "figures/reliability.png", "report.html"):
        assert (out / name).read_bytes()
    assert cli("analyze", "ranks", out).returncode == 0


@pytest.fixture
def cluster(bucket, monkeypatch):
    """Address of a running Ray that knows nothing of S3; its token is our own."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ["--head", "--block", "--num-cpus=2", f"--port={address.rpartition(':')[2]}"]
    process = subprocess.Popen(
        [Path(sys.executable).parent / "ray", "start", *options, "--include-dashboard=false"],
        env={name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert any("Ray runtime started" in line for line in process.stdout)
    yield address
    process.terminate()
    process.wait()


def test_trials_on_a_cluster_reach_the_store(bucket, cluster):
    out = parse_path(f"{bucket}/cluster")
    quick = ["--epochs", 1, "--head-epochs", 1, "--set", "head.augment=none"]
    ended = cli("ablate", "mac_cal", *quick, "--address", cluster, "--out", out)
    assert ended.returncode == 0, ended.stderr
    assert f"  {out}/report.html" in ended.stdout


def test_an_unwritable_url_is_one_line_before_anything_starts(bucket, tmp_path):
    absent = "s3://nobody-made-it/out"
    said = refused("ablate", "mac_cal", "--out", absent)
    assert said.startswith(f"error: cannot write {absent}")
    assert "NO_SUCH_BUCKET" in said
    said = refused("ablate", "mac_cal", "--out", tmp_path / "out", "--store", absent)
    assert "NO_SUCH_BUCKET" in said
    assert not (tmp_path / "out" / "trials").exists()


def test_a_missing_server_is_one_line(bucket, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert refused("ablate", "mac_cal", "--out", f"{bucket}/out").startswith("error: cannot")
    assert refused("status", f"{bucket}/out").startswith("error: cannot reach")


def test_a_wrong_key_is_one_line(bucket, monkeypatch):
    monkeypatch.setattr("moto.settings.INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
    assert refused("ablate", "mac_cal", "--out", f"{bucket}/out").startswith("error: cannot")


def test_a_search_needs_a_database(bucket):
    said = refused("search", "mac_cal", "--out", f"{bucket}/search")
    assert "--study-storage" in said
