"""Describe what a run is about to do: its settings, what is left, and its time by earlier rows."""

import json
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from tune_calib.console import entries
from tune_calib.data.splits import load_development, published_sizes
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.execution import can_compile
from tune_calib.engine.head_batch import HEAD_THREADS
from tune_calib.engine.machine import count_cores
from tune_calib.engine.self_check import list_refusals
from tune_calib.files.store import Store
from tune_calib.results.tables import read_table
from tune_calib.spec.gpus import RATES_SIZE, Gpu, Rate, find_head_step
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.methods import METHODS
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.samplers import SAMPLERS
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.text import format_count
from tune_calib.tuning.caption import describe_setting
from tune_calib.tuning.folder import RunLocation, spent_s
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.search.run import SearchRun, count_suggestions
from tune_calib.tuning.search.source import find_largest
from tune_calib.tuning.search.stages import Stages
from tune_calib.tuning.work.jobs import RemainingWork, make_plan

NETWORKS, HEADS, SEARCHES = "networks", "heads", "searches with a budget in hours"
_COLUMNS = ("data", "network", "head", "posthoc", "status", "own_s", "gpu", "device")
# Settings that change the time of an epoch little, or not at all.
_OTHER = {"seed", "epochs", "milestones", "execution", "lr", "weight_decay"}


@dataclass(frozen=True)
class Needs:
    """Numbers of what a run has and what it still needs."""

    planned: int | None  # trials, or suggestions of a search; None with a budget in hours
    done: int
    networks: Sequence[TrialSpec] = ()  # to train, or to evaluate if they are frozen
    searched: Sequence[TrialSpec] = ()  # networks that suggestions train
    head_batches: Sequence[tuple[TrialSpec, int]] = ()  # the first head, and the number of heads
    evaluations: int | None = 0  # extra ones; None if the files of shift sets are not read
    hours: float = 0.0  # left of a budget in hours

    @property
    def heads(self) -> int:
        return sum(count for _, count in self.head_batches)

    @property
    def is_over(self) -> bool:
        return self.planned == self.done and not self.evaluations


def find_needs(
    run: LadderRun | SearchRun,
    work: RemainingWork,
    hours: float | None = None,
    reads_shifts: bool = True,
) -> Needs:
    """Count remaining work; ``hours`` is the budget of a search that has one in hours."""
    networks = [job.first.spec for job in work.networks if not job.first.spec.members]
    if isinstance(run, SearchRun):
        return _find_needs_of_search(run, networks, hours)
    planned = len(run.planned_trials)
    unfinished = sum(len(job.dependents) for job in work.networks)
    batches = []
    for job in work.head_batches:
        if job.kind == "head":  # a head that post-hoc methods share is trained once
            batches.append((job.first.spec, len({trial.spec.head for trial in job.trials})))
    evaluations = None
    if reads_shifts or not run.options.shift:
        of_trial = int(run.options.bootstrap > 0) + (len(run.shift_sets) if reads_shifts else 0)
        evaluations = unfinished * of_trial + sum(len(job.trials) for job in work.extra)
    return Needs(
        planned, planned - unfinished, networks, head_batches=batches, evaluations=evaluations
    )


def _find_needs_of_search(
    run: SearchRun, networks: Sequence[TrialSpec], hours: float | None
) -> Needs:
    definition, candidates = run.definition, run.definition.candidates
    stages = Stages(definition)
    baseline = {trial.spec.network_id for trial in stages.all_baselines}
    networks = [spec for spec in networks if spec.network_id in baseline]
    counts = count_suggestions(run.out, run.location.study_storage, run.length)
    if hours is not None:
        left = max(0.0, hours - spent_s(run.out) / run.at_once / 3600)
        return Needs(None, counts[0] if counts else 0, networks, hours=left)
    ended, planned = counts or (0, run.length)
    if counts is None:
        size = candidates.space.size
        if SAMPLERS[definition.sampler].tries_grid:
            size = len(definition.points)
        planned = int(min(stages.fill_brackets(planned), size))
    # The defaults represent all suggestions.
    left_trials: list[PlannedTrial] = []
    counts_by_stage = stages.count_suggestions(max(0, planned - ended))
    by_stage = stages.list_trials({}, 0)
    for trials, count in zip(by_stage, counts_by_stage, strict=True):
        left_trials += trials * count
    largest = find_largest(definition, run.at_once)
    jobs = make_plan(left_trials, set(), largest).head_batches
    batches = [(job.first.spec, len(job.trials)) for job in jobs]
    searched = [trial.spec for trial in left_trials if candidates.kind == "network"]
    return Needs(planned, ended, networks, searched=searched, head_batches=batches)


def count_parallel(run: LadderRun | SearchRun, threads: int) -> int:
    """Count the trials that this machine runs in parallel, each with some threads."""
    if not run.location.uses_ray and not isinstance(run, SearchRun):
        return 1
    most = count_cores() // threads
    if run.location.gpus:
        most = min(most, int(torch.cuda.device_count() / run.location.gpus))
    if isinstance(run, SearchRun):
        most = min(most, run.at_once)
    return max(1, most)


@dataclass
class Forecast:
    """Sums over runs of the time of training, on this machine or on one named GPU."""

    location: RunLocation
    gpu: Gpu | None = None
    networks: set[str] = field(default_factory=set)  # ids of those to train, each once
    in_store: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)  # by activity; NaN if unknown
    sources: dict[str, str] = field(default_factory=dict)  # a line on the origin of each rate

    def add(self, run: LadderRun | SearchRun, needs: Needs) -> int:
        """Add the work of a run, and return the number of networks that it trains."""
        specs, store = list(needs.searched), Store(self.location.store)
        for spec in needs.networks:
            if has_network(spec, store):
                self.in_store.add(spec.network_id)
            elif spec.network_id not in self.networks:
                self.networks.add(spec.network_id)
                specs.append(spec)
        trained = [(spec, 1) for spec in specs if not spec.network.is_frozen]
        device = "cuda" if self.gpu or run.location.gpus else "cpu"
        for activity, batches in ((NETWORKS, trained), (HEADS, needs.head_batches)):
            if not batches:
                continue
            part, threads = "head", HEAD_THREADS
            if activity == NETWORKS:
                part, threads = "network", batches[0][0].network.threads
            times = [self._estimate_s(spec, part, device, count) for spec, count in batches]
            parallel = 1.0  # on a named GPU, which trains one after the other
            if self.gpu is None:
                # Trials that share a GPU take turns on it.
                parallel = max(1.0, count_parallel(run, threads) * (run.location.gpus or 1.0))
            # Parallel training takes at least as long as the longest one. A first NaN stays in max.
            longest = max(sum(times) / parallel, *times)
            self.seconds[activity] = self.seconds.get(activity, 0.0) + longest
        if needs.hours:
            self.seconds[SEARCHES] = self.seconds.get(SEARCHES, 0.0) + 3600 * needs.hours
        return len(trained)

    def _estimate_s(self, spec: TrialSpec, part: str, device: str, heads: int = 1) -> float:
        """Estimate the seconds of a network or of a batch of heads; NaN if unknown."""
        slot = getattr(spec, part)
        subject = f"{spec.network.backbone} on {spec.data.dataset}"
        if part == "head":
            subject = f"heads of {slot.method} on {spec.data.dataset}"
        epoch_s = self._measured.get(_kind_of(spec.model_dump(mode="json"), part, device))
        rate: Rate | None = None
        if epoch_s is not None:
            rate = heads * epoch_s, f"earlier rows in {self.location.out}"
        elif self.gpu is not None:
            rate = _find_epoch_s(spec, part, self.gpu, heads)
        if rate is None:
            self.sources.setdefault(subject, f"  {subject}: unknown: not measured")
            return math.nan
        self.sources.setdefault(subject, f"  {subject}: {rate[0]:.3g} s an epoch, {rate[1]}")
        return float(slot.epochs * rate[0])

    @cached_property
    def _measured(self) -> dict[Hashable, float]:
        sums: dict[Hashable, tuple[float, int]] = {}
        out = self.location.out
        for folder in {path.parent for path in out.glob("*/trials")} | {out}:
            for row in read_table(folder, "trials", columns=_COLUMNS).to_pylist():
                is_alike = self.gpu is None or self.gpu.is_named(row["gpu"])
                slots = {name: json.loads(row[name] or "null") for name in _COLUMNS[:3]}
                slot = "head" if slots["head"] else "network"
                is_timed = row["status"] == "done" and row["own_s"] is not None
                if is_alike and is_timed and slots[slot]["epochs"] and not row["posthoc"]:
                    key = _kind_of(slots, slot, row["device"])
                    seconds, epochs = sums.get(key, (0.0, 0))
                    sums[key] = seconds + row["own_s"], epochs + slots[slot]["epochs"]
        return {key: seconds / epochs for key, (seconds, epochs) in sums.items()}


def _find_epoch_s(spec: TrialSpec, part: str, gpu: Gpu, heads: int) -> Rate | None:
    slot, sizes = getattr(spec, part), published_sizes(spec.data)
    method = METHODS[slot.method]
    is_captured = spec.network.execution != "eager" and method.implementation.is_capturable
    if part == "head":
        step = find_head_step(heads, is_captured)
        return step and (math.ceil(sizes.train / slot.batch_size) * step[0], step[1])
    if spec.data.info.size != RATES_SIZE:
        return None
    image = gpu.find_image_s(slot.backbone, slot.precision, is_captured)
    passes = 2 if "two_forward_passes" in method.needs else 1
    # A forward pass takes a third of a step.
    return image and (image[0] * (passes * sizes.train + sizes.select / 3), image[1])


def _kind_of(slots: dict[str, Any], slot: str, device: str) -> Hashable:
    settings = {key: value for key, value in slots[slot].items() if key not in _OTHER}
    if slot == "head":  # of which a search has too many kinds
        settings = {key: slots[slot][key] for key in ("method", "batch_size")}
    data = {key: value for key, value in slots["data"].items() if key != "split_seed"}
    kind = [data, slots["network"]["backbone"], settings]
    return json.dumps(kind, sort_keys=True), device


# With fewer samples in calib, the standard error of its accuracy may be above 5 points, which is
# more than the ECE of most networks before any calibration.
FEW_CALIB = 100


def describe_run(run: LadderRun | SearchRun, work: RemainingWork, is_dry: bool = False) -> str:
    if run.location.replay:
        path = run.location.replay.path
        return f"{run.location.out}: {run.name}, replayed from {path}; no trial is trained"
    needs, sums = find_needs(run, work), Forecast(run.location)
    trained = sums.add(run, needs)
    if isinstance(run, LadderRun):
        title, searched, unit = run.ladder.title, "", "trials"
        setting = run.new_manifest.setting
    else:
        definition = run.definition
        rule = definition.objective.describe_rule()
        title = f"search of {definition.method} by {definition.sampler}: {rule}"
        searched, unit = ", ".join(definition.candidates.space.settings), "suggestions"
        setting = describe_setting(run.planned_trials, None, run.resolved)
    location, left, images, time = run.location, "", "", ""
    if needs.is_over:
        left = f"nothing: {needs.done} of {needs.planned} {unit} are done"
    else:
        left = f"{(needs.planned or 0) - needs.done} of {needs.planned} {unit}, "
        left += f"{format_count(trained, 'network')} and {format_count(needs.heads, 'head')} to "
        left += "train"
        if needs.evaluations:
            left += f", {format_count(needs.evaluations, 'extra evaluation')}"
        images, time = describe_images(run, is_elsewhere=False), format_time(sums)
    lines = {
        "setting": setting,
        "searched": searched,
        "images": images,
        "seeds": _format_seeds(run.resolved),
        "machine": describe_machine(run),
        "execution": _describe_execution(run),
        "results": f"{location.out}; artifacts in {location.store}",
        "to do": left,
        "time": time,
    }
    block = entries({name: line for name, line in lines.items() if line}, margin="  ")
    text = f"{location.out}: {title}\n{block}"
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
        parts.append(format_count(len(request.split_seeds), "split seed"))
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
    elif gpus:
        text += ", no GPU requested"
    if location.gpus_reason:
        text += f" ({location.gpus_reason})"
    at_once = count_parallel(run, threads)
    if not (location.uses_ray or location.is_shared) and at_once == 1:
        return f"{text}, one trial after the other in this process"
    if location.is_shared:
        return f"{text}; jobs are shared by all processes that run the same command"
    if location.uses_ray and location.address:
        return f"{text}; runs on the Ray cluster at {location.address}"
    return f"{text}, up to {at_once} in parallel"


def _describe_execution(run: LadderRun | SearchRun) -> str:
    specs = [trial.spec for trial in run.planned_trials]
    is_here = run.location.gpus and run.location.address is None and torch.cuda.is_available()
    if not is_here or "auto" not in {spec.network.execution for spec in specs}:
        return ""
    texts = list_refusals(specs)
    if not can_compile():
        texts.insert(0, "not compiled: Triton, gcc or the header Python.h is missing")
    return "; ".join(texts)


def format_time(sums: Forecast) -> str:
    unknown = [name for name, seconds in sums.seconds.items() if math.isnan(seconds)]
    measured = {name: seconds for name, seconds in sums.seconds.items() if name not in unknown}
    text = " + ".join(f"{name} {format_duration(seconds)}" for name, seconds in measured.items())
    if unknown:
        reason = f"hours unknown for {' and '.join(unknown)}, which were not measured"
        return f"{reason}; {text}" if measured else reason
    if not measured:
        return "nothing is trained"
    return f"about {format_duration(sum(measured.values()))} of training = {text}"


def format_duration(seconds: float) -> str:
    """Format a time, e.g. as ``98 s``, ``12 min`` or ``1.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.2g} h" if hours < 10 else f"{hours:,.0f} h"
