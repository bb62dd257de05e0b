"""The share of a GPU that each trial gets with ``gpus=auto``, from a few steps taken on it."""

import gc
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from tune_calib.conformance.bench import build_trainer
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

MOST_MEMORY = 0.9  # part of a GPU's memory: images and changing batches need some more
MOST_TRIALS = 8  # on a GPU, since so many keep it busy


def choose_divisor(used: Iterable[int], memory: int, networks: int) -> int:
    """Return how many of the networks for a GPU share it; the training of each kind uses bytes."""
    by_memory = [int(MOST_MEMORY * memory / size) for size in used]
    return max(1, min(networks, MOST_TRIALS, *by_memory))


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
        kinds = tuple(dict.fromkeys(map(_shorten, trained)))
        used, memory, count = _measure_on_ray(location.address, kinds)
        gpus = 1 / choose_divisor(used, memory, math.ceil(networks / count))
        reason = f"{format_count(networks, 'network')} for {format_count(count, 'GPU')}, each with "
        reason += f"up to {max(used) / 1e9:.1f} of {memory / 1e9:.0f} GB"
    return replace(location, gpus=gpus, gpus_reason=f"gpus auto: {reason}")


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
) -> tuple[list[int], int, int]:
    from tune_calib.tuning.ray.session import ray_session, run_on_gpu

    # As plain values, since a node knows plug-ins only after the task has registered them.
    trials = [PlannedTrial(spec, rung=0, label="").plain() for spec in specs]
    used = [plugin.plain() for plugin in plugins.in_use()]
    with ray_session(address, [Resources(1, 1.0)], environment_of(specs)):
        report_progress(f"taking steps of {format_count(len(specs), 'network')} on a GPU")
        (sizes, memory), count = run_on_gpu(measure_networks, trials, used)
    return sizes, memory, count


def measure_networks(
    trials: Iterable[dict[str, Any]], used: Iterable[dict[str, Any]]
) -> tuple[list[int], int]:
    """Return the bytes that networks, given as in a job, take, and the memory of the GPU."""
    plugins.use(Plugin(**plain) for plain in used)
    device = torch.device("cuda")
    sizes = [measure_step(TrialSpec.build(**trial["spec"]), device) for trial in trials]
    return sizes, torch.cuda.mem_get_info(device)[1]


def measure_step(spec: TrialSpec, device: torch.device) -> int:
    """Train a network for a few steps; return the bytes that its process takes."""
    gc.collect()
    torch.cuda.empty_cache()  # of networks that were measured before
    torch.cuda.reset_peak_memory_stats(device)
    list(build_trainer(spec, device, steps=4))  # of which some are captured
    free, total = torch.cuda.mem_get_info(device)
    # The rest are the context, libraries and other processes.
    rest = total - free - torch.cuda.memory_reserved(device)
    return rest + torch.cuda.max_memory_reserved(device)
