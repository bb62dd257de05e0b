"""What is said before anything starts: effective settings, the plan, the time it will take."""

import json
import math
import re
import shutil
from dataclasses import replace

import pytest
import torch

from tests.data.archives import image_folder
from tests.support import CPU, here, job_in, sample
from tune_calib.cli.look_up import format_markdown
from tune_calib.documents import seal
from tune_calib.engine.bank import bank_key
from tune_calib.engine.store import ARTIFACT_MANIFEST, VERSION, Store
from tune_calib.errors import UserError
from tune_calib.experiments.forecast import forecast, summary
from tune_calib.experiments.forecast.forecast import (
    HEADS,
    NETWORKS,
    Forecast,
    find_needs,
)
from tune_calib.experiments.forecast.rates import Rates
from tune_calib.experiments.forecast.summary import (
    _describe_execution,
    _format_time,
    describe_run,
    format_duration,
)
from tune_calib.results.tables import write_results
from tune_calib.spec.describe import describe, list_settings
from tune_calib.spec.ladder import LADDERS, build_comparison
from tune_calib.spec.methods import METHODS
from tune_calib.spec.request import CompareRequest, LadderOptions, build_request
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.work.provenance import Provenance
from tune_calib.tuning.work.rows import TrialResult, trial_row

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
    always = {"data", "network", "recipe", "seeds", "machine", "results", "to do", "time"}
    assert always <= set(plan)
    assert ("heads" in plan) == ("mac_cal" in words)
    assert ("searched" in plan) == (words[0] == "search")
    assert "label noise 0.2" in plan["data"]
    sizes = "train 500, select 250, calib 250, test 797"
    assert plan["images"] == f"10 classes; {sizes} images of 8x8 grey pixels"
    assert "1 epoch: SGD, lr 0.1" in plan["network"]
    assert "augmentation none" in plan["network"]
    assert str(tmp_path / "out") in plan["results"]
    times = r"[\d.,]+ (s|min|h)"
    if "mac_cal" in words:
        time = f"unknown for heads, which were not measured; networks {times}"
    else:
        time = f"about {times} of training = networks {times}"
    assert re.fullmatch(time, plan["time"])
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
    assert "warning 1 of 61 training images repeat another one, whose split they are in" in lines
    assert "calib has only 3 samples" in lines
    assert "standard error of up to 29 points" in lines
    file = tmp_path / "mine.yaml"
    settings = {"datasets": ["imagefolder"], "data_root": str(root), "out": str(out)}
    file.write_text(json.dumps({**settings, "entries": {"one": {"methods": ["ce"]}}}))
    ended = here("run", file, "--dry-run")
    assert ended.returncode == 0, ended.stderr
    assert "one: warning: 1 of 61 training images" in " ".join(ended.stdout.split())


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


@pytest.mark.parametrize("behind", [1, 3])
@pytest.mark.parametrize("seeds", [1, 2])
def test_a_head_of_several_post_hoc_methods_is_trained_once(tmp_path, behind, seeds):
    transforms = ["temperature", "isotonic", "histogram"][:behind]
    job = job_of(tmp_path, ["mac_cal", *(f"mac_cal+{name}" for name in transforms)], seeds=seeds)
    needs = find_needs(job)
    assert needs.heads == seeds
    assert len(needs.networks) == seeds
    assert needs.planned == seeds * (behind + 1)


@pytest.mark.parametrize(("more", "message"), [
    (["mac_cal", "--trials", "9", "--at-once", "1"], "1 network and 9 heads to train"),
    (["ls", "--trials", "3"], "4 networks and 0 heads to train"),
])  # fmt: skip
def test_a_dry_run_of_a_search_counts_networks_and_heads(tmp_path, more, message):
    words = ["search", more[0], "--epochs", "1", "--out", tmp_path / "out"]
    ended = here(*words, *more[1:], "--dry-run")
    assert message in ended.stdout, ended.stderr


def test_a_bank_that_a_search_left_without_test_is_made_again(tmp_path):
    job = job_of(tmp_path, ["mac_cal"])
    spec = next(trial.spec for trial in job.planned_trials if trial.spec.head)
    bank = Store(job.location.store).folder("banks", bank_key(spec, spec.head).identity)
    bank.mkdir(parents=True)
    for has_test, count in ((False, 1), (True, 0)):
        manifest = {"train_views": 1, "has_test": has_test, "version": VERSION}
        (bank / ARTIFACT_MANIFEST).write_bytes(seal(manifest))
        sums = Forecast(job.location)
        sums.add(find_needs(job))
        assert len(sums.banks) == count


LOOKS_ASKED = {
    "none": ((), 0, 0),
    "a set": (("noise",), 0, 1),
    "kinds": (("generated:fog,contrast", "noise"), 0, 3),
    "intervals": ((), 100, 1),
    "both": (("noise",), 200, 2),
}


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize(("shift", "bootstrap", "count"), sample(LOOKS_ASKED.values(), 3))
def test_extra_evaluations_are_counted_for_planned_trials_too(
    tmp_path, shift, bootstrap, count, is_done
):
    job = job_of(tmp_path, ["ce", "temperature"], shift, bootstrap)
    if is_done:
        finished(job)
    needs = find_needs(job)
    assert needs.evaluations == 2 * count
    assert (needs.done, needs.is_over) == ((2, count == 0) if is_done else (0, False))
    sums = Forecast(job.location)
    sums.add(needs)
    assert (NETWORKS in sums.seconds) != is_done
    assert ("nothing: 2 of 2 trials are done" in describe_run(job)) == needs.is_over


@pytest.mark.parametrize("dataset", sample(["cifar10", "cifar100", "svhn", "tiny_imagenet"], 1))
def test_a_forecast_reads_no_image_of_a_published_data_set(tmp_path, dataset):
    spec = TrialSpec.build(data={"dataset": dataset}, network={"backbone": "small_cnn"})
    rates = Rates(tmp_path, Store(tmp_path / "store"), None, CPU)
    assert rates.sizes(spec.data).train > 10_000
    assert rates.network(spec).seconds > 0


def test_a_failed_forecast_does_not_stop_a_run(tmp_path, monkeypatch):
    job = job_of(tmp_path, ["ce"])
    monkeypatch.setattr(Rates, "image_s", lambda *_: 1 / 0)
    plan = describe_run(job)
    assert "time     unknown: timing failed with ZeroDivisionError" in plan
    assert "1 of 1 trials, 1 network and 0 heads to train" in plan


@pytest.mark.parametrize(("seconds", "message"), [
    (0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"),
    (7200, "2 h"), (5400 * 4, "6 h"), (4e6, "1,111 h"),
])  # fmt: skip
def test_durations_are_rounded_to_readable_units(seconds, message):
    assert format_duration(seconds) == message


@pytest.mark.parametrize("name", sorted({*METHODS, *LADDERS}))
def test_explain_describes_every_method_and_ladder(name):
    for width in (60, 100):
        text = format_markdown(describe(name), width)
        lines = text.splitlines()
        long = [line for line in lines if len(line) > width and " " in line.strip()]
        assert not long
        assert "docs/pages/methods" not in text
        if name in METHODS:
            method = METHODS[name]
            assert method.url in "".join(text.split())  # one longer than the line is broken
            assert all(f"{method.kind}.{key} = " in text for key in list_settings(method.params))
            assert method.bibtex.strip()[:20] in text
        if name in LADDERS:
            assert all(rung.label in text for rung in LADDERS[name].rungs)


def test_explain_lists_the_readings_of_a_paper():
    assert "when q moves" in describe("mac_cal")
    assert "## Readings of the papers: Epoch kept" in describe("tst")


def test_an_unknown_name_is_refused_in_one_line():
    ended = here("explain", "mac_call")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "unknown method or ladder 'mac_call'; did you mean 'mac_cal'?" in ended.stderr


def test_a_forecast_names_what_is_unknown_and_adds_up_the_rest(tmp_path):
    sums = Forecast(job_of(tmp_path, ["ce"]).location)
    sums.seconds |= {NETWORKS: math.nan, HEADS: 8.0}
    assert _format_time(sums) == "unknown for networks, which were not measured; heads 8 s"
    sums.seconds |= {NETWORKS: 4.0}
    assert _format_time(sums) == "about 12 s of training = networks 4 s + heads 8 s"


@pytest.mark.parametrize(("gpus", "share", "count"), [(1, 1, 1), (1, 1 / 4, 4), (2, 1 / 2, 4)])
def test_trials_in_parallel_are_those_that_the_gpus_hold(tmp_path, monkeypatch, gpus, share, count):
    job = job_of(tmp_path, ["ce"])
    job = replace(job, location=replace(job.location, gpus=share))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(forecast, "count_cores", lambda: 16)
    assert find_needs(job).count_parallel(1) == count


@pytest.mark.parametrize(("address", "compiles"), [(None, True), (None, False), ("auto", False)])
def test_a_plan_says_where_auto_cannot_compile(address, compiles, tmp_path, monkeypatch):
    job = job_of(tmp_path, ["ce"])
    needs = find_needs(replace(job, location=replace(job.location, gpus=1, address=address)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H100")
    monkeypatch.setattr(summary, "can_compile", lambda: compiles)
    plan = _describe_execution(needs)
    is_told = address is None and not compiles
    assert ("not compiled, since Triton, gcc or the header Python.h is missing" in plan) == is_told
    assert ("steps are compiled" in plan) != is_told


def test_vanilla_is_plain_cross_entropy_in_a_comparison():
    request = build_request(CompareRequest, {"methods": ["vanilla", "temperature"]})
    vanilla, temperature = build_comparison(list(map(str, request.methods))).rungs
    assert (vanilla.label, vanilla.slots) == ("vanilla", {"network": {"method": "ce"}})
    assert temperature.slots == {"posthoc": {"method": "temperature"}}
    with pytest.raises(UserError, match="unknown method 'vanila'"):
        build_request(CompareRequest, {"methods": ["vanila"]})
