"""Describe a planned run: settings, remaining work and time."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from analysis.compare.hypotheses import describe_blocks
from analysis.tables.table import table_of
from tune_calib.console import Prose, Text, echo, entries
from tune_calib.engine.execution import LEAST_COMPILED, can_compile
from tune_calib.engine.self_check import list_refusals
from tune_calib.experiments.entries import EntryRun
from tune_calib.experiments.file import ReadFile
from tune_calib.experiments.forecast.forecast import Forecast, Needs, find_needs
from tune_calib.paths import AnyPath
from tune_calib.progress import count_progress, report_progress
from tune_calib.spec.gpus import GPUS, Gpu
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import IN_PROCESS
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.text import format_count, format_yaml
from tune_calib.tuning.caption import (
    describe_heads,
    describe_networks,
    describe_set,
    describe_trials_data,
    is_trained,
)
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.run import AnyRun
from tune_calib.tuning.search.run import SearchRun
from tune_calib.tuning.share import describe_mps
from tune_calib.tuning.tuned import list_runs
from tune_calib.tuning.work.executor import find_cluster

NOTHING = "this is a dry run; no trial was started"
SPLITS = ("train", "select", "calib", "test")
# With fewer samples in calib, the standard error of its accuracy may be above 5 points, which is
# more than the ECE of most networks before any calibration.
FEW_CALIB = 100
TITLES = ["folder", "planned", "done", "networks to train", "heads to train", "extra evaluations"]


def print_settings(run: AnyRun) -> None:
    """Print the settings of a run and its expected time on stderr."""
    report_progress("estimating how long it will take")
    echo(describe_run(run), err=True)


def describe_run(run: AnyRun, is_dry: bool = False) -> str:
    """Describe the settings, work and time of a run; a dry one with disk space and rates."""
    needs, sums = find_needs(run), Forecast(run.location)
    trained, notes = len(needs.networks), dict[str, str]()
    try:
        trained = sums.add(needs)
        notes["images"] = describe_images(needs, sums)
        notes["warning"] = describe_warnings(needs, sums)
        time = _format_time(sums)
    except Exception as error:  # a forecast stops no run: if a trial fails, it reports the error
        if is_dry:
            raise
        time = f"unknown: timing failed with {type(error).__name__}"
    lines = [_describe(needs, trained, notes, time=time)]
    if is_dry:
        lines += [*_list_blocks([run]), *sums.sources.values(), NOTHING]
    return "\n".join(lines)


def _list_blocks(runs: Sequence[AnyRun]) -> list[str]:
    """Describe the blocks of tests over the runs of each ladder or comparison of several rungs."""
    blocks: Counter[str] = Counter()
    methods: dict[str, int] = {}
    for run in runs:
        if isinstance(run, LadderRun):
            blocks[run.name] += run.new_manifest.blocks
            methods[run.name] = len({trial.rung for trial in run.planned_trials})
    lines = []
    for name, count in methods.items():
        if count > 1:
            lines.append(f"tests of {name}: {describe_blocks(blocks[name], count)}")
    return lines


def describe_dry_runs(file: ReadFile, planned: Sequence[EntryRun]) -> Text:
    """Describe the planned runs of an experiment file, their disk space and time."""
    gpu = GPUS[file.content.gpu_model] if file.content.gpu_model else None
    return _describe_entries(f"{file.name} in {file.out}", planned, file.out, gpu)


def describe_tuned(run: AnyRun) -> Text:
    """Describe the searches of a tuned comparison and the comparison as a dry run."""
    out = run.location.out
    return _describe_entries(str(out), [EntryRun(("entries", out.name), run)], out, None)


def _describe_entries(
    subject: str, entries: Sequence[EntryRun], out: AnyPath, gpu: Gpu | None
) -> Text:
    planned: list[EntryRun] = []
    for entry in entries:
        planned += [replace(entry, run=run) for run in list_runs(entry.run)]
    sums = Forecast(replace(planned[0].run.location, out=out), gpu)
    rows, trained = [], 0
    names: dict[str, dict[str, None]] = {}  # of the entries that a text describes
    for entry in count_progress("estimating the time of entries", planned, len(planned)):
        needs = find_needs(entry.run, entry.hours)
        networks = sums.add(needs)
        trained += networks
        row: list[Any] = [entry.name, needs.planned, needs.done, networks, needs.heads]
        row.append(needs.evaluations)
        if needs.planned is None:
            row[1], row[4] = f"{needs.hours:.3g} h more", "unknown"
        if needs.evaluations is None:  # files of their shift sets are missing
            row[5] = "unknown"
        rows.append(row)
        resolved = entry.run.resolved
        texts = [describe_images(needs, sums), _format_recipe(resolved), describe_set(resolved)]
        if warning := describe_warnings(needs, sums):
            texts.append(f"warning: {warning}")
        if gpu is None:
            texts.append(_describe_machine(needs))
        for text in filter(None, texts):
            names.setdefault(text, {})[entry.entry] = None
    lines = []
    for text, described in names.items():
        lines.append(f"{', '.join(described)}: {text}")
    lines.append(f"networks: {trained} to train, {len(sums.in_store)} already in {sums.store.root}")
    lines += _list_blocks([entry.run for entry in planned])
    if gpu is None:
        lines += [f"time on this machine: {_format_time(sums)}", *sums.sources.values()]
        needs_gpu = any(entry.run.location.gpus for entry in planned)
        if needs_gpu and not torch.cuda.is_available():
            lines.append(f"for the hours on a GPU, name it by `gpu_model`: {', '.join(GPUS)}")
    else:
        lines += [f"time on one {gpu.name}: {_format_time(sums)}", *sums.sources.values()]
        lines.append(f"  peak rates of the {gpu.name}: {gpu.source}")
    return Text([f"{subject}; {NOTHING}", table_of(TITLES, rows), "", *map(Prose, lines)])


def describe_images(needs: Needs, sums: Forecast) -> str:
    """Describe the classes, the sizes of the splits and the images; return "" for imported data."""
    texts: dict[str, None] = {}
    for trial in needs.trials:
        slot = trial.spec.data
        if needs.is_over or slot.imported is not None:
            continue
        info, sizes = slot.info, sums.rates(needs).sizes(slot)
        counts = ", ".join(f"{name} {getattr(sizes, name)}" for name in SPLITS)
        stored = info.stored or info.size
        color = "grey" if info.channels == 1 else "RGB"
        text = f"{info.classes} classes; {counts} images of {stored}x{stored} {color} pixels"
        if info.size < stored:
            text += f" (crops of {info.size}x{info.size})"
        texts[text] = None
    return " or ".join(texts)


def describe_warnings(needs: Needs, sums: Forecast) -> str:
    """Describe equal images and splits calib that are too small; return "" if there are none."""
    texts: dict[str, None] = {}
    for trial in needs.trials:
        if needs.is_over:
            continue
        slot = trial.spec.data
        sizes = sums.rates(needs).sizes(slot)
        if sizes.remark:
            texts[sizes.remark] = None
        if sizes.calib < FEW_CALIB and slot.calib_size is None:
            text = f"calib has only {sizes.calib} samples, and the accuracy to which post-hoc "
            text += "methods adjust the confidence has a standard error of up to "
            texts[f"{text}{50 / math.sqrt(sizes.calib):.0f} points; give it more samples"] = None
    return "; ".join(texts)


def _describe(needs: Needs, trained: int, notes: Mapping[str, str], time: str) -> str:
    run, trials, request = needs.run, needs.trials, needs.run.resolved
    if isinstance(run, LadderRun):
        title, head_recipe, searched = run.ladder.title, run.ladder.head_recipe, ""
    else:
        assert isinstance(run, SearchRun)
        definition, head_recipe = run.definition, None
        title = f"search of {definition.method} by {definition.sampler}: "
        title += definition.objective.describe_rule()
        searched = ", ".join(definition.candidates.space.settings)
    networks = {t.spec.network.augment for t in trials if not t.spec.network.is_frozen}
    heads = {t.spec.head.augment for t in trials if t.spec.head}
    recipe = ""
    if request.recipe and is_trained(trials):
        recipe = _format_recipe(request).removeprefix("recipe ")
    lines = {
        "data": describe_trials_data(trials),
        **notes,
        "network": _add_augment(describe_networks(trials), networks),
        "heads": _add_augment(describe_heads(trials, head_recipe), heads),
        "recipe": recipe,
        "set": ", ".join(f"{name}={format_yaml(value)}" for name, value in request.fixed.items()),
        "searched": searched,
        "seeds": _format_seeds(request.seeds, has_heads=bool(heads)),
        "splits": _format_draws(request),
        "machine": _describe_machine(needs),
        "execution": _describe_execution(needs),
        "results": f"{run.location.out}; artifacts in {run.location.store}",
        "to do": _describe_left(needs, trained),
        "time": "" if needs.is_over else time,
    }
    block = entries({name: line for name, line in lines.items() if line}, margin="  ")
    return f"{run.location.out}: {title}\n{block}"


def _add_augment(text: str, augments: Collection[str]) -> str:
    if not text or not augments:
        return text
    return f"{text}; augmentation {' or '.join(sorted(augments))}"


def _format_seeds(seeds: Seeds, has_heads: bool) -> str:
    first, last = seeds.network[0], seeds.network[-1]
    numbers = f"{first} to {last}" if last > first else str(first)
    if not has_heads:
        return numbers
    if seeds.is_paired:
        return f"{numbers}, shared by network and head"
    return f"{numbers} for networks, {format_count(len(seeds.head), 'head')} on each"


def _format_draws(request: ResolvedRequest) -> str:
    parts = []
    if request.split_seeds:
        parts.append(format_count(len(request.split_seeds), "draw"))
    if request.calib_sizes:
        parts.append(f"calib of {', '.join(map(str, request.calib_sizes))} and all samples")
    return "; ".join(parts)


def _describe_machine(needs: Needs) -> str:
    location, counts = needs.run.location, needs.machine
    cores, gpus = format_count(counts["CPU"], "CPU core"), counts.get("GPU", 0)
    text = f"{cores}, {format_count(gpus, 'GPU') if gpus else 'no GPU'}"
    text += f"; {format_count(needs.threads, 'thread')} per network"
    if needs.cores > needs.threads:
        text += f", {needs.cores} cores per pass over images"
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
        text += ", one trial after the other in this process"
        if all(trial.spec.data.import_record for trial in needs.trials):
            text += ", or in one process per core if they take minutes"
        return text
    text += f", up to {needs.count_parallel(needs.threads)} in parallel"
    if location.address:
        text += f"; runs on the Ray cluster at {location.address}"
        if not find_cluster(location.address):
            text += ", which did not tell its size: these are the numbers of this machine"
    return text


_PROVEN = "captured as CUDA graphs where a self-check finds them right and not slower"
_EXECUTIONS = {
    "auto": f"{_PROVEN}; backbones of trainings of at least {LEAST_COMPILED:,} steps are compiled, "
    "which takes minutes once",
    "eager": "eager",
    "graph": "captured as CUDA graphs",
    "compiled": "captured as CUDA graphs with compiled backbones, which take minutes once",
}


def _describe_execution(needs: Needs) -> str:
    """Describe how steps are executed on a GPU, and whether a faster precision is left unused."""
    if not needs.run.location.gpus:
        return ""
    networks = [trial.spec.network for trial in needs.trials if not trial.spec.network.is_frozen]
    methods = {network.method for network in networks}
    methods.update(trial.spec.head.method for trial in needs.trials if trial.spec.head)
    requested = sorted({trial.spec.network.execution for trial in needs.trials})
    texts = [_EXECUTIONS[name] for name in requested]
    # Nodes of a cluster may have what this machine lacks.
    is_here = needs.run.location.address in (None, IN_PROCESS) and torch.cuda.is_available()
    if "auto" in requested and is_here and not can_compile():
        lack = "not compiled, since Triton, gcc or the header Python.h is missing on this machine"
        texts[requested.index("auto")] = f"{_PROVEN}; {lack}"
    eager = sorted(name for name in methods if not METHODS[name].implementation.is_capturable)
    if eager:
        texts.append(f"eager for {', '.join(eager)}, whose steps cannot be captured")
    if "auto" in requested:
        texts += list_refusals([trial.spec for trial in needs.trials])
    if any(network.precision == "fp32" for network in networks):
        texts.append("on recent GPUs, network.precision=bf16 or tf32 is faster than fp32")
    return "; ".join(texts)


def _describe_left(needs: Needs, trained: int) -> str:
    unit = "suggestions" if needs.run.is_search else "trials"
    planned = needs.planned or 0
    if needs.is_over:
        return f"nothing: {needs.done} of {planned} {unit} are done"
    text = f"{planned - needs.done} of {planned} {unit}, {format_count(trained, 'network')} and "
    text += f"{format_count(needs.heads, 'head')} to train"
    if needs.evaluations:
        text += f", {format_count(needs.evaluations, 'extra evaluation')}"
    return text


def _format_recipe(request: ResolvedRequest) -> str:
    caption = request.recipe_caption or "no recipe"
    if request.own_recipes:
        caption += "; each method by its authors' recipe"
    return caption


def _format_time(sums: Forecast) -> str:
    unknown, parts = [], []
    for name, seconds in sums.seconds.items():
        if math.isnan(seconds):
            unknown.append(name)
        else:
            parts.append(f"{name} {format_duration(seconds)}")
    text = " + ".join(parts)
    if unknown:
        reason = f"unknown for {' and '.join(unknown)}, which were not measured"
        return "; ".join(filter(None, [reason, text]))
    if not parts:
        return "nothing is trained"
    return f"about {format_duration(sum(sums.seconds.values()))} of training = {text}"


def format_duration(seconds: float) -> str:
    """Format a time, e.g. as ``98 s``, ``12 min`` or ``1.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    if hours < 10:
        return f"{hours:.2g} h"
    return f"{hours:,.0f} h"
