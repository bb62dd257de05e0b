"""Loggers are sent what rows and networks in training say: read back by the real libraries."""

import json
import sys
import time
from importlib.metadata import version
from unittest.mock import MagicMock

import pytest
from packaging.version import Version

from tests import fake_results
from tests.support import here
from tests.tuning.loggers.readers import READERS
from tune_calib.errors import UserError
from tune_calib.files.documents import unseal
from tune_calib.results.tables import read_table, write_results
from tune_calib.spec.ladder import LADDERS, expand
from tune_calib.spec.names import SLOTS
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.tuning.context import Context
from tune_calib.tuning.loggers.base import (
    LOGGERS,
    Run,
    flatten_settings,
    format_run_name,
    load_loggers,
)
from tune_calib.tuning.work.jobs import make_plan


@pytest.fixture(params=LOGGERS)
def logger(request, tmp_path, monkeypatch):
    """The name of a logger whose library is there; what it writes stays in a folder of the test."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "exit", sys.exit)  # wandb puts its own there, and leaves it
    monkeypatch.chdir(tmp_path)
    yield request.param
    if request.param == "wandb":
        import wandb

        wandb.teardown()  # it reads its variables once a process


def plan_of(seeds=1):
    settings = {"network": {"epochs": 2, "augment": "none"}, "head": {"epochs": 2}}
    request = ResolvedRequest(settings, Seeds.count(seeds, None, None)).with_recipe()
    return make_plan(expand(LADDERS["mac_cal"], request), set())


def reported(context, work, **result):
    context.follower.send_epoch(work.config(), result)


def row_of(trial, epoch=2):
    """A row of a finished trial, as far as loggers read it."""
    spec = trial.spec
    plain = spec.model_dump(mode="json")
    slots = {slot: json.dumps(plain[slot]) for slot in SLOTS if plain.get(slot)}
    return {
        "spec_hash": spec.hash, "rung": trial.rung, "rung_label": trial.label, **slots,
        "network_seed": spec.network.seed, "head_seed": spec.head.seed if spec.head else None,
        "status": "done", "epoch": epoch, "test/ece": 0.125, "select/ece": 0.25,
        "schema_version": 1,
    }  # fmt: skip


def test_a_trial_is_one_run_that_grows_while_its_network_trains(logger, tmp_path):
    out = tmp_path / "runs" / "it"
    (network, *_), heads = plan_of().networks, plan_of().head_batches
    (own,) = network.trials
    head = heads[0].trials[0]
    with Context(loggers=[logger]).following(out, "question") as context:
        for epoch in (1, 2):
            reported(context, network, epoch=epoch, **{"train/loss": 1 / epoch, "select/ece": 0.5})
        reported(context, network, epoch=2, status="done", **{"select/ece": 0.25})
        curves = [
            {"spec_hash": trial.spec.hash, "epoch": epoch, "name": "train/loss", "value": 1 / epoch}
            for trial in (own, head)
            for epoch in (1, 2)
        ]
        rows = {"trials": [row_of(own), row_of(head)], "curves": curves, "bins": []}
        write_results(out, "all", rows)
    found = READERS[logger](tmp_path if logger == "wandb" else out)
    assert len(found) == 2
    for trial in (own, head):
        (run,) = (found[n] for n in found if n.startswith(clean(trial.label, logger)))
        steps = [point for point in run.points["train/loss"] if point[0] is not None]
        assert [(step, round(value, 6)) for step, value in steps] == [(1, 1.0), (2, 0.5)]
        assert run.points["final/test/ece"][-1][1] == pytest.approx(0.125)
        assert run.status == "done"
        told = flatten_settings(trial.spec.model_dump(mode="json"))
        assert str(run.settings["network.method"]) == "ce"
        assert float(run.settings["network.epochs"]) == told["network.epochs"] == 2
        assert ("head.gamma" in run.settings) == ("head.gamma" in told)


def test_rows_are_sent_as_their_trial_ends(tmp_path):
    out = tmp_path / "runs" / "it"
    trial = plan_of().head_batches[0].trials[0]
    sent = out / "logs" / "tensorboard.json"
    with Context(loggers=["tensorboard"]).following(out, "question") as context:
        for status in ("crashed", "done"):  # it was tried again
            row = {**row_of(trial), "status": status}
            write_results(out, "heads-a", {"trials": [row], "curves": [], "bins": []})
            context.follower.send_rows("heads-a")
            assert unseal(sent.read_bytes(), sent) == {trial.spec.hash: status}
    assert unseal(sent.read_bytes(), sent) == {trial.spec.hash: "done"}


def clean(label, logger):
    import re

    return re.sub(r"[^\w.+-]+", "-", f"{label},") if logger == "tensorboard" else f"{label},"


@pytest.mark.slow
def test_logged_rows_are_not_sent_again(logger, tmp_path):
    out = tmp_path / "runs" / "it"
    fake_results.write(out, seeds=1, bad="diverged")
    for _ in range(2):
        with Context(loggers=[logger]).following(out, "fake"):
            pass
    found = READERS[logger](tmp_path if logger == "wandb" else out)
    assert len(found) == 4
    assert sorted(run.status for run in found.values()) == ["diverged", "done", "done", "done"]
    rows = read_table(out, "trials").to_pylist()
    for row in rows:
        name = format_run_name(row["rung_label"], row["network_seed"], row["head_seed"])
        (run,) = (found[n] for n in found if n.startswith(clean(name.partition(",")[0], logger)))
        assert ("final/test/ece" in run.points) == (row["status"] == "done")
        if row["status"] == "done":
            told = {value for _, value in run.points["final/test/ece"]}
            assert [round(value, 6) for value in told] == [round(row["test/ece"], 6)]
    sent = unseal((out / "logs" / f"{logger}.json").read_bytes(), logger)
    assert set(sent) == {row["spec_hash"] for row in rows}


def test_a_trial_in_another_folder_or_of_another_request_is_another_run(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    identities = []
    (kind,) = load_loggers(["wandb"]).values()

    def begin(**options):
        identities.append(options["id"])
        return MagicMock()

    monkeypatch.setattr("wandb.init", begin)
    for folder, sweep in (
        ("a/it", "x"),
        ("b/it", "x"),
        ("a/it", "y"),
        ("a/at", "x"),
        ("a/it", "x"),
    ):
        kind("wandb", tmp_path / folder, sweep)._open_run(Run("0123", "a trial", {}))
    assert len(set(identities)) == 4
    assert identities[0] == identities[-1]


def test_a_logger_that_fails_costs_no_trial(tmp_path, capsys, monkeypatch):
    """TensorBoard cannot make its folder."""
    out = tmp_path / "runs" / "it"
    fake_results.write(out, seeds=1)
    (out / "tensorboard").write_text("a file in the way")
    with Context(loggers=["tensorboard"]).following(out, "fake"):
        pass
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "logging to tensorboard failed" in message
    (out / "tensorboard").unlink()
    with Context(loggers=["tensorboard"]).following(out, "fake"):
        pass
    assert len(list((out / "tensorboard").iterdir())) == 4


TAKES_FOLDERS = Version(version("mlflow-skinny")) < Version("3.13")
UNUSABLE = {
    "folder": ("mlflow", {"MLFLOW_TRACKING_URI": "runs"}, "filesystem.*MLFLOW_TRACKING_URI"),
    "scheme": ("mlflow", {"MLFLOW_TRACKING_URI": "foo://x"}, "'foo://x'"),
    "server": ("mlflow", {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}, "refused.*MLFLOW_TRACK"),
    "key": ("wandb", {"WANDB_API_KEY": "not a key"}, "invalid.*WANDB_MODE=offline"),
}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            "folder", marks=pytest.mark.skipif(TAKES_FOLDERS, reason="MLflow writes to a folder")
        ),
        "scheme",
        "key",
        pytest.param("server", marks=pytest.mark.slow),
    ],
)
def test_a_tracker_that_cannot_be_used_is_one_line_within_a_minute(case, tmp_path, monkeypatch):
    name, variables, told = UNUSABLE[case]
    monkeypatch.setattr(sys, "exit", sys.exit)
    monkeypatch.chdir(tmp_path)
    variables = {"WANDB_MODE": "online", "WANDB_DIR": str(tmp_path), **variables}
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    started = time.monotonic()
    with (
        pytest.raises(UserError, match=f"^`log` {name}: .*{told}") as refused,
        Context(loggers=[name]).following(tmp_path / "out", "x"),
    ):
        pass
    assert time.monotonic() - started < 60
    assert "\n" not in str(refused.value)


def test_an_unknown_logger_is_refused_before_anything(tmp_path, refusal):
    with pytest.raises(UserError, match=r"tensorbord.*tensorboard"):
        load_loggers(["tensorbord"])
    out = tmp_path / "out"
    assert "--log 'tensorbord' is unknown; did you mean" in refusal(
        "ablate", "mac_cal", "--log", "tensorbord", "--out", out
    )
    assert not out.exists()


@pytest.mark.parametrize("name", LOGGERS)
def test_a_library_that_is_not_there_is_one_line(name, monkeypatch):
    needed = {"tensorboard": "tensorboardX"}.get(name, name)
    monkeypatch.setitem(__import__("sys").modules, needed, None)
    monkeypatch.delitem(
        __import__("sys").modules, f"tune_calib.tuning.loggers.{name}", raising=False
    )
    with pytest.raises(UserError, match=rf"pip install 'tune-calib\[{name}\]'"):
        load_loggers([name])


@pytest.mark.slow
def test_a_ladder_with_a_logger_has_a_run_a_trial(tmp_path):
    pytest.importorskip("tensorboard")
    from tests.support import QUICK

    out = tmp_path / "out"
    assert here("ablate", "mac_cal", *QUICK, "--log", "tensorboard", "--out", out).returncode == 0
    found = READERS["tensorboard"](out)
    rows = read_table(out, "trials").to_pylist()
    assert len(found) == len(rows)
    for run in found.values():
        assert run.status == "done"
        assert len(run.points["train/loss"]) == 2
