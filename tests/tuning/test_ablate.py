"""A ladder: complete, done once, and a line for each mistake; ``tests/ray`` has it on Ray."""

import json
import shlex
import subprocess

import pytest

import tune_calib
from tests import drawing
from tests.support import (
    CIRCUMSTANCES,
    QUICK,
    SETTINGS,
    command_line,
    drive,
    here,
    job_in,
    rows,
    run_of,
    small_spec,
)
from tune_calib.files.store import Store
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.tuning.ray.trainables import trainable
from tune_calib.tuning.work.jobs import make_plan

DRAWN = {"tradeoff", "sparsity"}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """An uninterrupted run, with its output."""
    out = tmp_path_factory.mktemp("sweeps") / "whole"
    with drawing.figures("png", names=DRAWN):
        done = here("ablate", "mac_cal", "--seeds", 2, "--controls", *QUICK, "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done


def test_a_ladder_gives_every_planned_row_and_the_report(finished_run):
    out, done = finished_run
    manifest = json.loads((out / "sweep.json").read_text())
    assert len(manifest["planned"]) == 2 * 8
    assert {row["spec_hash"] for row in rows(out)} == {p["spec_hash"] for p in manifest["planned"]}
    assert {row["status"] for row in rows(out)} == {"done"}
    assert "decaying adaptive sparsity" in done.stdout
    for name in ("tables/ladder.md", "tables/ladder.tex", "tables/ladder.csv"):
        assert (out / name).stat().st_size > 0
    assert {path.stem for path in out.glob("figures/*.png")} == DRAWN


@pytest.mark.slow
def test_the_same_command_again_does_nothing(finished_run):
    out, done = finished_run
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    command = command_line("ablate", "mac_cal", "--seeds", 2, "--controls", *QUICK, "--out", out)
    output = subprocess.run(command, capture_output=True, text=True, check=True)
    # The last line lists the figures, of which the first run drew a few here.
    assert output.stdout.splitlines()[:-1] == done.stdout.splitlines()[:-1]
    assert f"nothing is left to do in {out}" in output.stderr
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == before


@pytest.mark.slow
def test_command_line_sweep_file_and_python_give_the_same_rows(finished_run, tmp_path):
    out, _ = finished_run
    asked = {"seeds": 2, "controls": True, "epochs": 2, "head_epochs": 2, "set": SETTINGS}
    called = tune_calib.ablate("mac_cal", **asked, out=tmp_path / "called")
    assert rows(called.out) == rows(out)
    written = (out / "tables/ladder.md").read_text()
    assert written.startswith(called.table().rstrip())
    assert all(remark in written for remark in called.remarks)
    settings = {"epochs": 2, "augment": "none"}
    given = {"data": {"train_fraction": 0.25}, "network": settings, "head": settings}
    entry = {"ladder": "mac_cal", "controls": True, "set": given}
    where = {"out": str(tmp_path / "listed"), "store": str(out / "store")}
    (tmp_path / "experiment.yaml").write_text(
        json.dumps({**where, "seeds": 2, "entries": {"a": entry}})
    )
    ran = tune_calib.run(tmp_path / "experiment.yaml")
    # The entries of a file share its set, so that the question of one is put otherwise.
    assert rows(ran["a-digits"].out, "sweep") == rows(out, "sweep")


def test_python_reuses_finished_trials_of_the_command_line(finished_run):
    out, _ = finished_run
    asked = {"seeds": 2, "controls": True, "epochs": 2, "head_epochs": 2, "set": SETTINGS}
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    command = json.loads((out / "sweep.json").read_text())["command"]
    tune_calib.ablate("mac_cal", **asked, out=out)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == before
    told = json.loads((out / "sweep.json").read_text())["command"]
    assert sorted(shlex.split(told)) == sorted(shlex.split(command))


@pytest.mark.parametrize("seeds", [(2, 1), (1, 2)])
def test_a_folder_preserves_its_largest_number_of_seeds(seeds, tmp_path):
    for count in seeds:
        manifest = job_in(tmp_path, seeds=count).build_manifest()
        manifest.write(tmp_path)
    assert manifest.network_seeds == manifest.head_seeds == [0, 1]
    assert {trial.head_seed for trial in manifest.planned} == {None, 0, 1}


def test_another_run_in_the_same_folder_is_refused(finished_run):
    out, _ = finished_run
    refused = here("ablate", "mac_cal", "--seeds", 2, "--out", out)
    assert refused.returncode == 2
    assert "contains another run" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


def test_a_diverging_head_is_a_status_in_the_table(finished_run, tmp_path):
    reference, _ = finished_run
    out = tmp_path / "diverged"
    setting = ["--set", "head.lr=1e30", "--set", "head.clip_grad_norm=null"]
    where = ["--store", reference / "store"]
    done = here("ablate", "mac_cal", "--seeds", 2, *QUICK, *setting, *where, "--out", out)
    assert done.returncode == 0, done.stderr
    statuses = {(row["rung"] == 0, row["status"]) for row in rows(out)}
    assert statuses == {(True, "done"), (False, "diverged")}
    assert "diverged" in done.stdout


def test_a_saved_head_batch_goes_on_as_if_nothing_had_happened(trained, tmp_path):
    head = {"method": "mac_cal", "epochs": 3, "augment": "none"}
    spec = {**small_spec().model_dump(mode="json"), "head": head}
    uninterrupted = trainable("mac_cal")({**spec, "run": run_of(tmp_path / "whole", trained)})
    drive(uninterrupted)
    first = trainable("mac_cal")({**spec, "run": run_of(tmp_path / "resumed", trained)})
    first.step()
    (tmp_path / "checkpoint").mkdir()
    first.save_checkpoint(str(tmp_path / "checkpoint"))
    second = trainable("mac_cal")({**spec, "run": run_of(tmp_path / "resumed", trained)})
    second.load_checkpoint(str(tmp_path / "checkpoint"))
    drive(second)
    assert rows(tmp_path / "whole") == rows(tmp_path / "resumed")


def test_a_saved_network_goes_on_from_its_last_epoch(tmp_path):
    """A scheduler that pauses it saves it first."""
    slots = {"data": {"train_fraction": 0.1}, "network": {"epochs": 3}}
    config = {**slots, "run": run_of(tmp_path, Store(tmp_path / "store"))}
    first = trainable("ce")(config)
    first.step(), first.step()
    (tmp_path / "checkpoint").mkdir()
    first.save_checkpoint(str(tmp_path / "checkpoint"))
    first.cleanup()
    second = trainable("ce")(config)
    second.load_checkpoint(str(tmp_path / "checkpoint"))
    assert second.step()["epoch"] == 3


def test_a_truncated_parquet_is_one_line_and_exit_code_2(cifar_root, tmp_path, refusal):
    for name in ("train.parquet", "test.parquet"):
        content = (cifar_root / "cifar10" / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
    arguments = ("--dataset", "cifar10", "--data-root", tmp_path)
    message = refusal("ablate", "mac_cal", *arguments, "--out", tmp_path / "out")
    assert "train.parquet" in message


def test_a_plan_trains_each_network_once_and_groups_equal_shapes(trained):
    from tune_calib.spec.design import build_design
    from tune_calib.spec.ladder import LADDERS, expand
    from tune_calib.spec.resolved import Seeds

    planned = expand(
        LADDERS["mac_cal"],
        ResolvedRequest(seeds=Seeds((0,), tuple(range(5)), False), controls=True),
    )
    plan = make_plan(planned, set())
    assert len(plan.networks) == 1
    # linear with a dense and a masked gradient, bottleneck (three rungs), two controls
    assert sorted(len(p.trials) for p in plan.head_batches) == [5, 5, 10, 15]
    scaled = build_design(LADDERS["mac_cal"], "factorial", "temperature")
    seeds = Seeds((0,), tuple(range(5)), is_paired=False)
    plan = make_plan(expand(scaled, ResolvedRequest(seeds=seeds)), set())
    # A head and its scaled variant are in one batch, and the rest of a shape is a second one.
    assert sorted(len({t.spec.head for t in p.trials}) for p in plan.head_batches) == [3, 3, 32, 32]
    done = {trial.spec.hash for trial in planned}
    assert make_plan(planned, done).networks == ()


def test_a_rung_that_cannot_take_a_setting_keeps_its_own():
    from tune_calib.spec.ladder import LADDERS, expand

    planned = expand(LADDERS["mac_cal"], ResolvedRequest({"head": {"tau0": 0.02}}))
    taus = [trial.spec.head.params.tau0 for trial in planned if trial.spec.head]
    assert taus == [0.0, 0.0, 0.0, 0.02, 0.02]


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [1, 3])
def test_a_profile_is_written_and_changes_no_digit(epochs, tmp_path):
    ladder = ["compare", "ce", "ls", "--epochs", epochs]
    plain, told = tmp_path / "plain", tmp_path / "told"
    assert here(*ladder, "--out", plain).returncode == 0
    ended = here(*ladder, "--out", told, "--profile")
    assert ended.returncode == 0
    assert "images per second" in ended.stdout
    files = sorted((told / "profiles").iterdir())
    assert len(files) == 2
    for file in files:
        seconds = json.loads(file.read_text())["seconds"]
        assert {"images", "forward", "backward", "optimiser", "checkpoint"} <= seconds.keys()
        assert sum(seconds.values()) > 0
    assert rows(plain, *CIRCUMSTANCES, "sweep") == rows(told, *CIRCUMSTANCES, "sweep")
    assert not (plain / "profiles").exists()
