"""What is said before anything starts: effective settings, the plan, the time it will take."""

import json
import math
import re
import shutil
from dataclasses import replace

import pytest
import torch

from tests.data.archives import image_folder
from tests.support import here, job_in
from tune_calib.errors import UserError
from tune_calib.results.tables import write_results
from tune_calib.spec.ladder import build_comparison
from tune_calib.spec.request import CompareRequest, LadderOptions, build_request
from tune_calib.tuning import describe as plans
from tune_calib.tuning.describe import (
    HEADS,
    NETWORKS,
    Forecast,
    count_parallel,
    describe_run,
    find_needs,
    format_time,
)
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.work.worker import TrialResult, trial_row

HEAD = ["--epochs", "1", "--head-epochs", "1", "--set", "head.augment=none"]
COMMANDS = {
    "ladder": ["ablate", "mac_cal", "--seeds", "2", *HEAD],
    "ladder without heads": ["ablate", "fedlas_gate", "--epochs", "1"],
    "methods": ["compare", "ls+temperature", "mac_cal", "--head-seeds", "2", *HEAD],
    "looks": ["compare", "ce", "temperature", "--epochs", "1", "--shift", "noise",
              "--bootstrap", "100"],
    "search of heads": ["search", "mac_cal", "--trials", "9", *HEAD],
    "search of networks": ["search", "ls", "--trials", "3", "--epochs", "1"],
    "search of transforms": ["search", "temperature", "--trials", "3", "--epochs", "1"],
}  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_dry_run_prints_settings_and_time_and_writes_nothing(tmp_path, words):
    ended = here(*words, "--dry-run", "--out", tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    assert list(tmp_path.iterdir()) == []
    plan = dict(re.findall(r"^  (\S+(?: do)?) +(.+)$", ended.stdout, re.M))
    assert {"setting", "images", "seeds", "machine", "results", "to do", "time"} <= set(plan)
    assert ("; heads " in plan["setting"]) == ("mac_cal" in words)
    assert ("searched" in plan) == (words[0] == "search")
    assert "label noise 0.2; small_cnn, " in plan["setting"]
    assert "1 epoch: SGD, lr 0.1" in plan["setting"]
    sizes = "train 500, select 250, calib 250"
    assert plan["images"] == f"10 classes; {sizes} images of 8x8 grey pixels"
    assert str(tmp_path / "out") in plan["results"]
    names = "networks and heads" if "mac_cal" in words else "networks"
    assert plan["time"] == f"hours unknown for {names}, which were not measured"
    assert ("extra evaluations" in plan["to do"]) == ("--shift" in words)
    assert ended.stdout.endswith("this is a dry run; no trial was started\n")


def test_a_plan_warns_of_equal_images_and_of_few_in_calib(tmp_path):
    root = image_folder(tmp_path / "data")
    shutil.copy(root / "train/class0/000.png", root / "train/class0/copy.png")
    out = tmp_path / "out"
    words = ["compare", "ce", "--dataset", "imagefolder", "--data-root", root, "--epochs", "1"]
    ended = here(*words, "--dry-run", "--out", out)
    assert ended.returncode == 0, ended.stderr
    lines = " ".join(ended.stdout.split())
    assert "warning: 1 of 61 training images repeat another one, whose split they are in" in lines
    assert "calib has only 3 samples" in lines
    assert "standard error of up to 29 points" in lines
    file = tmp_path / "mine.yaml"
    settings = {"datasets": ["imagefolder"], "data_root": str(root), "out": str(out)}
    file.write_text(json.dumps({**settings, "entries": {"one": {"methods": ["ce"]}}}))
    ended = here("run", file, "--dry-run")
    assert ended.returncode == 0, ended.stderr
    assert "warning: 1 of 61 training images" in " ".join(ended.stdout.split())


@pytest.mark.parametrize(("words", "message"), [
    (["ablate", "mac_cal", "--dataset", "cifar10", "--data-root", "nowhere"], "nowhere"),
    (["compare", "ce", "--shift", "nose"], "did you mean 'noise'"),
    (["search", "mac_cal", "--trials", "0"], "`trials`|--trials"),
    (["evaluate", "nowhere"], "nowhere"),
])  # fmt: skip
def test_a_dry_run_refuses_what_its_run_refuses(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    ended = here(*words, "--dry-run")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.strip().splitlines()) == 1
    assert re.search(message, ended.stderr)
    assert list(tmp_path.iterdir()) == []


def finished(job) -> None:
    """Write rows of all trials of a job, as if they had been run."""
    planned = job.planned_trials
    provenance = Provenance(out=str(job.location.out), store=str(job.location.store))
    measured = {"wall_s": 1.0, "population": 1, "actor_resets": 0, "deterministic": True}
    rows = [
        {**trial_row(trial, TrialResult("done", 1, []), provenance, measured),
         "test/accuracy": 0.5, "test/ece": 0.1}
        for trial in planned
    ]  # fmt: skip
    write_results(job.location.out, "all", {"trials": rows})


def job_of(tmp_path, methods, shift=(), bootstrap=0, seeds=1):
    job = job_in(tmp_path / "out", seeds=seeds)
    options = LadderOptions(shift=shift, bootstrap=bootstrap)
    return replace(job, ladder=build_comparison(methods), options=options)


def test_a_head_of_several_post_hoc_methods_is_trained_once(tmp_path):
    transforms = ["temperature", "isotonic", "histogram"]
    job = job_of(tmp_path, ["mac_cal", *(f"mac_cal+{name}" for name in transforms)], seeds=2)
    needs = find_needs(job, job.plan())
    assert (needs.heads, len(needs.networks), needs.planned) == (2, 2, 8)


@pytest.mark.parametrize(("more", "message"), [
    (["mac_cal", "--trials", "9", "--at-once", "1"], "1 network and 9 heads to train"),
    (["ls", "--trials", "3"], "4 networks and 0 heads to train"),
])  # fmt: skip
def test_a_dry_run_of_a_search_counts_networks_and_heads(tmp_path, more, message):
    words = ["search", more[0], "--epochs", "1", "--out", tmp_path / "out"]
    ended = here(*words, *more[1:], "--dry-run")
    assert message in ended.stdout, ended.stderr


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize(
    ("shift", "bootstrap", "count"),
    [((), 0, 0), (("generated:fog,contrast", "noise"), 0, 3), (("noise",), 200, 2)],
)
def test_extra_evaluations_are_counted_for_planned_trials_too(
    tmp_path, shift, bootstrap, count, is_done
):
    job = job_of(tmp_path, ["ce", "temperature"], shift, bootstrap)
    if is_done:
        finished(job)
    needs = find_needs(job, job.plan())
    assert needs.evaluations == 2 * count
    assert (needs.done, needs.is_over) == ((2, count == 0) if is_done else (0, False))
    sums = Forecast(job.location)
    sums.add(job, needs)
    assert (NETWORKS in sums.seconds) != is_done
    description = describe_run(job, job.plan())
    assert ("nothing: 2 of 2 trials are done" in description) == needs.is_over


def test_a_second_run_is_forecast_from_the_rows_of_the_first(tmp_path):
    words = ["compare", "ce", "mac_cal", *HEAD, "--out", tmp_path / "out", "--address", "none"]
    assert here(*words).returncode == 0
    plan = here(*words, "--seeds", "2", "--dry-run").stdout
    times = r"[\d.,]+ s"
    pattern = rf"about {times} of training = networks {times} \+ heads {times}"
    assert re.search(rf"^  time +{pattern}$", plan, re.M)
    assert re.search(rf"small_cnn on digits: {times} an epoch, earlier rows in", plan)
    assert re.search(rf"heads of mac_cal on digits: {times} an epoch, earlier rows in", plan)
    # Ray takes longer to start than a few heads on a network that is there.
    elsewhere = ["--store", tmp_path / "out/store", "--out", tmp_path / "other", "--dry-run"]
    for method, where in (("retrain", "in this process"), ("ls+retrain", "in parallel")):
        assert re.search(f"{where}$", here("compare", "ce", method, *HEAD, *elsewhere).stdout, re.M)


def test_a_forecast_names_what_is_unknown_and_adds_up_the_rest(tmp_path):
    sums = Forecast(job_of(tmp_path, ["ce"]).location)
    sums.seconds |= {NETWORKS: math.nan, HEADS: 8.0}
    assert format_time(sums) == "hours unknown for networks, which were not measured; heads 8 s"
    sums.seconds |= {NETWORKS: 4.0}
    assert format_time(sums) == "about 12 s of training = networks 4 s + heads 8 s"


@pytest.mark.parametrize(("address", "compiles"), [(None, True), (None, False), ("auto", False)])
def test_a_plan_says_where_auto_cannot_compile(address, compiles, tmp_path, monkeypatch):
    job = job_of(tmp_path, ["ce"])
    job = replace(job, location=replace(job.location, gpus=1, address=address))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H100")
    monkeypatch.setattr(plans, "can_compile", lambda: compiles)
    is_named = address is None and not compiles
    assert ("not compiled: Triton, gcc" in describe_run(job, job.plan())) == is_named


@pytest.mark.parametrize(("gpus", "share", "count"), [(1, 1, 1), (1, 1 / 4, 4), (2, 1 / 2, 4)])
def test_trials_in_parallel_are_those_that_the_gpus_hold(tmp_path, monkeypatch, gpus, share, count):
    job = job_of(tmp_path, ["ce"])
    job = replace(job, location=replace(job.location, gpus=share))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(plans, "count_cores", lambda: 16)
    assert count_parallel(job, 1) == count


def test_vanilla_is_plain_cross_entropy_in_a_comparison():
    request = build_request(CompareRequest, {"methods": ["vanilla", "temperature"]})
    vanilla, temperature = build_comparison(list(map(str, request.methods))).rungs
    assert (vanilla.label, vanilla.slots) == ("vanilla", {"network": {"method": "ce"}})
    assert temperature.slots == {"posthoc": {"method": "temperature"}}
    with pytest.raises(UserError, match="unknown method 'vanila'"):
        build_request(CompareRequest, {"methods": ["vanila"]})
