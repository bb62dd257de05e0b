"""TensorBoard, MLflow and Optuna's dashboard, each started once, show what a search has written."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from tests.support import QUICK, here, rows
from tests.tuning.loggers.readers import READERS, of_mlflow
from tune_calib.spec.names import JOURNAL
from tune_calib.tuning.loggers.tensorboard import FOLDER

pytestmark = pytest.mark.slow

START_S = 100
BIN = Path(sys.executable).parent
VIEWERS = Path(sys.prefix) / "viewers/bin"  # they need other versions than the program
ECE = "final/select/ece"


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A search of three suggestions, and the address of the MLflow that it was sent to."""
    folder = tmp_path_factory.mktemp("viewers")
    address = f"sqlite:///{folder}/mlflow.db"
    words = ["mac_cal", *QUICK, "--trials", 3, "--address", "none", "--out", folder / "out"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MLFLOW_TRACKING_URI", address)
        patched.chdir(folder)
        done = here("search", *words, "--log", "tensorboard", "--log", "mlflow")
    assert done.returncode == 0, done.stderr
    return folder / "out", address


def get(url, **query):
    with urlopen(f"{url}?{urlencode(query)}", timeout=START_S) as answer:
        return answer.read()


@contextmanager
def started(folder, command, *words):
    """Start a viewer, wait until it answers, and stop it and its children."""
    if not command.exists():
        pytest.skip(f"{command} is not installed; make test-slow installs it")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [command, *words, "--host", "127.0.0.1", "--port", port]
    url, log = f"http://127.0.0.1:{port}", folder / "viewer.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            list(map(str, command)), stdout=output, stderr=output, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + START_S
    try:
        while True:
            try:
                get(url)
                break
            except OSError:
                is_over = process.poll() is not None or time.monotonic() > deadline
                assert not is_over, log.read_text()
                time.sleep(0.3)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(START_S)


def eces(out):
    return sorted(row["select/ece"] for row in rows(out))


def test_tensorboard_shows_the_trials_of_a_search(searched, tmp_path):
    out, _ = searched
    runs = READERS["tensorboard"](out)
    words = ["--logdir", out / FOLDER, "--load_fast=false"]
    with started(tmp_path, BIN / "tensorboard", *words) as url:
        deadline, tags = time.monotonic() + START_S, {}
        while len(tags) < len(runs) and time.monotonic() < deadline:
            tags = json.loads(get(f"{url}/data/plugin/scalars/tags"))
        values = []
        for run in (run for run, names in tags.items() if ECE in names):
            points = json.loads(get(f"{url}/data/plugin/scalars/scalars", run=run, tag=ECE))
            values.append(points[-1][-1])
    assert sorted(values) == pytest.approx(eces(out), abs=1e-7)


def test_mlflow_serves_the_trials_of_a_search(searched, tmp_path, monkeypatch):
    out, address = searched
    words = ["server", "--backend-store-uri", address, "--workers", 1]
    with started(tmp_path, VIEWERS / "mlflow", *words) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        runs = of_mlflow(out)
    values = [run.points[ECE][-1][1] for run in runs.values() if ECE in run.points]
    assert sorted(values) == pytest.approx(eces(out), abs=1e-12)


def test_the_dashboard_of_optuna_shows_the_suggestions_of_a_search(searched, tmp_path):
    out, _ = searched
    with started(tmp_path, VIEWERS / "optuna-dashboard", out / JOURNAL) as url:
        (study,) = json.loads(get(f"{url}/api/studies"))["study_summaries"]
        trials = json.loads(get(f"{url}/api/studies/{study['study_id']}", after=0))["trials"]
    by_suggestion = {row["rung"]: row["select/ece"] for row in rows(out) if row["rung"] >= 0}
    shown = {trial["number"]: trial["values"] for trial in trials}
    assert len(shown) == 3
    assert {number: float(value) for number, (value,) in shown.items()} == pytest.approx(
        by_suggestion, abs=1e-12
    )
