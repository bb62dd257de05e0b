"""Count what is left to do of runs, and forecast its time from measurements."""

import json
import math
import statistics
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import torch

from tune_calib.data.splits import published_sizes
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.execution import resolve_execution
from tune_calib.engine.head_batch import HEAD_THREADS, head_batch_key
from tune_calib.engine.machine import count_cores
from tune_calib.engine.network import count_compiled_steps
from tune_calib.errors import UserError
from tune_calib.files.store import ARTIFACT_MANIFEST, Store, read_manifest
from tune_calib.results.tables import read_table
from tune_calib.spec.gpus import RATES_SIZE, Gpu, find_head_step
from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.folder import RunLocation, spent_s
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.search.execute import find_largest
from tune_calib.tuning.search.run import SearchRun, count_suggestions
from tune_calib.tuning.work.jobs import RemainingWork, make_plan

NETWORKS, HEADS, SEARCHES = "networks", "heads", "searches with a budget in hours"
_COLUMNS = ("data", "backbone", "head", "status", "wall_s", "population", "gpu", "device")


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
        """Return the number of heads that are left to train."""
        return sum(count for _, count in self.head_batches)

    @property
    def is_over(self) -> bool:
        """Return whether nothing is left to do."""
        return self.planned == self.done and not self.evaluations


def find_needs(
    run: LadderRun | SearchRun,
    work: RemainingWork,
    hours: float | None = None,
    reads_shifts: bool = True,
) -> Needs:
    """Count remaining work; ``hours`` is the budget of a search that has one in hours."""
    networks = [job.first.spec for job in work.networks]
    if isinstance(run, SearchRun):
        return _find_needs_of_search(run, networks, hours)
    planned, unfinished = len(run.planned_trials), 0
    for job in work.networks:
        unfinished += len(job.dependents)
    batches = []
    for job in work.head_batches:
        # A head that post-hoc methods share is trained once.
        heads = {trial.spec.head for trial in job.trials}
        if job.kind == "head":
            batches.append((job.first.spec, len(heads)))
    evaluations = None
    if reads_shifts or not run.options.shift:
        sets = [*(run.shift_sets if reads_shifts else ()), *[None] * bool(run.options.bootstrap)]
        evaluations = unfinished * len(sets) + sum(len(job.trials) for job in work.extra)
    return Needs(
        planned, planned - unfinished, networks, head_batches=batches, evaluations=evaluations
    )


def _find_needs_of_search(
    run: SearchRun, networks: Sequence[TrialSpec], hours: float | None
) -> Needs:
    definition, candidates = run.definition, run.definition.candidates
    baseline = {trial.spec.network_id for trial in candidates.baseline()}
    networks = [spec for spec in networks if spec.network_id in baseline]
    counts = count_suggestions(run.out, run.location.study_storage, run.length)
    if hours is not None:
        left = max(0.0, hours - spent_s(run.out) / run.at_once / 3600)
        return Needs(None, counts[0] if counts else 0, networks, hours=left)
    ended, planned = counts or (0, run.length)
    if counts is None:
        size = len(definition.points) if definition.sampler == "grid" else candidates.space.size
        planned = int(min(planned, size))
    # The defaults represent all suggestions.
    suggestion = candidates.trials(candidates.first()[0], 0)
    left_trials = [*suggestion] * max(0, planned - ended)
    batches = []
    largest = find_largest(definition, run.at_once)
    for job in make_plan(left_trials, set(), largest).head_batches:
        batches.append((job.first.spec, len(job.trials)))
    searched = []
    if candidates.kind == "network":
        searched = [trial.spec for trial in left_trials]
    return Needs(planned, ended, networks, searched=searched, head_batches=batches)


def count_parallel(run: LadderRun | SearchRun, threads: int) -> int:
    """Count the trials that this machine runs in parallel, each with some threads."""
    location = run.location
    if not location.uses_ray:
        return 1
    most = count_cores() // threads
    if location.gpus:
        most = min(most, int(torch.cuda.device_count() / location.gpus))
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
        trained = [spec for spec in specs if not spec.network.is_frozen]
        device = "cuda" if self.gpu or run.location.gpus else "cpu"
        times = [self._network_s(spec, device) for spec in trained]
        if times:
            self._add_seconds(NETWORKS, times, run, threads=trained[0].network.threads)
        if needs.head_batches:
            times = [self._heads_s(spec, count, device) for spec, count in needs.head_batches]
            self._add_seconds(HEADS, times, run, threads=HEAD_THREADS)
        if needs.hours:
            self.seconds[SEARCHES] = self.seconds.get(SEARCHES, 0.0) + 3600 * needs.hours
        return len(trained)

    def _add_seconds(
        self, activity: str, times: list[float], run: LadderRun | SearchRun, threads: int
    ) -> None:
        parallel = 1.0  # on a named GPU, which trains one after the other
        if self.gpu is None:
            # Trials that share a GPU take turns on it.
            parallel = max(1.0, count_parallel(run, threads) * (run.location.gpus or 1.0))
        # Parallel training takes at least as long as the longest one. A first NaN stays in max.
        longest = max(sum(times) / parallel, *times)
        self.seconds[activity] = self.seconds.get(activity, 0.0) + longest

    def _network_s(self, spec: TrialSpec, device: str) -> float:
        subject = f"{spec.network.backbone} on {spec.data.dataset}"
        if epochs := self._trained.get((_kind_of(spec), device)):
            source = f"measured, {len(epochs)} in the store"
            return self._note(subject, statistics.median(epochs), source) * spec.network.epochs
        slot, info = spec.network, spec.data.info
        if self.gpu is not None and info.size == RATES_SIZE:
            method, sizes = METHODS[slot.method], published_sizes(spec.data)
            execution = resolve_execution(
                slot.execution,
                torch.device(device),
                method.implementation.is_capturable,
                count_compiled_steps(slot, sizes.train),
                has_compiler=True,
            )
            rate = self.gpu.find_image_s(slot.backbone, execution, slot.precision)
            if rate is not None:
                # Forward passes take a third of a step.
                steps = sizes.train * (2 if "two_forward_passes" in method.needs else 1)
                return self._note(subject, rate[0] * (steps + sizes.select / 3), rate[1]) * (
                    slot.epochs
                )
        return self._note(subject, math.nan, "")

    def _heads_s(self, spec: TrialSpec, count: int, device: str) -> float:
        assert spec.head is not None
        subject = f"heads of {spec.head.method} on {spec.data.dataset}"
        key = canonical_json(spec.data), spec.network.backbone, _shape_of(spec.head), device
        seconds, source = math.nan, ""
        if key in self._finished_heads:
            total_s, epochs = self._finished_heads[key]
            seconds, source = total_s / epochs * count, f"earlier rows in {self.location.out}"
        elif self.gpu is not None:
            is_capturable = METHODS[spec.head.method].implementation.is_capturable
            execution = resolve_execution(
                spec.network.execution, torch.device(device), is_capturable
            )
            if (step := find_head_step(count, execution)) is not None:
                steps = math.ceil(published_sizes(spec.data).train / spec.head.batch_size)
                seconds, source = steps * step[0], step[1]
        return self._note(subject, seconds, source) * spec.head.epochs

    def _note(self, subject: str, epoch_s: float, source: str) -> float:
        text = "unknown: not measured"
        if not math.isnan(epoch_s):
            text = f"{epoch_s:.3g} s an epoch, {source}"
        self.sources.setdefault(subject, f"  {subject}: {text}")
        return epoch_s

    def _is_alike(self, gpu: str | None) -> bool:
        """Return whether results with torch's name of their GPU count as measured."""
        return self.gpu is None or self.gpu.is_named(gpu)

    @cached_property
    def _trained(self) -> dict[tuple[TrialSpec, str], list[float]]:
        """Seconds an epoch of the stored networks of each kind and device."""
        trained: dict[tuple[TrialSpec, str], list[float]] = {}
        for path in (Store(self.location.store).root / "networks").glob(f"*/{ARTIFACT_MANIFEST}"):
            with suppress(UserError):  # a damaged file
                manifest = read_manifest(path.parent)
                gpu, epochs = manifest.get("machine", {}).get("gpu"), len(manifest["history"])
                if epochs and self._is_alike(gpu):
                    kind = _kind_of(TrialSpec.build(**json.loads(manifest["spec"])))
                    key = kind, str(manifest.get("device"))
                    trained.setdefault(key, []).append(manifest["train_s"] / epochs)
        return trained

    @cached_property
    def _finished_heads(self) -> dict[Hashable, tuple[float, int]]:
        """Seconds and epochs of finished heads, by data, backbone, shape of the head and device."""
        sums: dict[Hashable, tuple[float, int]] = {}
        out = self.location.out
        for folder in {path.parent for path in out.glob("*/trials")} | {out}:
            for row in read_table(folder, "trials", columns=_COLUMNS).to_pylist():
                if row["head"] and row["status"] == "done" and self._is_alike(row["gpu"]):
                    slot = HeadSlot.build(**json.loads(row["head"]))
                    key = row["data"], row["backbone"], _shape_of(slot), row["device"]
                    seconds, epochs = sums.get(key, (0.0, 0))
                    sums[key] = seconds + row["wall_s"] / row["population"], epochs + slot.epochs
        return sums


def _kind_of(spec: TrialSpec) -> TrialSpec:
    """Return the data and network of a spec without its seed, length and execution of training."""
    other = {"seed": 0, "epochs": 1, "milestones": (), "execution": "auto"}
    network = spec.network.model_copy(update=other)
    return spec.model_copy(update={"network": network, "head": None, "posthoc": None})


def _shape_of(slot: HeadSlot) -> Hashable:
    """Return the settings that heads of a batch share, except the length of training."""
    return head_batch_key(slot.model_copy(update={"epochs": 1}))
