"""Describe what a run is about to do: its settings, the work that is left, and its time."""

import math
from collections.abc import Collection

import torch

from tune_calib.console import entries
from tune_calib.data.splits import Sizes, load_development, load_test, published_sizes
from tune_calib.engine.machine import count_cores
from tune_calib.files.store import Store
from tune_calib.progress import report_progress
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.slots.data import DataSlot
from tune_calib.text import format_count, format_yaml
from tune_calib.tuning.caption import (
    describe_heads,
    describe_networks,
    describe_trials_data,
    is_trained,
)
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.forecast import Forecast, Needs, count_parallel, find_needs
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.search.run import SearchRun
from tune_calib.tuning.share import describe_mps
from tune_calib.tuning.work.jobs import RemainingWork

# With fewer samples in calib, the standard error of its accuracy may be above 5 points, which is
# more than the ECE of most networks before any calibration.
FEW_CALIB = 100


def describe_run(run: LadderRun | SearchRun, work: RemainingWork, is_dry: bool = False) -> str:
    """Describe the settings, work and time of a run; a dry one with the origin of its time."""
    report_progress("estimating how long it will take")
    trials, request = run.planned_trials, run.resolved
    needs, sums = find_needs(run, work), Forecast(run.location)
    trained = sums.add(run, needs)
    head_recipe, searched = None, ""
    if isinstance(run, LadderRun):
        title, head_recipe = run.ladder.title, run.ladder.head_recipe
    else:
        definition = run.definition
        title = f"search of {definition.method} by {definition.sampler}: "
        title += definition.objective.describe_rule()
        searched = ", ".join(definition.candidates.space.settings)
    networks = {t.spec.network.augment for t in trials if not t.spec.network.is_frozen}
    heads = {t.spec.head.augment for t in trials if t.spec.head}
    images, warning = ("", "") if needs.is_over else describe_images(run, is_elsewhere=False)
    recipe = ""
    if request.recipe and is_trained(trials):
        recipe = format_recipe(request).removeprefix("recipe ")
    lines = {
        "data": describe_trials_data(trials),
        "images": images,
        "warning": warning,
        "network": _add_augment(describe_networks(trials), networks),
        "heads": _add_augment(describe_heads(trials, head_recipe), heads),
        "recipe": recipe,
        "set": ", ".join(f"{name}={format_yaml(value)}" for name, value in request.fixed.items()),
        "searched": searched,
        "seeds": _format_seeds(request, has_heads=bool(heads)),
        "splits": _format_draws(request),
        "machine": describe_machine(run),
        "results": f"{run.location.out}; artifacts in {run.location.store}",
        "to do": _describe_left(run, needs, trained),
        "time": "" if needs.is_over else format_time(sums),
    }
    block = entries({name: line for name, line in lines.items() if line}, margin="  ")
    text = f"{run.location.out}: {title}\n{block}"
    return "\n".join([text, *sums.sources.values()]) if is_dry else text


def _find_sizes(slot: DataSlot, location: RunLocation, is_elsewhere: bool) -> Sizes:
    """Return the size of each split: the published one, otherwise that of the files."""
    if (record := slot.import_record) is not None:
        return Sizes(record.train, record.select, calib=record.calib, test=record.test)
    # For a named GPU, which may be elsewhere, data without published sizes is refused.
    if is_elsewhere or slot.info.published is not None:
        return published_sizes(slot)
    # A plan writes nothing, so the cache of images is used only if it exists.
    images = Store(location.store).images
    cache = images if images.exists() else None
    development = load_development(slot, location.data_root, cache)
    test = load_test(slot, location.data_root, cache)
    train, select, calib = development.train, development.select, development.calib
    return Sizes(len(train), len(select), len(calib), len(test), development.remark)


def describe_images(run: LadderRun | SearchRun, is_elsewhere: bool) -> tuple[str, str]:
    """Describe the images and sizes of the splits, and warn of repeated or too few images."""
    texts: dict[str, None] = {}
    warnings: dict[str, None] = {}
    for slot in dict.fromkeys(trial.spec.data for trial in run.planned_trials):
        info, sizes = slot.info, _find_sizes(slot, run.location, is_elsewhere)
        if sizes.remark:
            warnings[sizes.remark] = None
        if sizes.calib < FEW_CALIB and slot.calib_size is None:
            text = f"calib has only {sizes.calib} samples, and the accuracy to which post-hoc "
            text += "methods adjust the confidence has a standard error of up to "
            warnings[f"{text}{50 / math.sqrt(sizes.calib):.0f} points; give it more samples"] = None
        if slot.imported is not None:
            continue
        stored = info.stored or info.size
        text = f"{info.classes} classes; train {sizes.train}, select {sizes.select}, "
        text += f"calib {sizes.calib}, test {sizes.test} images of {stored}x{stored} "
        text += f"{'grey' if info.channels == 1 else 'RGB'} pixels"
        if info.size < stored:
            text += f" (crops of {info.size}x{info.size})"
        texts[text] = None
    return " or ".join(texts), "; ".join(warnings)


def _add_augment(text: str, augments: Collection[str]) -> str:
    if not text or not augments:
        return text
    return f"{text}; augmentation {' or '.join(sorted(augments))}"


def _format_seeds(request: ResolvedRequest, has_heads: bool) -> str:
    seeds = request.seeds
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


def _describe_left(run: LadderRun | SearchRun, needs: Needs, trained: int) -> str:
    unit = "suggestions" if run.is_search else "trials"
    planned = needs.planned or 0
    if needs.is_over:
        return f"nothing: {needs.done} of {planned} {unit} are done"
    text = f"{planned - needs.done} of {planned} {unit}, {format_count(trained, 'network')} and "
    text += f"{format_count(needs.heads, 'head')} to train"
    if needs.evaluations:
        text += f", {format_count(needs.evaluations, 'extra evaluation')}"
    return text


def format_recipe(request: ResolvedRequest) -> str:
    """Format the recipe of a request."""
    caption = request.recipe_caption or "no recipe"
    if request.own_recipes:
        caption += "; each method by its authors' recipe"
    return caption


def format_time(sums: Forecast) -> str:
    """Format the forecast of the time of training, with what was not measured."""
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
    return f"{hours:.2g} h" if hours < 10 else f"{hours:,.0f} h"
