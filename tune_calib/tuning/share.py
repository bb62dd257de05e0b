"""The share of a GPU that each trial gets with ``gpus=auto``, from epochs that are timed on it."""

import gc
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from tune_calib.conformance.gpu import build_trainer
from tune_calib.engine.machine import environment_of
from tune_calib.progress import report_progress
from tune_calib.spec import plugins
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.names import IN_PROCESS
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.trial import TrialSpec
from tune_calib.text import format_count
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.work.executor import Resources

STEPS = 32  # of an epoch that is timed

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
        use: its rate of operations as a share of that of a large matrix product in its precision.
    """

    memory: int
    use: float


def choose_divisor(costs: Iterable[StepCost], memory: int, networks: int) -> int:
    """Return how many networks share a GPU, at least one.

    Args:
        costs: of each kind of network.
        memory: of the GPU, in bytes.
        networks: number of networks to train for each GPU; a larger share would idle other GPUs.
    """
    divisors = [networks]
    for cost in costs:
        by_memory = MOST_MEMORY * memory / cost.memory
        by_use = MOST_USE / cost.use
        divisors.append(int(min(by_memory, by_use)))
    return max(1, min(divisors))


def resolve_share(
    location: RunLocation, specs: Iterable[TrialSpec], suggestions: int = 1
) -> RunLocation:
    """Return a location with the GPUs of a trial, and the reason; each suggestion has the specs."""
    trained = [spec for spec in specs if not spec.network.is_frozen]
    gpus, reason = 1.0, "no network is left to train"
    if location.address in (None, IN_PROCESS) and not torch.cuda.is_available():
        gpus, reason = 0.0, "this machine has no GPU"
    elif not location.uses_ray:
        reason = "one trial runs at a time"
    elif trained:
        networks = suggestions * len({spec.network_id for spec in trained})
        gpus, reason = _share_measured(location, trained, networks)
    return replace(location, gpus=gpus, gpus_reason=f"gpus auto: {reason}")


def _share_measured(
    location: RunLocation, specs: Sequence[TrialSpec], networks: int
) -> tuple[float, str]:
    """Measure networks as a Ray task; return the GPUs of a trial, and the reason."""
    kinds = tuple(dict.fromkeys(map(_shorten, specs)))
    costs, memory, count = _measure_on_ray(location.address, kinds)
    divisor = choose_divisor(costs, memory, math.ceil(networks / count))
    largest, use = max(cost.memory for cost in costs), max(cost.use for cost in costs)
    reason = f"{format_count(networks, 'network')} for {format_count(count, 'GPU')}, each with "
    reason += f"up to {largest / 1e9:.1f} of {memory / 1e9:.0f} GB and {use:.0%} of the rate of a "
    return 1 / divisor, f"{reason}matrix product"


def describe_mps() -> str:
    """Tell whether processes that share a GPU of this machine run concurrently on it."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))  # NVIDIA's default
    if (folder / "control").exists():
        return "concurrently, since NVIDIA's MPS is running"
    return "in turns, unless NVIDIA's MPS is started first (docs/pages/running.md)"


def _shorten(spec: TrialSpec) -> TrialSpec:
    """Return the spec of a training of two epochs, which is captured where the run's is."""
    execution = spec.network.execution
    if execution == "compiled":  # compilation takes minutes
        execution = "graph"
    # The images are random, and at a real rate the training might diverge.
    changed = {"seed": 0, "epochs": 2, "milestones": (), "lr": 1e-9, "execution": execution}
    network = spec.network.model_copy(update=changed)
    return spec.model_copy(update={"network": network, "head": None, "posthoc": None})


@cache  # entries of an experiment file often train the same networks
def _measure_on_ray(
    address: str | None, specs: tuple[TrialSpec, ...]
) -> tuple[list[StepCost], int, int]:
    """Return the costs of networks, and the memory and number of GPUs."""
    from tune_calib.tuning.ray.session import ray_session, run_on_gpu

    # As plain values, since a node knows plug-ins only after the task has registered them.
    trials = [PlannedTrial(spec, rung=0, label="").plain() for spec in specs]
    used = [plugin.plain() for plugin in plugins.in_use()]
    with ray_session(address, needs=[Resources(1, 1.0)], everywhere=environment_of(specs)):
        report_progress(f"timing steps of {format_count(len(specs), 'network')} on a GPU")
        (costs, memory), count = run_on_gpu(measure_networks, trials, used)
    return costs, memory, count


def measure_networks(
    trials: Iterable[dict[str, Any]], used: Iterable[dict[str, Any]]
) -> tuple[list[StepCost], int]:
    """Return the costs of networks and the memory of the GPU, given as in a job."""
    plugins.use(Plugin(**plain) for plain in used)
    device = torch.device("cuda")
    costs = [measure_step(TrialSpec.build(**trial["spec"]), device) for trial in trials]
    return costs, torch.cuda.mem_get_info(device)[1]


def measure_step(spec: TrialSpec, device: torch.device) -> StepCost:
    """Train a network for two short epochs on random images; time the second one, repeated."""
    gc.collect()
    torch.cuda.empty_cache()  # of networks that were measured before
    torch.cuda.reset_peak_memory_stats(device)
    eager = spec.network.model_copy(update={"execution": "eager", "epochs": 1})
    with FlopCounterMode(display=False) as counter:
        next(build_trainer(spec.model_copy(update={"network": eager}), device, steps=1))
    trainer = build_trainer(spec, device, STEPS)
    list(trainer)
    trainer.epoch -= 1  # again, because PLP captures a step in each epoch
    step_s = _time(lambda: next(trainer), device) / STEPS
    free, total = torch.cuda.mem_get_info(device)
    # The rest are the context, libraries and other processes.
    rest = total - free - torch.cuda.memory_reserved(device)
    memory = rest + torch.cuda.max_memory_reserved(device)
    # In the precision of the training, which has set torch's switches.
    dtype = torch.bfloat16 if spec.network.precision == "bf16" else torch.float32
    factors = torch.ones(2, PRODUCT_SIZE, PRODUCT_SIZE, dtype=dtype, device=device)
    torch.mm(*factors)  # the first product also loads the library
    product_s = _time(lambda: torch.mm(*factors), device)
    use = counter.get_total_flops() / step_s / (2 * PRODUCT_SIZE**3 / product_s)
    return StepCost(memory, use)


def _time(work: Callable[[], Any], device: torch.device) -> float:
    torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    torch.cuda.synchronize(device)
    return time.perf_counter() - start
