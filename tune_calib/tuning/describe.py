"""Describe what a run is about to do: its settings, the work that is left, and its time."""

import math

import torch

from tune_calib.console import entries
from tune_calib.data.splits import load_development, published_sizes
from tune_calib.engine.execution import can_compile
from tune_calib.engine.machine import count_cores
from tune_calib.files.store import Store
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.trial import canonical_json
from tune_calib.text import format_count
from tune_calib.tuning.caption import describe_setting
from tune_calib.tuning.forecast import Forecast, count_parallel, find_needs
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.search.run import SearchRun
from tune_calib.tuning.share import describe_mps
from tune_calib.tuning.work.jobs import RemainingWork

# With fewer samples in calib, the standard error of its accuracy may be above 5 points, which is
# more than the ECE of most networks before any calibration.
FEW_CALIB = 100


def describe_run(run: LadderRun | SearchRun, work: RemainingWork, is_dry: bool = False) -> str:
    """Describe the settings, work and time of a run; a dry one with the origin of its time."""
    needs, sums = find_needs(run, work), Forecast(run.location)
    trained = sums.add(run, needs)
    if isinstance(run, LadderRun):
        title, searched = run.ladder.title, ""
        setting = run.new_manifest.setting
    else:
        definition = run.definition
        title = f"search of {definition.method} by {definition.sampler}: "
        title += definition.objective.describe_rule()
        searched = ", ".join(definition.candidates.space.settings)
        setting = describe_setting(run.planned_trials, None, run.resolved)
    unit = "suggestions" if run.is_search else "trials"
    left = f"nothing: {needs.done} of {needs.planned} {unit} are done"
    if not needs.is_over:
        left = f"{(needs.planned or 0) - needs.done} of {needs.planned} {unit}, "
        left += f"{format_count(trained, 'network')} and {format_count(needs.heads, 'head')} to "
        left += "train"
        if needs.evaluations:
            left += f", {format_count(needs.evaluations, 'extra evaluation')}"
    lines = {
        "setting": setting,
        "searched": searched,
        "images": "" if needs.is_over else describe_images(run, is_elsewhere=False),
        "seeds": _format_seeds(run.resolved),
        "machine": describe_machine(run),
        "execution": _describe_execution(run),
        "results": f"{run.location.out}; artifacts in {run.location.store}",
        "to do": left,
        "time": "" if needs.is_over else format_time(sums),
    }
    block = entries({name: line for name, line in lines.items() if line}, margin="  ")
    text = f"{run.location.out}: {title}\n{block}"
    return "\n".join([text, *sums.sources.values()]) if is_dry else text


def describe_images(run: LadderRun | SearchRun, is_elsewhere: bool) -> str:
    """Describe the images and sizes of the splits, and warn of repeated or too few images."""
    texts: dict[str, None] = {}
    # By content, since the groups of an import have no hash.
    slots = {canonical_json(trial.spec.data): trial.spec.data for trial in run.planned_trials}
    for slot in slots.values():
        info, remark = slot.info, ""
        if slot.import_record is not None:
            calib = slot.import_record.calib
        # For a named GPU, which may be elsewhere, data without published sizes is refused.
        elif is_elsewhere or info.published is not None:
            sizes = published_sizes(slot)
            train, select, calib = sizes.train, sizes.select, sizes.calib
        else:
            # A plan writes nothing, so the cache of images is used only if it exists.
            cache = Store(run.location.store).images
            development = load_development(
                slot, run.location.data_root, cache if cache.exists() else None
            )
            train, select = len(development.train), len(development.select)
            calib, remark = len(development.calib), development.remark
        if slot.import_record is None:
            text = f"{info.classes} classes; train {train}, select {select}, calib {calib} images "
            text += f"of {info.size}x{info.size} {'grey' if info.channels == 1 else 'RGB'} pixels"
            texts[text] = None
        if remark:
            texts[f"warning: {remark}"] = None
        if calib < FEW_CALIB and slot.calib_size is None:
            text = f"warning: calib has only {calib} samples, and the accuracy to which post-hoc "
            text += "methods adjust the confidence has a standard error of up to "
            texts[f"{text}{50 / math.sqrt(calib):.0f} points; give it more samples"] = None
    return "; ".join(texts)


def _format_seeds(request: ResolvedRequest) -> str:
    seeds = request.seeds
    parts = [format_count(len(seeds.network), "network seed")]
    if seeds.is_paired:
        parts[0] = format_count(len(seeds.network), "seed")
    else:
        parts.append(f"{format_count(len(seeds.head), 'head seed')} on each")
    if request.split_seeds:
        parts.append(format_count(len(request.split_seeds), "draw of the splits"))
    if request.calib_sizes:
        parts.append(f"calib of {', '.join(map(str, request.calib_sizes))} and all samples")
    return "; ".join(parts)


def describe_machine(run: LadderRun | SearchRun) -> str:
    """Describe this machine, and how many trials run on it in parallel."""
    location, gpus = run.location, torch.cuda.device_count()
    threads = max(trial.spec.network.threads for trial in run.planned_trials)
    text = f"{format_count(count_cores(), 'CPU core')}, "
    text += f"{format_count(gpus, 'GPU') if gpus else 'no GPU'}; "
    text += f"{format_count(threads, 'thread')} per network"
    if location.gpus:
        at_once = round(1 / location.gpus)
        text += f", {format_count(at_once, 'trial')} on each GPU"
        if at_once > 1 and location.address is None:
            text += f", {describe_mps()}"
    elif gpus:
        text += ", no GPU requested"
    if location.gpus_reason:
        text += f" ({location.gpus_reason})"
    if not location.uses_ray:
        return f"{text}, one trial after the other in this process"
    if location.address:
        return f"{text}; runs on the Ray cluster at {location.address}"
    return f"{text}, up to {count_parallel(run, threads)} in parallel"


def _describe_execution(run: LadderRun | SearchRun) -> str:
    """Describe what keeps steps on the GPUs of this machine from being compiled."""
    is_here = run.location.gpus and run.location.address is None and torch.cuda.is_available()
    is_chosen = "auto" in {trial.spec.network.execution for trial in run.planned_trials}
    if not is_here or not is_chosen or can_compile():
        return ""
    return "not compiled: Triton, gcc or the header Python.h is missing"


def format_time(sums: Forecast) -> str:
    """Format the forecast of the time of training, with what was not measured."""
    unknown = [name for name, seconds in sums.seconds.items() if math.isnan(seconds)]
    parts = []
    for name, seconds in sums.seconds.items():
        if name not in unknown:
            parts.append(f"{name} {format_duration(seconds)}")
    text = " + ".join(parts) or "nothing is trained"
    if unknown:
        reason = f"hours unknown for {' and '.join(unknown)}, which were not measured"
        return f"{reason}; {text}" if parts else reason
    if not parts:
        return text
    return f"about {format_duration(sum(sums.seconds.values()))} of training = {text}"


def format_duration(seconds: float) -> str:
    """Format a time, e.g. as ``98 s``, ``12 min`` or ``1.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.2g} h" if hours < 10 else f"{hours:,.0f} h"
