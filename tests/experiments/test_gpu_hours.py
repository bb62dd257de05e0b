"""Hours on a named GPU: a dry run of the shipped experiment file, without GPU and without data."""

import csv
import math
from pathlib import Path

import pytest

from tests.docs.test_pages import blocks, page
from tests.support import here
from tune_calib.data.splits import Sizes, load_development, load_test, published_sizes
from tune_calib.errors import UserError
from tune_calib.experiments.entries import plan_entries
from tune_calib.experiments.file import read_experiment_file
from tune_calib.results.tables import write_results
from tune_calib.spec import gpus
from tune_calib.spec.gpus import GPUS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.tuning.folder import Provenance
from tune_calib.tuning.work.worker import TrialResult, trial_row

PAPER = Path(__file__).parents[2] / "docs/examples/paper.yaml"
with (Path(__file__).parents[2] / "analysis/published/published_results.csv").open() as _rows:
    PUBLISHED = {
        row["arch"]: float(row["value"])
        for row in csv.DictReader(_rows)
        if (row["method"], row["dataset"], row["metric"])
        == ("Vanilla", "cifar100", "train_seconds_a40")
    }
SMALL = """
out: OUT
datasets: [DATASET]
recipe: RECIPE
set: {network: {epochs: 2}}
entries: {a: {methods: [ce, mac_cal]}}
"""


@pytest.fixture
def file(tmp_path):
    def file(dataset="digits", recipe="quick", more=""):
        path = tmp_path / "experiment.yaml"
        text = SMALL.replace("OUT", str(tmp_path / "out")).replace("DATASET", dataset)
        path.write_text(text.replace("RECIPE", recipe) + more)
        return path

    return file


@pytest.mark.parametrize("name", ["H100", "A40", "V100"])
def test_each_gpu_has_a_source_and_rates_in_proportion_to_its_peak(name):
    gpu = GPUS[name]
    assert gpu.source.startswith("https://")
    assert [other for other in GPUS if GPUS[other].is_named(gpu.devices[0])] == [name]
    image_s, origin = gpu.find_image_s("resnet50", "fp32", False)
    rate = gpus.read_rates()["networks"]["resnet50"]["images_per_second"]["eager"]["fp32"]
    share = gpu.teraflops["fp32"] / GPUS["H100"].teraflops["fp32"]
    assert image_s == pytest.approx(1 / rate / share)
    assert origin.endswith("the rate of one H100 (fp32, eager)")


def test_rates_that_were_not_measured_are_unknown_or_those_of_simpler_steps():
    assert GPUS["H100"].find_image_s("resnet8", "bf16", True) is None
    assert GPUS["H100"].find_image_s("wrn26_10", "fp32", True) is None
    _, origin = GPUS["H100"].find_image_s("wrn26_10", "bf16", True)
    assert origin.endswith("(bf16, captured)")
    with pytest.raises(UserError, match="precision=bf16 needs another `gpu_model`"):
        GPUS["T4"].find_image_s("resnet50", "bf16", False)


@pytest.mark.parametrize("backbone", ["resnet50", "resnet110", "wrn26_10", "densenet121"])
def test_the_papers_own_seconds_come_out_within_a_factor_of_one_and_a_half(backbone):
    # Their GPU is slow enough to be busy, as an H100 is only with captured steps.
    image_s, _ = GPUS["A40"].find_image_s(backbone, "tf32", True)
    assert abs(math.log(350 * 45000 * image_s / PUBLISHED[backbone])) < math.log(1.5)


def test_a_step_of_heads_takes_as_long_as_that_of_the_next_larger_batch(monkeypatch):
    steps = {"1": {"eager": 0.002, "graph": 3e-4}, "40": {"eager": 0.002, "graph": 6e-4}}
    monkeypatch.setitem(gpus.read_rates(), "head_step_s", steps)
    times = [gpus.find_head_step(heads, True)[0] for heads in (1, 2, 40, 80)]
    assert times == [3e-4, 6e-4, 6e-4, 12e-4]
    assert gpus.find_head_step(5, False)[0] == 0.002


@pytest.mark.parametrize("slot", [{"train_fraction": 0.3}, {"imbalance": 10}, {"split": "whole"}])
def test_sizes_without_files_are_those_of_the_files(slot):
    data = DataSlot(dataset="digits", **slot)
    cut, sizes = load_development(data, None), published_sizes(data)
    assert (sizes.select, sizes.calib, sizes.test) == (
        len(cut.select),
        len(cut.calib),
        len(load_test(data, None)),
    )
    # Published classes are taken as equally large, which those of digits are nearly.
    assert sizes.train == pytest.approx(len(cut.train), rel=0.15)


def test_cifar_is_cut_by_the_papers_rule():
    sizes = published_sizes(DataSlot(dataset="cifar100"))
    assert (sizes.train, sizes.select, sizes.calib, sizes.test) == (45000, 2500, 2500, 10000)
    without = published_sizes(DataSlot(dataset="cifar100", held_out_classes=list(range(40))))
    assert without == Sizes(train=27000, select=1500, calib=1500, test=6000)


def test_a_dry_run_for_a_gpu_needs_no_data_and_names_what_is_unknown(file):
    more = "backbones: [resnet8, resnet18]\n"
    ended = here("run", file("cifar100", "focal", more), "--dry-run", "--gpu-model", "A40")
    assert ended.returncode == 0, ended.stderr
    text = " ".join(ended.stdout.split())
    assert "time on one A40: hours unknown for networks, which were not measured; heads" in text
    assert "resnet8 on cifar100: unknown: not measured" in text
    assert "times the rate of one H100 (fp32, eager)" in text
    assert GPUS["A40"].source in "".join(ended.stdout.split())
    assert not (file().parent / "out").exists()


@pytest.mark.parametrize("gpu", ["NVIDIA H200", "NVIDIA A40"])
def test_networks_measured_on_the_gpu_win(file, gpu):
    path = file()
    (plan, *_) = plan_entries(read_experiment_file(path))
    trial = next(trial for trial in plan.run.planned_trials if trial.spec.head is None)
    provenance = Provenance(out=str(plan.run.location.out), store="store", device="cuda")
    measured = {"wall_s": 90.0, "population": 1, "actor_resets": 0, "deterministic": True}
    row = trial_row(trial, TrialResult("done", 1, [], own_s=84.0), provenance, measured)
    write_results(plan.run.location.out, "all", {"trials": [{**row, "gpu": gpu}]})
    output = here("run", path, "--dry-run", "--gpu-model", "H200").stdout
    assert ("42 s an epoch, earlier rows in" in output) == (gpu == "NVIDIA H200")


def test_the_shipped_file_is_table_1():
    works = plan_entries(read_experiment_file(PAPER), needs_data=False)
    backbones = {work.run.resolved.overrides["network"]["backbone"] for work in works}
    assert backbones == set(PUBLISHED)
    for work in works:
        trials = work.run.planned_trials
        assert len(trials) == 16
        assert {trial.spec.network.epochs for trial in trials} == {350}
    section = page("experiment-files").split("## A named GPU")[1]
    assert "table1-cifar100-densenet121" in blocks(section)[0]
    assert "<!-- example: paper.yaml -->" in section
