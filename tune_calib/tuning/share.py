"""The share of a GPU that each trial gets with ``gpus=auto``, from epochs that are timed on it."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from tune_calib.console import echo
from tune_calib.data.base import Split
from tune_calib.data.splits import Development
from tune_calib.engine.network import NetworkTrainer
from tune_calib.errors import UserError
from tune_calib.progress import report_progress
from tune_calib.spec.trial import TrialSpec
from tune_calib.text import format_count
from tune_calib.tuning.folder import RunLocation

STEPS = 8  # of an epoch that is timed

MOST_MEMORY = 0.9
"""Part of a GPU's memory that is planned: images and changing batches need some more."""

MOST_USE = 0.36
"""Share of the rate of a matrix product at which a GPU counts as busy: the highest that a captured
training step reached on an H100 (WRN-26-10 in bf16, docs/pages/speed.md)."""

PRODUCT_SIZE = 8192  # rows and columns of the matrices whose product is timed


@dataclass(frozen=True)
class StepCost:
    """What the training of one network takes of a GPU.

    Args:
        memory: bytes of its process, including the CUDA context.
        use: its rate of operations as a share of that of a large matrix product.
    """

    memory: int
    use: float


def choose_divisor(costs: Iterable[StepCost], memory: int) -> int:
    """Return how many networks share a GPU with so many bytes of memory, at least one."""
    divisors = []
    for cost in costs:
        by_memory = MOST_MEMORY * memory / cost.memory
        by_use = MOST_USE / cost.use
        divisors.append(int(min(by_memory, by_use)))
    return max(1, min(divisors, default=1))


def resolve_share(location: RunLocation, specs: Iterable[TrialSpec]) -> RunLocation:
    """Return a location with the share of a GPU that its trials get, and print the reason."""
    if location.address is not None:
        raise UserError(
            "`gpus` auto times a step on a GPU of this machine; with `address`, give 1 or 1/k"
        )
    if not torch.cuda.is_available():
        echo("gpus auto: no GPU on this machine, so the trials use its processor", err=True)
        return replace(location, gpus=0.0)
    device = torch.device("cuda")
    costs: list[StepCost] = []
    for spec in dict.fromkeys(map(_shorten, specs)):
        if not spec.network.is_frozen:
            report_progress(f"timing a step of {spec.network.backbone} with {spec.network.method}")
            costs.append(measure_step(spec, device))
    memory = torch.cuda.mem_get_info(device)[1]
    divisor = choose_divisor(costs, memory)
    reason = "no network is trained"
    if costs:
        largest = max(cost.memory for cost in costs) / 1e9
        use = max(cost.use for cost in costs)
        reason = f"one takes up to {largest:.1f} of {memory / 1e9:.0f} GB and {use:.0%} of the rate"
        reason += " of a matrix product"
    echo(f"gpus auto: {format_count(divisor, 'trial')} on each GPU, since {reason}", err=True)
    return replace(location, gpus=1 / divisor)


def describe_mps() -> str:
    """Tell whether processes that share a GPU of this machine run concurrently on it."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))  # NVIDIA's default
    if (folder / "control").exists():
        return "concurrently, since NVIDIA's MPS is running"
    return "in turns, unless NVIDIA's MPS is started first (docs/pages/running.md)"


def _shorten(spec: TrialSpec) -> TrialSpec:
    """Return the spec of a training of two epochs, which is captured where the run's is."""
    execution = spec.network.execution
    if execution in ("auto", "compiled"):  # compilation takes minutes
        execution = "auto"
    # The images are random, and at a real rate the training might diverge.
    changed = {"seed": 0, "epochs": 2, "milestones": (), "lr": 1e-9, "execution": execution}
    if spec.network.is_frozen:
        changed = {}
    network = spec.network.model_copy(update=changed)
    return spec.model_copy(update={"network": network, "head": None, "posthoc": None})


@cache
def measure_step(spec: TrialSpec, device: torch.device) -> StepCost:
    """Train a network for two short epochs on random images, of which the second is timed."""
    free, total = torch.cuda.mem_get_info(device)  # less the context and other processes
    torch.cuda.reset_peak_memory_stats(device)
    eager = spec.network.model_copy(update={"execution": "eager", "epochs": 1})
    with FlopCounterMode(display=False) as counter:
        next(_train(spec.model_copy(update={"network": eager}), device, steps=1))
    trainer = _train(spec, device, STEPS)
    next(trainer)
    step_s = _time(lambda: next(trainer), device) / STEPS
    memory = total - free + torch.cuda.max_memory_reserved(device)
    factors = torch.ones(2, PRODUCT_SIZE, PRODUCT_SIZE, dtype=torch.float16, device=device)
    product_s = _time(lambda: torch.mm(*factors), device)
    use = counter.get_total_flops() / step_s / (2 * PRODUCT_SIZE**3 / product_s)
    return StepCost(memory, use)


def _time(work: Callable[[], Any], device: torch.device) -> float:
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _train(spec: TrialSpec, device: torch.device, steps: int) -> NetworkTrainer:
    info = spec.data.info
    shape = (spec.network.batch_size * steps, info.channels, info.size, info.size)
    images = torch.randint(256, shape, dtype=torch.uint8)
    indices = torch.arange(len(images))
    train = Split(images, indices % info.classes, indices)
    few = Split(images[:1], train.labels[:1], indices[:1])
    return NetworkTrainer(spec, Development(train, few, few), device)
