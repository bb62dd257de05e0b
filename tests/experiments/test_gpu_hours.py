"""Hours on a named GPU: a dry run of the shipped experiment file, without GPU and without data."""

import copy
import csv
import math
from itertools import product
from pathlib import Path

import pytest
import torch

from tests.data.archives import image_folder
from tests.docs.test_pages import blocks, page
from tests.support import here, sample, small_spec
from tune_calib.data.splits import Sizes, load_development, load_test, published_sizes
from tune_calib.documents import seal
from tune_calib.engine.store import VERSION, Store
from tune_calib.errors import UserError
from tune_calib.experiments.entries import plan_entries
from tune_calib.experiments.file import read_experiment_file
from tune_calib.experiments.forecast import rates as rates_module
from tune_calib.experiments.forecast.rates import UNKNOWN, Rates, build_plain, count_flops
from tune_calib.spec import gpus
from tune_calib.spec.gpus import GPUS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec

PAPER = Path(__file__).parents[2] / "docs/examples/paper.yaml"
with (Path(__file__).parents[2] / "analysis/published/published_results.csv").open() as _rows:
    PUBLISHED = {
        row["arch"]: float(row["value"])
        for row in csv.DictReader(_rows)
        if (row["method"], row["dataset"], row["metric"])
        == ("Vanilla", "cifar100", "train_seconds_a40")
    }
GPU = gpus.read_rates()["gpu_model"]  # the measured one
SMALL = """
out: OUT
datasets: [DATASET]
recipe: RECIPE
set: {network: {epochs: 2}}
entries: {a: {methods: [ce, mac_cal]}}
"""


def spec_of(method="ce", backbone="resnet8", **network) -> TrialSpec:
    network = {"backbone": backbone, "method": method, **network}
    return TrialSpec.build(data={"dataset": "cifar100"}, network=network)


def operations(**network) -> int:
    return count_flops(build_plain(spec_of(**network)))


def rates_on(name, tmp_path) -> Rates:
    return Rates(tmp_path, Store(tmp_path / "store"), None, torch.device("cuda"), GPUS[name])


@pytest.fixture
def file(tmp_path):
    def file(dataset="digits", recipe="quick", more=""):
        path = tmp_path / "experiment.yaml"
        text = SMALL.replace("OUT", str(tmp_path / "out")).replace("DATASET", dataset)
        path.write_text(text.replace("RECIPE", recipe) + more)
        return path

    return file


@pytest.mark.parametrize(
    ("name", "precision"), sample(list(product(GPUS, ["fp32", "tf32", "bf16"])), 6)
)
def test_each_gpu_has_a_rate_in_each_of_its_precisions(name, precision, tmp_path):
    gpu, rates = GPUS[name], rates_on(name, tmp_path)
    assert gpu.source.startswith("https://")
    assert all(gpu.is_named(device) for device in gpu.devices)
    assert [other for other in GPUS if GPUS[other].is_named(gpu.devices[0])] == [name]
    if precision in gpu.teraflops:
        found = rates.network(spec_of(precision=precision))
        # Never more than the peak, and float32 is the slowest.
        assert 352 * operations() / gpu.teraflops[precision] / 1e12 < found.seconds
        assert found.seconds <= rates.network(spec_of(precision="fp32")).seconds
    else:
        with pytest.raises(UserError, match=f"precision={precision} needs another `gpu_model`"):
            rates.network(spec_of(precision=precision))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_is_timed_on_a_device_or_cores_that_are_not_there(device, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(rates_module, "count_cores", lambda: 0)
    rates = Rates(tmp_path, Store(tmp_path / "store"), None, torch.device(device))
    spec = small_spec(method="mac_cal")
    assert rates.network(spec) == UNKNOWN
    assert math.isnan(rates.heads(spec, 4).seconds)


def test_a_method_of_two_passes_takes_twice_as_long(tmp_path):
    rates = rates_on("A40", tmp_path)
    once, twice = (rates.network(spec_of(name)).seconds for name in ("ce", "mit_a"))
    assert twice == pytest.approx(2 * once, rel=0.05)


def test_a_step_is_three_times_the_products_of_a_pass_but_for_the_first_layer():
    # ResNet-18 with a CIFAR stem: 0.5556 G products of two operations an image, and its first
    # convolution of 1.77 M needs no gradient of its images.
    counted = operations(backbone="resnet18", batch_size=4) / 4
    assert counted == pytest.approx(2 * (3 * 0.5556e9 - 1.77e6), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["resnet50", "resnet110", "wrn26_10", "densenet121"])
def test_the_papers_own_seconds_come_out_within_a_factor_of_one_and_a_half(backbone):
    # Their GPU is slow enough to be busy, as an H100 is only with captured steps.
    attained = GPUS["A40"].attained(backbone, "graph", "tf32")
    hours = 350 * 352 * operations(backbone=backbone) / attained.flops / PUBLISHED[backbone]
    assert abs(math.log(hours)) < math.log(1.5)


@pytest.mark.parametrize(
    ("execution", "images_per_second", "steps"),
    [
        ("compiled", 40, "compiled"),
        ("eager", 20, "eager"),
        ("compiled", 30, "compiled"),
        ("graph", 20, "captured"),
    ],
)
def test_steps_that_were_not_measured_count_as_simpler_ones(
    execution, images_per_second, steps, monkeypatch
):
    network = gpus.read_rates()["networks"]["resnet50"]
    for number, name in enumerate(["eager", "graph", "compiled"]):
        rate = 20 + 10 * number
        value = rate if rate <= images_per_second else None
        monkeypatch.setitem(network["images_per_second"][name], "bf16", value)
    attained = GPUS[GPU].attained("resnet50", execution, "bf16")
    assert attained.flops == pytest.approx(images_per_second * 1e9 * network["gflop"])
    assert attained.origin.endswith(f"like resnet50 on one {GPU} (bf16, at best {steps} steps)")


def test_a_network_that_was_not_measured_is_like_the_mean_of_those_that_were():
    names = gpus.read_rates()["networks"]
    shares = [gpus.find_share(name, "graph", "bf16")[0] for name in names]
    share, origin = gpus.find_share("resnet8", "graph", "bf16")
    assert min(shares) < share < max(shares)
    assert f"like {len(names)} other networks on one {GPU} (bf16, at best captured steps)" in origin


@pytest.fixture
def measured(monkeypatch):
    """Rates in one precision, as after a measurement that ended early."""

    def keep(precision):
        rates = copy.deepcopy(gpus.read_rates())
        for network in rates["networks"].values():
            for by_precision in network["images_per_second"].values():
                for name in ("fp32", "tf32", "bf16"):
                    if name != precision:
                        by_precision[name] = None
        monkeypatch.setattr(gpus, "read_rates", lambda: rates)
        return rates

    return keep


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("gpu", ["H100", "T4"])
def test_a_precision_that_was_not_measured_has_the_share_of_the_next_one(gpu, precision, measured):
    measured(precision)
    share = gpus.find_share("resnet50", "eager", precision)[0]
    attained = GPUS[gpu].attained("resnet50", "eager", "fp32")
    assert attained.flops == pytest.approx(1e12 * GPUS[gpu].teraflops["fp32"] * share)
    assert f" ({precision}, at best eager steps)" in attained.origin


def test_a_file_without_any_rate_is_refused_in_one_line(measured):
    rates = measured("none")
    with pytest.raises(UserError, match="has no rate of a network"):
        GPUS["H100"].attained("resnet50", "graph", "fp32")
    rates["head_step_s"] = {"1": {"eager": None, "graph": None}}
    with pytest.raises(UserError, match="has no step of heads"):
        gpus.find_head_step(1, "graph")


def test_a_step_of_heads_takes_as_long_as_that_of_the_next_larger_batch(monkeypatch):
    steps = {"1": {"eager": 0.002, "graph": 3e-4}, "40": {"eager": 0.002, "graph": 6e-4}}
    monkeypatch.setitem(gpus.read_rates(), "head_step_s", steps)
    times = [gpus.find_head_step(heads, "graph")[0] for heads in (1, 2, 40, 80)]
    assert times == [3e-4, 6e-4, 6e-4, 12e-4]
    assert gpus.find_head_step(5, "eager")[0] == 0.002


def test_the_rates_of_the_package_have_a_source_and_eager_steps_in_each_precision():
    rates = gpus.read_rates()
    assert GPUS[rates["gpu_model"]].is_named(rates["card"])
    assert rates["source"]
    assert rates["versions"]["torch"]
    for precision in ("fp32", "tf32", "bf16"):
        assert 0 < gpus.find_share("resnet8", "eager", precision)[0] < 1
    assert gpus.find_head_step(1, "eager")[0] > 0


@pytest.mark.slow
@pytest.mark.parametrize("backbone", gpus.read_rates()["networks"])
def test_the_operations_of_the_measured_networks_are_those_that_are_counted(backbone):
    counted = operations(backbone=backbone, batch_size=2) / 2e9
    assert gpus.read_rates()["networks"][backbone]["gflop"] == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize("slot", [
    {}, {"train_fraction": 0.3}, {"imbalance": 10}, {"imbalance": 1.5}, {"split": "whole"},
    {"label_noise": 0.2},
])  # fmt: skip
def test_sizes_without_files_are_those_of_the_files(slot):
    data = DataSlot(dataset="digits", **slot)
    cut, told = load_development(data, None), published_sizes(data)
    assert (told.select, told.calib, told.test) == (
        len(cut.select),
        len(cut.calib),
        len(load_test(data, None)),
    )
    # Published classes are taken as equally large, which those of digits are nearly.
    assert told.train == pytest.approx(len(cut.train), rel=0.15)


def test_cifar_is_cut_by_the_papers_rule():
    sizes = published_sizes(DataSlot(dataset="cifar100"))
    assert (sizes.train, sizes.select, sizes.calib, sizes.test) == (45000, 2500, 2500, 10000)
    without = published_sizes(DataSlot(dataset="cifar100", held_out_classes=list(range(40))))
    assert without == Sizes(train=27000, select=1500, calib=1500, test=6000)


@pytest.mark.parametrize("name", ["H100", "A40", "V100"])
def test_a_dry_run_for_a_gpu_needs_no_data_and_prints_recipe_and_source(file, name):
    ended = here("run", file("cifar100"), "--dry-run", "--gpu-model", name)
    assert ended.returncode == 0, ended.stderr
    assert f"time on one {name}: about" in ended.stdout
    assert GPUS[name].source in ended.stdout
    assert "s an epoch, not measured: " in ended.stdout
    assert "a: recipe quick (" in ended.stdout
    assert "from timing" not in ended.stdout
    assert not (file().parent / "out").exists()


@pytest.mark.parametrize("named", [True, False])
def test_networks_measured_on_the_gpu_win(file, named, tmp_path):
    path = file()
    (work,) = plan_entries(read_experiment_file(path))
    spec = work.run.planned_trials[0].spec
    other = spec.model_copy(update={"network": spec.network.model_copy(update={"seed": 7})})
    folder = tmp_path / "out/store/networks" / other.network_id
    folder.mkdir(parents=True)
    about = {
        "spec": other.canonical_json(),
        "history": [{}, {}],
        "train_s": 84.0,
        "device": "cuda",
        "threads": 3,
        "machine": {"gpu": "NVIDIA H200" if named else "NVIDIA A40"},
        "version": VERSION,
    }
    (folder / "manifest.json").write_bytes(seal(about))
    output = here("run", path, "--dry-run", "--gpu-model", "H200").stdout
    assert ("42 s an epoch, measured on H200, 1 in the store" in output) == named


@pytest.mark.parametrize(("arguments", "more", "message"), [
    (["--dry-run", "--gpu-model", "H10"], "", "unknown GPU 'H10'; did you mean 'H100'?"),
    (["--dry-run"], "gpu_model: H10\n", "gpu_model: unknown GPU 'H10'; did you mean 'H100'?"),
    (["--dry-run", "--gpu-model", "A100"], "", "did you mean 'A100-40GB' or 'A100-80GB'?"),
    (["--gpu-model", "H100"], "", "--dry-run"),
    (["--dry-run", "--gpu-model", "T4"], "", "precision=bf16 needs another"),
])  # fmt: skip
def test_a_mistake_is_one_line(file, arguments, more, message):
    path = file(more=more)
    if "T4" in arguments:
        path.write_text(path.read_text().replace("epochs: 2", "epochs: 2, precision: bf16"))
    ended = here("run", path, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_hours_of_a_data_set_without_a_published_size_are_refused_in_one_line(file, tmp_path):
    more = f"data_root: {image_folder(tmp_path / 'images')}\n"
    ended = here("run", file("imagefolder", "focal", more), "--dry-run", "--gpu-model", "H100")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "imagefolder has none; omit gpu_model" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


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
