"""bfloat16: what is computed in it and what is not, and devices without it."""

import pytest
import torch
from torch import nn

from tests.support import CPU, here, sample
from tune_calib.data.splits import load_development
from tune_calib.engine.network import NetworkTrainer
from tune_calib.engine.predict import predict
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec

NETWORKS = [name for name in METHODS if METHODS[name].kind == "network"]
HAS_BF16 = bool(torch.cpu.get_capabilities().get("avx512_bf16"))
needs_bf16 = pytest.mark.skipif(not HAS_BF16, reason="this processor has no fast bfloat16")


def trainer(**network) -> NetworkTrainer:
    spec = TrialSpec.build(
        data={"train_fraction": 0.2},
        network={"epochs": 2, "batch_size": 64, "precision": "bf16", **network},
    )
    return NetworkTrainer(spec, load_development(spec.data, None), CPU)


@needs_bf16
@pytest.mark.parametrize("method", sample(NETWORKS, 6))
def test_every_method_trains_on_products_in_bfloat16_and_losses_in_float32(method):
    run = trainer(method=method)
    seen: dict[str, set[torch.dtype]] = {"maps": set(), "head": set(), "norm": set()}

    def note(name):
        return lambda module, given, made: seen[name].add(made.dtype)

    for module in run.network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(note("maps"))
        if isinstance(module, nn.BatchNorm2d):
            seen["norm"] |= {module.running_var.dtype, module.weight.dtype}
    run.network.head.register_forward_hook(note("head"))
    reports = list(run)
    assert len(reports) == 2
    assert seen["maps"] == {torch.bfloat16}
    assert seen["norm"] == {torch.float32}
    assert seen["head"] <= {torch.float32}
    assert all(p.dtype == torch.float32 for p in run.network.parameters())
    features, logits = predict(run.method, run.network, run.select.images, run.info)
    assert {features.dtype, logits.dtype} == {torch.float32}


@needs_bf16
@pytest.mark.parametrize("backbone", ["small_cnn", "resnet8"])
def test_a_bfloat16_network_is_near_the_float32_one(backbone):
    """Same weights: logits differ by the rounding of maps to 8 bits, and no more."""
    low, full = trainer(backbone=backbone), trainer(backbone=backbone, precision="fp32")
    full.network.load_state_dict(low.network.state_dict())
    given = [
        predict(run.method, run.network, run.select.images, run.info)[1] for run in (low, full)
    ]
    error = (given[0] - given[1]).abs().max() / given[1].std()
    assert 0 < float(error) < 0.1


@pytest.mark.parametrize(("precision", "gpus"), [("bf16", 0), ("tf32", 0), ("bf16", 1)])
def test_a_device_without_it_is_one_line_before_anything_starts(
    precision, gpus, monkeypatch, tmp_path
):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 5))
    out = tmp_path / "out"
    settings = ["--set", f"network.precision={precision}", "--gpus", gpus]
    ended = here("ablate", "mac_cal", *settings, "--out", out)
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert f"network.precision={precision} needs a GPU from Ampere on" in ended.stderr
    assert not out.exists()


@needs_bf16
def test_a_resumed_bfloat16_training_gives_the_same_digits():
    undisturbed, first, second = trainer(), trainer(), trainer()
    list(undisturbed)
    next(first)
    second.load_state(*first.state())
    list(second)
    expected, resumed = undisturbed.selected(), second.selected()
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)
