"""The share of a GPU that each trial gets with ``gpus=auto``, from a few steps taken on it."""

import gc
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import torch

from tune_calib.conformance.bench import build_trainer
from tune_calib.engine.machine import environment_of
from tune_calib.errors import UserError, find_cause
from tune_calib.progress import report_progress
from tune_calib.spec import plugins
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.names import IN_PROCESS
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.trial import TrialSpec
from tune_calib.text import format_count
from tune_calib.tuning.folder import RunLocation

MOST_MEMORY = 0.9  # part of a GPU's memory: images and changing batches need some more
MOST_TRIALS = 8  # on a GPU, since so many keep it busy


def choose_divisor(used: Iterable[int], memory: int, networks: int) -> int:
    """Return how many networks share a GPU, given the bytes that training each kind takes."""
    by_memory = [int(MOST_MEMORY * memory / size) for size in used]
    return max(1, min(networks, MOST_TRIALS, *by_memory))


def resolve_share(
    location: RunLocation, specs: Iterable[TrialSpec], suggestions: int = 1
) -> RunLocation:
    """Return a location with the GPUs of a trial, and the reason; each suggestion has the specs."""
    trained = [spec for spec in specs if not (spec.network.is_frozen or spec.members)]
    gpus, reason = 1.0, "no network is left to train"
    if location.address in (None, IN_PROCESS) and not torch.cuda.is_available():
        gpus, reason = 0.0, "this machine has no GPU"
    elif not location.uses_ray:
        reason = "one trial runs at a time"
    elif location.address is not None:
        reason = "the GPUs of a cluster are not measured"
    elif trained:
        networks = suggestions * len({spec.network_id for spec in trained})
        kinds = tuple(dict.fromkeys(map(_shorten, trained)))
        (used, memory), count = _measure_elsewhere(kinds), torch.cuda.device_count()
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
def _measure_elsewhere(specs: tuple[TrialSpec, ...]) -> tuple[list[int], int]:
    """Measure networks in another process, since this one would go on occupying the GPU."""
    report_progress(f"taking steps of {format_count(len(specs), 'network')} on a GPU")
    # As plain values, since the process knows plug-ins only after it has registered them.
    trials = [PlannedTrial(spec, rung=0, label="").plain()["spec"] for spec in specs]
    arguments = json.dumps([trials, [plugin.plain() for plugin in plugins.in_use()]])
    command = f"from {__name__} import measure_networks; measure_networks({arguments!r})"
    ended = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, **environment_of(specs)},
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        reason = find_cause(ended.stderr)
        raise UserError(f"the steps of `gpus` auto failed: {reason}; give `gpus` 1 or 1/k")
    sizes, memory = json.loads(ended.stdout.splitlines()[-1])
    return sizes, memory


def measure_networks(arguments: str) -> None:
    """Print the bytes that each network takes, and the memory of the GPU."""
    specs, used = json.loads(arguments)
    plugins.use(Plugin(**plain) for plain in used)
    device = torch.device("cuda")
    sizes = [measure_step(TrialSpec.build(**spec), device) for spec in specs]
    sys.stdout.write(f"{json.dumps([sizes, torch.cuda.mem_get_info(device)[1]])}\n")


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
