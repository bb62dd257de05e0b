"""What would be done, in words: effective settings, disk, time. Starts nothing, writes nothing."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from analysis.tables.table import table_of
from tune_calib.console import Prose, Text, echo, entries
from tune_calib.engine.store import Store
from tune_calib.experiments.entries import Work
from tune_calib.experiments.file import ReadFile
from tune_calib.experiments.forecast.forecast import Forecast
from tune_calib.experiments.forecast.needs import Job, Needs, needs_of, needs_of_work
from tune_calib.experiments.forecast.rates import SHARE, Rates
from tune_calib.paths import AnyPath
from tune_calib.progress import report_progress
from tune_calib.spec.gpus import GPUS, Gpu
from tune_calib.spec.metrics import METRICS, format_value
from tune_calib.spec.resolved import Seeds
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.text import format_count, format_yaml
from tune_calib.tuning.ablate import LadderJob
from tune_calib.tuning.caption import data_told, heads_told, is_trained, network_told
from tune_calib.tuning.search.job import Question

NOTHING = "nothing was started"
_TITLES = ["folder", "planned", "done", "networks to train", "heads to train", "Ray trials"]


def before(job: Job) -> str:
    """The effective settings of a ladder or search that is about to begin, in a few lines."""
    needs, sums = needs_of(job), _sums(job)
    try:
        trained = sums.add(needs)
    except Exception as error:  # what a trial dies of is told with it: a forecast stops no run
        return _block(job, needs, None, f"unknown: {type(error).__name__} when it was timed")
    return _block(job, needs, trained, _time(sums))


def tell_settings(job: Job) -> None:
    """Say on stderr what is about to be done."""
    report_progress("reckoning how long it will take")
    echo(before(job), err=True)


def dry_run(job: Job) -> str:
    """As ``before``, with what it would take on disk, and where the rates are from."""
    needs, sums = needs_of(job), _sums(job)
    trained = sums.add(needs)
    lines = [_block(job, needs, trained, _time(sums)), *_disk(sums), *sums.describe_sources()]
    return "\n".join([*lines, NOTHING])


def forecast(file: ReadFile, works: Sequence[Work]) -> Text:
    """What a sweep file would do.

    Args:
        file: the sweep file.
        works: what it asks for.
    """
    gpu = GPUS[file.content.gpu_model] if file.content.gpu_model else None
    sums, rows = _forecast(file.out, file.store, file.content.data_root, gpu), []
    counts: list[tuple[int, int, int]] = []
    all_needs = [needs_of_work(file, work) for work in works]
    if gpu is not None:  # trials that share it share its rates too
        all_needs = [replace(needs, at_once=1, heads_at_once=1) for needs in all_needs]
    for needs in all_needs:
        trained = sums.add(needs)
        planned = f"{needs.hours:.3g} h more" if needs.hours is not None else needs.planned
        counts.append((trained, needs.heads, needs.ray_trials + len(needs.looks)))
        rows.append([needs.name, planned, needs.done, *counts[-1]])
    lines = [*_recipes(works), *_totals(sums, all_needs, counts), *_disk(sums), *_hours(sums, gpu)]
    if any(needs.gpus for needs in all_needs) and not (gpu or torch.cuda.is_available()):
        lines.append(f"for the hours on a GPU, name it: `gpu_model` {' or '.join(GPUS)}")
    told = map(Prose, [*lines, *sums.describe_sources()])
    head = f"{file.name} in {file.out}; {NOTHING}"
    return Text([head, table_of(_TITLES, rows), "", *told])


def _sums(job: Job) -> Forecast:
    return _forecast(job.site.out, job.site.store, job.site.data_root)


def _forecast(
    out: AnyPath, store: AnyPath, data_root: Path | None, gpu: Gpu | None = None
) -> Forecast:
    where = out, Store(store), data_root
    if gpu is None:
        rates = {kind: Rates(*where, torch.device(kind)) for kind in ("cpu", "cuda")}
    else:
        rates = dict.fromkeys(("cpu", "cuda"), Rates(*where, torch.device("cuda"), gpu))
    return Forecast(where[1], rates)


def _block(job: Job, needs: Needs, trained: int | None, time: str) -> str:
    trials = needs.trials
    asked = job.asked if isinstance(job, LadderJob) else job.question.asked
    head_recipe = job.ladder.head_recipe if isinstance(job, LadderJob) else None
    networks = [t.spec.network for t in trials if not t.spec.network.is_frozen]
    heads = [t.spec.head for t in trials if t.spec.head]
    recipe = asked.recipe_caption if is_trained(trials) else None
    own = "; each method by its authors' recipe" if asked.own_recipes else ""
    searched = () if isinstance(job, LadderJob) else job.question.candidates().space.settings
    lines = {
        "data": data_told(trials[0].spec.data),
        "network": _with_augment(network_told(trials), networks),
        "heads": _with_augment(heads_told(trials, head_recipe), heads),
        "recipe": f"{recipe.removeprefix('recipe ')}{own}" if recipe else "",
        "set": ", ".join(f"{name}={format_yaml(value)}" for name, value in asked.fixed.items()),
        "searched": ", ".join(searched),
        "seeds": _seeds(asked.seeds, has_heads=bool(heads)),
        "machine": _machine(job, needs),
        "results": f"{job.site.out}; artifacts in {job.site.store}",
        "to do": _to_do(needs, trained),
        "time": "" if needs.is_over else time,
    }
    told = entries({name: line for name, line in lines.items() if line}, margin="  ")
    title = job.ladder.title if isinstance(job, LadderJob) else _of_question(job.question)
    return f"{job.site.out}: {title}\n{told}"


def _of_question(question: Question) -> str:
    metrics = " and ".join(
        f"{'least' if METRICS[name].is_less_better else 'largest'} {METRICS[name].title}"
        for name in question.objective.metrics
    )
    lost = format_value("accuracy", question.objective.guard)
    stopped = ", networks that are behind are stopped" * (question.scheduler == "asha")
    return (
        f"search of {question.method} by {question.sampler} for the {metrics} on select, at most "
        f"{lost} of accuracy lost{stopped}"
    )


def _with_augment(told: str, slots: Iterable[NetworkSlot | HeadSlot]) -> str:
    augments = sorted({slot.augment for slot in slots})
    return f"{told}; augmentation {' or '.join(augments)}" if told and augments else told


def _seeds(seeds: Seeds, has_heads: bool) -> str:
    first, last = seeds.network[0], seeds.network[-1]
    numbers = f"{first} to {last}" if last > first else str(first)
    if not has_heads:
        return numbers
    if seeds.is_paired:
        return f"{numbers}, network and head together"
    return f"{numbers} of networks, {format_count(len(seeds.head), 'head')} on each"


def _machine(job: Job, needs: Needs) -> str:
    gpus = torch.cuda.device_count()
    names = f" ({torch.cuda.get_device_name()})" if torch.cuda.is_available() else ""
    cores = format_count(os.cpu_count() or 1, "CPU core")
    found = f"{cores}, {gpus or 'no'} GPU{'s' * (gpus > 1)}{names}"
    threads = sorted({trial.spec.network.threads for trial in needs.trials})
    used = f"{' or '.join(map(str, threads))} threads a network"
    if threads == [1]:
        used = "1 thread a network"
    if needs.gpus:
        used += f", {round(1 / needs.gpus)} trials on each GPU"
    elif gpus:
        used += ", no GPU asked for"
    if not job.site.uses_ray:
        return f"{found}; {used}, one trial after the other in this process"
    where = f"; runs on the Ray cluster at {job.site.address}" if job.site.address else ""
    return f"{found}; {used}, up to {needs.at_once} side by side{where}"


def _to_do(needs: Needs, trained: int | None) -> str:
    what = "trials" if needs.question is None else "suggestions"
    planned = needs.planned or 0
    if needs.is_over:
        return f"nothing: {needs.done} of {planned} {what} are done"
    trained = len(needs.networks) if trained is None else trained
    parts = [
        f"{planned - needs.done} of {planned} {what}",
        f"{format_count(trained, 'network')} and {format_count(needs.heads, 'head')} to train",
        format_count(needs.ray_trials, "Ray trial"),
    ]
    looks = format_count(len(needs.looks), "closer look")
    return ", ".join([*parts, *([looks] if needs.looks else [])])


def _time(sums: Forecast) -> str:
    parts = " + ".join(f"{name} {duration(seconds)}" for name, seconds in sums.parts.items())
    return f"about {duration(sums.whole)} = {parts}"


def _recipes(works: Sequence[Work]) -> list[str]:
    """The recipe in force of each entry."""
    entries: dict[str, dict[str, None]] = {}
    for work in works:
        described = work.asked.recipe_caption or "no recipe"
        own = "; each method by its authors' recipe" if work.asked.own_recipes else ""
        entries.setdefault(described + own, {})[str(work.position[1])] = None
    return [f"{', '.join(names)}: {described}" for described, names in entries.items()]


def _totals(
    sums: Forecast, all_needs: Sequence[Needs], counts: Sequence[tuple[int, int, int]]
) -> Iterator[str]:
    trained, heads, ray_trials = (sum(column) for column in zip(*counts, strict=True))
    yield f"networks: {trained} to train, {len(sums.in_store)} in {sums.store.root} already"
    yield f"heads: {heads}; Ray trials: {ray_trials}"
    here = torch.cuda.device_count()
    for gpus in sorted({needs.gpus for needs in all_needs if needs.gpus}):
        yield f"GPU slots: {round(1 / gpus)} trials on each GPU; {here} GPUs on this machine"
    if not any(needs.gpus for needs in all_needs):
        yield "GPU slots: none asked for"
    if any(needs.planned is None for needs in all_needs):
        yield "searches for some hours train as many as fit; they are not counted above"
    if any(needs.unseen for needs in all_needs):
        yield "closer looks are not counted: the files of their shift sets are not here"


def _disk(sums: Forecast) -> Iterator[str]:
    banks = sum(sums.banks.values())
    yield (
        f"disk: {_size(sums.network_bytes + banks + sums.head_bytes)} = networks "
        f"{_size(sums.network_bytes)} + {len(sums.banks)} feature banks {_size(banks)} + heads "
        f"{_size(sums.head_bytes)}; while networks train, checkpoints "
        f"{_size(sums.checkpoint_bytes)} more"
    )


def _hours(sums: Forecast, gpu: Gpu | None) -> Iterator[str]:
    where = f"one {gpu.name}" if gpu else "this machine"
    yield f"time on {where}: {_time(sums)}" if sums.seconds else "time: nothing is left to do"
    if gpu is not None:
        peaks = ", ".join(f"{name} {rate:g}" for name, rate in gpu.teraflops.items())
        yield f"  stated rates: {SHARE:.0%} of {gpu.name}'s peaks, TFLOP/s {peaks} ({gpu.source})"


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def duration(seconds: float | None) -> str:
    """A time as it is spoken of, e.g. ``98 s``, ``12 min`` or ``1.5 h``."""
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.2g} h" if hours < 10 else f"{hours:,.0f} h"
