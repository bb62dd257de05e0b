"""What options of ``reproduce`` and what lies in its folders do to each other."""

import os
import shlex
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests import fake_results
from tests.support import cli, command_line, here, rows
from tune_calib.experiments.reproduced import TableRequest, build_file, update_lock
from tune_calib.files.documents import seal
from tune_calib.results.folders import LOCK, read_lock
from tune_calib.spec.reproduction import REPRODUCTIONS, ReproduceRequest

TABLE = "maccal/table5"
FOLDER = REPRODUCTIONS[TABLE].folder
ROOT = Path(__file__).parents[3]


def content(out):
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def locked(out, scale, **further):
    (out / FOLDER).mkdir(parents=True)
    lock = {"table": TABLE, "scale": scale, "command": "tune-calib reproduce x", **further}
    (out / FOLDER / LOCK).write_bytes(seal(lock))


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_folder_is_of_one_scale(dry, tmp_path, refusal):
    locked(tmp_path, "cpu")
    before = content(tmp_path)
    # Behind another one: all are looked at before the first is begun.
    message = refusal(
        "reproduce", "tst/reproduction", TABLE, "--scale", "smoke", "--out", tmp_path, *dry
    )
    assert f"{TABLE} at scale 'cpu', not 'smoke'; name another --out" in message
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda own: fake_results.write(own / "ladder-digits"), "contains another run"),
        (lambda own: (own / "notes.txt").write_text("mine"), "contains notes.txt"),
        (lambda own: fake_results.write(own / "ladder-cifar10"), "contains ladder-cifar10"),
        (lambda own: (own / LOCK).write_text("[]"), f"{LOCK} has no checksum"),
    ],
)
def test_a_folder_of_something_else_is_refused(make, message, tmp_path, refusal):
    (tmp_path / FOLDER).mkdir()
    make(tmp_path / FOLDER)
    before = content(tmp_path)
    assert message in refusal("reproduce", TABLE, "--scale", "smoke", "--out", tmp_path)
    assert content(tmp_path) == before


def test_results_on_frozen_networks_stay_in_the_table_without_weights(tmp_path):
    ask = TableRequest(REPRODUCTIONS[TABLE], ReproduceRequest(scale="cpu", out=str(tmp_path)))
    file = build_file(ask)
    given = "ladder-given-resnet20_he-cifar10"
    runs = {given: "ladder", "ladder-gone": "ladder", "ladder-0": "no run of this version"}
    locked(tmp_path, "cpu", runs=runs)
    for name in (given, "ladder-cifar10", "ladder-0"):
        fake_results.write(file.out / name)
    done = {"ladder-cifar10": "ladder"}
    for _ in range(2):
        found, told = update_lock(ask, file.out, done, "tune-calib reproduce y")
        assert found == {given: "ladder", "ladder-cifar10": "ladder"}
        assert told == "tune-calib reproduce x && tune-calib reproduce y"
    lock = read_lock(file.out)
    assert (lock["command"], lock["runs"], set(lock["trials"])) == (told, found, set(found))


def test_the_plan_of_claims_is_written_before_the_first_trial_and_seeds_at_the_first_look(tmp_path):
    table = REPRODUCTIONS[TABLE]
    ask = TableRequest(table, ReproduceRequest(scale="smoke", seeds=3, out=str(tmp_path)))
    out = build_file(ask).out
    update_lock(ask, out, {}, "tune-calib reproduce x")
    plan = read_lock(out)["plan"]
    assert [claim["text"] for claim in plan["claims"]] == [claim.text for claim in table.claims]
    assert set(plan["seeds"].values()) == {3}
    assert read_lock(out)["looks"] == {}
    for seeds in (3, 5):
        fake_results.write(out / "ladder-digits", seeds=seeds)
        more = replace(ask, request=ask.request.model_copy(update={"seeds": seeds}))
        update_lock(more, out, {"ladder-digits": "ladder"}, "tune-calib reproduce x")
        lock = read_lock(out)
        assert (lock["plan"], lock["looks"]) == (plan, {"ladder-digits": 3})
    # Without its lock file, a table with results has no plan.
    (out / "lock.json").unlink()
    update_lock(ask, out, {}, "tune-calib reproduce x")
    assert read_lock(out)["plan"] is None


def test_impossible_tables_are_listed_together_before_anything_starts(tmp_path, refusal):
    out, data = tmp_path / "out", tmp_path / "data"
    data.mkdir()
    tables = ("fedlas/table2", "maccal/fig4", TABLE)
    message = refusal("reproduce", *tables, "--scale", "gpu", "--out", out, "--data-root", data)
    for word in ("no scale 'gpu', only smoke, paper (fedlas/table2)", "(maccal/fig4)", "cifar100"):
        assert word in message
    assert not out.exists()
    message = refusal(
        "reproduce", TABLE, "maccal/fig4", "--scale", "gpu", "--out", out, "--dry-run",
        "--gpu-model", "A100-80GB",
    )  # fmt: skip
    assert "no scale 'gpu'" in message


FEW = ("maccal/table5", "tst/reproduction", "fedlas/table1")


@pytest.mark.parametrize("names", [FEW, pytest.param(list(REPRODUCTIONS), marks=pytest.mark.slow)])
def test_the_option_all_selects_all_tables(names, tmp_path, monkeypatch, refusal):
    records = {name: REPRODUCTIONS[name] for name in names}
    monkeypatch.setattr(REPRODUCTIONS, "_records", records)
    monkeypatch.setattr(REPRODUCTIONS, "_builtin_names", lambda: [])
    for words in (["--all", TABLE], ["--all", "--list"]):
        assert "--all" in refusal("reproduce", *words)
    done = here("reproduce", "--all", "--scale", "smoke", "--out", tmp_path / "out", "--dry-run")
    assert done.returncode == 0, done.stderr
    for name in REPRODUCTIONS:
        assert f"{name} in " in done.stdout
    assert done.stdout.count("time on this machine") == len(list(REPRODUCTIONS))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_finished_tables_stay_if_a_later_one_is_stopped(sign, tmp_path):
    # The first is of a plug-in.
    plugin = "docs/examples/plugin_table.py"
    tables = ("smoothing/table2", "tst/reproduction", TABLE)
    rest = ["--scale", "smoke", "--out", str(tmp_path), "--plugin", plugin]
    first, second, third = (tmp_path / name.replace("/", "-") for name in tables)
    words = command_line("reproduce", *tables, *rest)
    process = subprocess.Popen(
        words, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while process.poll() is None and not [*second.glob("*/trials/*.parquet")]:
        time.sleep(0.05)
    os.killpg(process.pid, sign) if sign == signal.SIGKILL else process.send_signal(sign)
    output = process.communicate()[1]
    if sign == signal.SIGINT:
        whole = shlex.join(["tune-calib", "reproduce", *tables, *rest])
        assert f"continue with: {whole}" in output
    assert (first / "reproduction.html").exists()
    assert read_lock(first)["runs"] == {"methods-digits": "methods"}
    assert read_lock(first)["command"] == shlex.join(["tune-calib", "reproduce", tables[0], *rest])
    # It took trials of the first, and may have ended the rest before it heard the signal.
    assert read_lock(second)["scale"] == "smoke"
    assert read_lock(second)["runs"] in ({}, {"ladder-digits": "ladder"})
    assert not third.exists()
    before = rows(first / "methods-digits"), content(first / "methods-digits/trials")
    begun = content(second / "ladder-digits/trials")
    again = cli("reproduce", *tables, *rest, cwd=ROOT)
    assert again.returncode == 0, again.stderr
    assert (rows(first / "methods-digits"), content(first / "methods-digits/trials")) == before
    assert begun.items() <= content(second / "ladder-digits/trials").items()
    for folder, name in zip((second, third), tables[1:], strict=True):
        own = shlex.join(["tune-calib", "reproduce", name, *rest])
        assert read_lock(folder)["command"] == own
        assert own.replace("&", "&amp;") in (folder / "reproduction.html").read_text()
    more = cli("reproduce", tables[1], *rest, "--seeds", "2", cwd=ROOT)
    assert more.returncode == 0, more.stderr
    assert read_lock(second)["command"].count("tune-calib reproduce") == 2
