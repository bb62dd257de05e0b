"""Describe a planned run: settings, remaining work, disk space and time."""

import math
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from analysis.tables.table import table_of
from tune_calib.console import Prose, Text, echo, entries
from tune_calib.engine.store import Store
from tune_calib.experiments.entries import EntryRun
from tune_calib.experiments.file import ReadFile
from tune_calib.experiments.forecast.forecast import Forecast, Needs, find_needs
from tune_calib.experiments.forecast.rates import Rates
from tune_calib.progress import count_progress, report_progress
from tune_calib.spec.gpus import GPUS, Gpu
from tune_calib.spec.metrics import METRICS, format_value
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.text import format_count, format_yaml
from tune_calib.tuning.caption import describe_data, describe_heads, describe_networks, is_trained
from tune_calib.tuning.folder import RunLocation, done
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.run import AnyRun
from tune_calib.tuning.search.definition import SearchDefinition
from tune_calib.tuning.search.run import SearchRun
from tune_calib.tuning.work.executor import find_cluster
from tune_calib.tuning.work.jobs import RemainingWork, make_plan

NOTHING = "this is a dry run; no trial was started"
TITLES = ["folder", "planned", "done", "networks to train", "heads to train", "Ray trials"]


def print_settings(run: AnyRun, work: RemainingWork) -> None:
    """Print the settings of a run and its expected time on stderr."""
    report_progress("estimating how long it will take")
    echo(describe_run(run, work), err=True)


def describe_run(run: AnyRun, work: RemainingWork) -> str:
    """Describe the settings, work and time of a run that is about to start."""
    needs, sums = find_needs(run, work), start_forecast(run.location)
    try:
        trained, images = sums.add(needs), describe_images(needs, sums)
    except Exception as error:  # a forecast stops no run: if a trial fails, it reports the error
        reason = f"unknown: timing failed with {type(error).__name__}"
        return _describe(needs, None, "", time=reason)
    return _describe(needs, trained, images, time=_format_time(sums))


def describe_dry_run(run: AnyRun, work: RemainingWork) -> str:
    """Describe a run as before its start, with disk space and sources of the rates."""
    needs, sums = find_needs(run, work), start_forecast(run.location)
    trained = sums.add(needs)
    block = _describe(needs, trained, describe_images(needs, sums), time=_format_time(sums))
    return "\n".join([block, _format_disk(sums), *sums.sources.values(), NOTHING])


def describe_dry_runs(file: ReadFile, planned: Sequence[EntryRun]) -> Text:
    """Describe the planned runs of an experiment file, their disk space and time."""
    gpu = GPUS[file.content.gpu_model] if file.content.gpu_model else None
    sums = start_forecast(replace(planned[0].run.location, out=file.out), gpu)
    all_needs = []
    for entry in count_progress("planning entries", planned, len(planned)):
        # Without extra evaluations, whose files a forecast for another machine may lack.
        work = make_plan(entry.run.planned_trials, done(entry.run.location.out))
        needs = find_needs(entry.run, work, entry.hours)
        if gpu is not None:  # the rates are of one trial that has the GPU to itself
            needs = replace(needs, at_once=1, heads_at_once=1)
        all_needs.append(needs)
    titles = TITLES
    if not planned[0].run.location.uses_ray:
        titles = TITLES[:-1]
    rows = []
    recipes: dict[str, dict[str, None]] = {}
    images: dict[str, dict[str, None]] = {}
    pairs = zip(planned, all_needs, strict=True)
    for entry, needs in count_progress("estimating the time of entries", pairs, len(planned)):
        count: Any = needs.planned
        if needs.hours is not None:
            count = f"{needs.hours:.3g} h more"
        jobs = needs.ray_trials + len(needs.extra)
        row = [entry.name, count, needs.done, sums.add(needs), needs.heads, jobs]
        rows.append(row[: len(titles)])
        recipes.setdefault(_format_recipe(entry.run.resolved), {})[entry.entry] = None
        images.setdefault(describe_images(needs, sums), {})[entry.name] = None
    lines = []
    for text, names in (*images.items(), *recipes.items()):
        if text:
            lines.append(f"{', '.join(names)}: {text}")
    lines += [*_list_totals(sums, all_needs, rows), _format_disk(sums)]
    if gpu is not None:
        lines += _list_rates(gpu, sums, all_needs)
    else:
        lines.append(f"time on this machine: {_format_time(sums)}")
        needs_gpu = any(entry.run.location.gpus for entry in planned)
        if needs_gpu and not torch.cuda.is_available():
            lines.append(f"for the hours on a GPU, name it by `gpu_model`: {', '.join(GPUS)}")
    head = f"{file.name} in {file.out}; {NOTHING}"
    return Text([head, table_of(titles, rows), "", *map(Prose, [*lines, *sums.sources.values()])])


def _list_rates(gpu: Gpu, sums: Forecast, all_needs: Sequence[Needs]) -> Iterator[str]:
    """Yield the time on a named GPU, its faster modes, and the rates behind it."""
    precisions: set[str] = set()
    for needs in all_needs:
        precisions.update(trial.spec.network.precision for trial in needs.trials)
    modes = " and ".join(sorted(precisions))
    yield f"time on one {gpu.name} in {modes}: {_format_time(sums)}"
    rates = {name: gpu.attained(name) for name in gpu.teraflops}
    slowest = min(rates.get(name, math.inf) for name in precisions)
    faster = [name for name, rate in rates.items() if rate > slowest]
    if sums.networks and faster:
        yield f"  this GPU is faster with network.precision={' or '.join(faster)}"
    peaks = []
    for name, rate in rates.items():
        peaks.append(f"{name} {rate / gpu.peak(name):.0%} of {gpu.teraflops[name]:g}")
    stated = f"peak TFLOP/s of the {gpu.name}, {', '.join(peaks)} ({gpu.source})"
    yield f"  stated rates: {stated}"


def describe_images(needs: Needs, sums: Forecast) -> str:
    """Describe the classes, the sizes of the splits and the images; return "" for imported data."""
    texts: dict[str, None] = {}
    for trial in needs.trials:
        slot = trial.spec.data
        if needs.is_over or slot.imported is not None:
            continue
        info, sizes = slot.info, sums.rates["cpu"].sizes(slot)
        counts = ", ".join(f"{name} {count}" for name, count in asdict(sizes).items())
        stored = info.stored or info.size
        color = "grey" if info.channels == 1 else "RGB"
        text = f"{info.classes} classes; {counts} images of {stored}x{stored} {color} pixels"
        if info.size < stored:
            text += f" (crops of {info.size}x{info.size})"
        texts[text] = None
    return " or ".join(texts)


def start_forecast(location: RunLocation, gpu: Gpu | None = None) -> Forecast:
    """Return an empty forecast for this machine, or for a GPU that it need not have."""
    store = Store(location.store)
    devices = {"cpu": torch.device("cpu"), "cuda": torch.device("cuda")}
    if gpu is not None:
        devices["cpu"] = devices["cuda"]
    rates = {}
    for name, device in devices.items():
        rates[name] = Rates(location.out, store, location.data_root, device=device, gpu=gpu)
    return Forecast(store, rates)


def _describe(needs: Needs, trained: int | None, images: str, time: str) -> str:
    run, trials, request = needs.run, needs.trials, needs.run.resolved
    if isinstance(run, LadderRun):
        title, head_recipe, searched = run.ladder.title, run.ladder.head_recipe, ""
    else:
        assert isinstance(run, SearchRun)
        title, head_recipe = _format_title(run.definition), None
        searched = ", ".join(run.definition.candidates.space.settings)
    networks = {t.spec.network.augment for t in trials if not t.spec.network.is_frozen}
    heads = {t.spec.head.augment for t in trials if t.spec.head}
    recipe = ""
    if request.recipe and is_trained(trials):
        recipe = _format_recipe(request).removeprefix("recipe ")
    lines = {
        "data": describe_data(trials[0].spec.data),
        "images": images,
        "network": _add_augment(describe_networks(trials), networks),
        "heads": _add_augment(describe_heads(trials, head_recipe), heads),
        "recipe": recipe,
        "set": ", ".join(f"{name}={format_yaml(value)}" for name, value in request.fixed.items()),
        "searched": searched,
        "seeds": _format_seeds(request.seeds, has_heads=bool(heads)),
        "splits": _format_draws(request),
        "machine": _describe_machine(needs),
        "results": f"{run.location.out}; artifacts in {run.location.store}",
        "to do": _describe_left(needs, trained),
        "time": time,
    }
    if needs.is_over:
        lines["time"] = ""
    block = entries({name: line for name, line in lines.items() if line}, margin="  ")
    return f"{run.location.out}: {title}\n{block}"


def _format_title(definition: SearchDefinition) -> str:
    metrics = []
    for name in definition.objective.metrics:
        extreme = "lowest" if METRICS[name].is_less_better else "highest"
        metrics.append(f"{extreme} {METRICS[name].title}")
    lost = format_value("accuracy", definition.objective.guard)
    return (
        f"search of {definition.method} by {definition.sampler} for the {' and '.join(metrics)} "
        f"on select, losing at most {lost} of accuracy"
    )


def _add_augment(text: str, augments: Collection[str]) -> str:
    if not text or not augments:
        return text
    return f"{text}; augmentation {' or '.join(sorted(augments))}"


def _format_seeds(seeds: Seeds, has_heads: bool) -> str:
    first, last = seeds.network[0], seeds.network[-1]
    numbers = str(first)
    if last > first:
        numbers = f"{first} to {last}"
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
    location, gpus = needs.run.location, torch.cuda.device_count()
    machine = _format_machine(os.cpu_count() or 1, gpus)
    if torch.cuda.is_available():
        machine += f" ({torch.cuda.get_device_name()})"
    threads = sorted({trial.spec.network.threads for trial in needs.trials})
    used = f"{' or '.join(map(str, threads))} threads per network"
    if threads == [1]:
        used = "1 thread per network"
    if location.gpus:
        used += f", {format_count(round(1 / location.gpus), 'trial')} on each GPU"
    elif gpus:
        used += ", no GPU requested"
    if not location.uses_ray:
        return f"{machine}; {used}, one trial after the other in this process"
    where = ""
    if location.address:
        where = f"; runs on the Ray cluster at {location.address}"
        if cluster := find_cluster(location.address):
            machine = _format_machine(cluster.get("CPU", 0), cluster.get("GPU", 0))
        else:
            where += ", which did not tell its size: these are the numbers of this machine"
    return f"{machine}; {used}, up to {needs.at_once} in parallel{where}"


def _format_machine(cores: int, gpus: int) -> str:
    counted = format_count(gpus, "GPU") if gpus else "no GPU"
    return f"{format_count(cores, 'CPU core')}, {counted}"


def _describe_left(needs: Needs, trained: int | None) -> str:
    unit = "suggestions" if needs.run.is_search else "trials"
    planned = needs.planned or 0
    if needs.is_over:
        return f"nothing: {needs.done} of {planned} {unit} are done"
    if trained is None:
        trained = len(needs.networks)
    parts = [
        f"{planned - needs.done} of {planned} {unit}",
        f"{format_count(trained, 'network')} and {format_count(needs.heads, 'head')} to train",
    ]
    if needs.run.location.uses_ray:
        least = "at least " if needs.is_least else ""
        parts.append(least + format_count(needs.ray_trials, "Ray trial"))
    if needs.extra:
        evaluations = sum(len(group.trials) for group in needs.extra)
        parts.append(format_count(evaluations, "extra evaluation"))
    return ", ".join(parts)


def _format_recipe(request: ResolvedRequest) -> str:
    caption = request.recipe_caption or "no recipe"
    if request.own_recipes:
        caption += "; each method by its authors' recipe"
    return caption


def _list_totals(
    sums: Forecast, all_needs: Sequence[Needs], rows: Sequence[Sequence[Any]]
) -> Iterator[str]:
    trained, heads, *jobs = map(sum, list(zip(*rows, strict=True))[3:])
    yield f"networks: {trained} to train, {len(sums.in_store)} already in {sums.store.root}"
    line = f"heads: {heads}"
    if jobs:
        least = "at least " if any(needs.is_least for needs in all_needs) else ""
        line += f"; Ray trials: {least}{jobs[0]}"
    yield line
    shares = {needs.run.location.gpus for needs in all_needs if needs.run.location.gpus}
    present = format_count(torch.cuda.device_count(), "GPU")
    for gpus in sorted(shares):
        trials = format_count(round(1 / gpus), "trial")
        yield f"GPU slots: {trials} on each GPU; {present} on this machine"
    if not shares:
        yield "GPU slots: none requested"
    if any(needs.planned is None for needs in all_needs):
        yield "searches with a budget in hours are not counted above"
    if not all(needs.knows_extra for needs in all_needs):
        yield "extra evaluations are not counted, since files of their shift sets are missing"


def _format_disk(sums: Forecast) -> str:
    networks, banks, heads = sums.network_bytes, sum(sums.banks.values()), sums.head_bytes
    return (
        f"disk: {_format_size(networks + banks + heads)} = networks {_format_size(networks)} + "
        f"{len(sums.banks)} feature banks {_format_size(banks)} + heads {_format_size(heads)}"
    )


def _format_size(count: int) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.2f} GB"
    return f"{count / 1e6:.1f} MB"


def _format_time(sums: Forecast) -> str:
    unknown, measured = [], []
    for name, seconds in sums.seconds.items():
        if math.isnan(seconds):
            unknown.append(name)
        else:
            measured.append(f"{name} {format_duration(seconds)}")
    parts = " + ".join(measured)
    if unknown:
        reason = f"unknown for {' and '.join(unknown)}, which were not measured"
        return "; ".join(filter(None, [reason, parts]))
    if not parts:
        return "nothing is trained"
    return f"about {format_duration(sums.total)} of training = {parts}"


def format_duration(seconds: float) -> str:
    """Format a time, e.g. as ``98 s``, ``12 min`` or ``1.5 h``; NaN is unknown."""
    if math.isnan(seconds):
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    if hours < 10:
        return f"{hours:.2g} h"
    return f"{hours:,.0f} h"
