"""The plan of a sweep file in words: what would be done, on how much disk, for how long."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from optuna.storages import InMemoryStorage
from tabulate import tabulate
from torch import Tensor

from tune_calib.data.base import info_of
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.population import tensors_of
from tune_calib.engine.store import Store
from tune_calib.gpus import GPUS, Gpu
from tune_calib.methods._base import HeadContext
from tune_calib.registry import METHODS
from tune_calib.slots.head import HeadSlot
from tune_calib.spec import TrialSpec
from tune_calib.tuning.dry_run.clock import Clock, Rate, kind_of
from tune_calib.tuning.dry_run.cost import SHARE, made
from tune_calib.tuning.dry_run.needs import Needs, needs_of
from tune_calib.tuning.dry_run.stated import StatedClock
from tune_calib.tuning.search.job import Question
from tune_calib.tuning.search.objective import Standing
from tune_calib.tuning.search.study import SearchStudy
from tune_calib.tuning.sweep.entries import Work
from tune_calib.tuning.sweep.file import ReadFile

MANY_ASKS = 1000
"""Suggestions from which on the sampler's own time is worth a word."""


@dataclass
class Forecast:
    """Sums over the ladders and searches of a file.

    Attributes:
        store: artifacts.
        clocks: rates by device, ``cpu`` or ``cuda``.
        networks: to train, by id; each once, wherever it is needed.
        in_store: networks that are there already, by id.
        banks: bytes of the feature banks to build, by identity.
        network_bytes: of all networks to train.
        head_bytes: of the heads that are kept: those of searches are not.
        checkpoint_bytes: of the networks in training at one time, at most.
        network_s: seconds, those side by side counted once; None if a rate is unknown.
        head_s: as ``network_s``, with the feature banks.
        searching_s: budgets of searches in hours.
        sources: where the rates are from, by what they are of.
        sizes: bytes of a network and of its checkpoint, by what it is but for its seed.
    """

    store: Store
    clocks: dict[str, Clock]
    networks: dict[str, TrialSpec] = field(default_factory=dict)
    in_store: set[str] = field(default_factory=set)
    banks: dict[str, int] = field(default_factory=dict)
    network_bytes: int = 0
    head_bytes: int = 0
    checkpoint_bytes: int = 0
    network_s: float | None = 0.0
    head_s: float | None = 0.0
    searching_s: float = 0.0
    sources: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, needs: Needs) -> int:
        """Add what a ladder or search needs; returns how many networks it trains."""
        clock = self.clocks["cuda" if needs.gpus else "cpu"]
        there = {i for i, spec in needs.networks.items() if has_network(spec, self.store)}
        self.in_store |= there
        new = {i: s for i, s in needs.networks.items() if i not in there | self.networks.keys()}
        self.networks |= new
        trained = [*new.values(), *[needs.like] * needs.searched] if needs.like else [*new.values()]
        self._add_networks([spec for spec in trained if spec], needs, clock)
        for spec, slots in needs.populations:
            self._add_bank(spec, slots[0], needs, clock)
            self._add_heads(spec, slots, needs, clock)
            if needs.question is None:
                self.head_bytes += len(slots) * _bytes_of_head(spec, slots[0])
        self.searching_s += 3600 * (needs.hours or 0.0)
        return sum(spec is not None and not spec.network.is_given for spec in trained)

    def _add_networks(self, specs: Sequence[TrialSpec], needs: Needs, clock: Clock) -> None:
        seconds = []
        for spec in specs:
            key = str(kind_of(spec))
            if key not in self.sizes:
                self.sizes[key] = _bytes(spec, clock.sizes(spec.data).train)
            weights, state = self.sizes[key]
            self.network_bytes += weights
            if spec.network.is_given:
                seconds.append(self._pass_s(spec, clock))
                continue
            at_once = min(needs.at_once, len(specs))
            self.checkpoint_bytes = max(self.checkpoint_bytes, state * at_once)
            rate = clock.network(spec)
            self._note(clock.told(spec), rate, clock.why_unknown)
            seconds.append(rate.seconds * spec.network.epochs if rate else None)
        self.network_s = _sum(self.network_s, _side_by_side(seconds, needs.at_once))

    def _pass_s(self, spec: TrialSpec, clock: Clock) -> float | None:
        """Seconds in which a given network, which is not trained, meets each image once."""
        sizes = clock.sizes(spec.data)
        count = sizes.train + sizes.select + sizes.calib + sizes.test
        return count * clock.image_s(spec) if clock.is_here else None

    def _add_bank(self, spec: TrialSpec, head: HeadSlot, needs: Needs, clock: Clock) -> None:
        key = bank_key(spec, head)
        is_there = spec.data.imported is not None or self.store.holds("banks", key.identity)
        if is_there or key.identity in self.banks:
            return
        sizes, info = clock.sizes(spec.data), info_of(spec.data)
        is_search = needs.question is not None
        count = max(1, key.views) * sizes.train + sizes.select + sizes.calib
        count += 0 if is_search else sizes.test
        width = made(spec, sizes.train)[0].width
        # Features and logits in 4 bytes each, the label in 8.
        self.banks[key.identity] = count * (4 * (width + info.classes) + 8)
        if clock.is_here:
            seconds = count * clock.image_s(spec)
            self.head_s = _sum(self.head_s, seconds / needs.heads_at_once)

    def _add_heads(
        self, spec: TrialSpec, slots: Sequence[HeadSlot], needs: Needs, clock: Clock
    ) -> None:
        rate = clock.heads(spec, slots)
        what = f"heads of {slots[0].method} on {spec.data.dataset}"
        self._note(what, rate, clock.why_unknown)
        seconds = rate.seconds * slots[0].epochs / needs.heads_at_once if rate else None
        self.head_s = _sum(self.head_s, seconds)

    def _note(self, what: str, rate: Rate | None, why: str) -> None:
        self.sources.setdefault(
            what,
            f"{rate.seconds:.3g} s an epoch, {rate.source}"
            if rate
            else f"unknown: {why}, and none measured",
        )


def forecast(file: ReadFile, works: Sequence[Work]) -> str:
    """What a sweep would do, as text; starts nothing and writes nothing.

    Args:
        file: the sweep file.
        works: what it asks for.
    """
    out, store, root = file.out, file.store, file.content.data_root
    artifacts, named = Store(store), file.content.gpu_model
    gpu = GPUS[named] if named else None
    cpu, cuda = (Clock(out, artifacts, root, torch.device(name)) for name in ("cpu", "cuda"))
    if gpu is not None:
        cpu = cuda = StatedClock(out, artifacts, root, torch.device("cuda"), gpu=gpu)
    sums, table, asks = Forecast(artifacts, {"cpu": cpu, "cuda": cuda}), [], []
    counts: list[tuple[int, int, int]] = []
    study_storage = file.content.study_storage
    all_needs = [needs_of(work, out / work.name, study_storage) for work in works]
    if gpu is not None:  # trials that share it share its rates too
        all_needs = [replace(needs, at_once=1, heads_at_once=1) for needs in all_needs]
    for work, needs in zip(works, all_needs, strict=True):
        trained = sums.add(needs)
        planned = f"{needs.hours:.3g} h more" if needs.hours is not None else str(needs.planned)
        counts.append((trained, needs.heads, needs.ray_trials))
        table.append([needs.name, planned, needs.done, *counts[-1]])
        asks += _asks(work, needs)
    titles = ["folder", "planned", "done", "networks to train", "heads to train", "Ray trials"]
    lines = [f"{file.path} in {out}; nothing was started", tabulate(table, headers=titles)]
    told = [*_recipes(works), *_totals(sums, all_needs, counts), *_hours(sums, gpu), *asks]
    return "\n".join([*lines, "", *told])


def _recipes(works: Sequence[Work]) -> list[str]:
    """The recipe in force of each entry."""
    entries: dict[str, dict[str, None]] = {}
    for work in works:
        described = work.asked.recipe_described or "no recipe"
        own = "; each method by its authors' recipe" if work.asked.own_recipes else ""
        entries.setdefault(described + own, {})[str(work.position[1])] = None
    return [f"{', '.join(names)}: {described}" for described, names in entries.items()]


def _totals(
    sums: Forecast, all_needs: Sequence[Needs], counts: Sequence[tuple[int, int, int]]
) -> list[str]:
    trained, heads, ray_trials = (sum(column) for column in zip(*counts, strict=True))
    lines = [
        f"networks: {trained} to train, {len(sums.in_store)} in {sums.store.root} already",
        f"heads: {heads}; Ray trials: {ray_trials}",
    ]
    for gpus in sorted({needs.gpus for needs in all_needs if needs.gpus}):
        here = torch.cuda.device_count()
        lines.append(
            f"GPU slots: {round(1 / gpus)} trials on each GPU; {here} GPUs on this machine"
        )
    if not any(needs.gpus for needs in all_needs):
        lines.append("GPU slots: none asked for")
    banks = sum(sums.banks.values())
    lines.append(
        f"disk: {_size(sums.network_bytes + banks + sums.head_bytes)} = networks "
        f"{_size(sums.network_bytes)} + {len(sums.banks)} feature banks {_size(banks)} + heads "
        f"{_size(sums.head_bytes)}; while networks train, checkpoints "
        f"{_size(sums.checkpoint_bytes)} more"
    )
    if any(needs.planned is None for needs in all_needs):
        lines.append("searches for some hours train as many as fit; they are not counted above")
    return lines


def _hours(sums: Forecast, gpu: Gpu | None) -> list[str]:
    parts = {"networks": sums.network_s, "heads": sums.head_s}
    if sums.searching_s:
        parts["searches for some hours"] = sums.searching_s
    known = " + ".join(f"{name} {_duration(seconds)}" for name, seconds in parts.items())
    whole = _sum(*parts.values())
    where = f"one {gpu.name}" if gpu else "this machine"
    lines = [f"time on {where}, without starts of Ray: about {_duration(whole)} = {known}"]
    if gpu is not None:
        peaks = ", ".join(f"{name} {rate:g}" for name, rate in gpu.teraflops.items())
        lines.append(
            f"  stated rates: {SHARE:.0%} of {gpu.name}'s peaks, TFLOP/s {peaks}; memory "
            f"{gpu.bandwidth:g} GB/s ({gpu.source})"
        )
    return [*lines, *_sources(sums.sources)]


def _sources(sources: Mapping[str, str]) -> list[str]:
    """Where rates are from; methods that share one in one line."""
    alike: dict[tuple[str, str], list[str]] = {}
    for what, source in sources.items():
        on, by, method = what.partition(" by ")
        alike.setdefault((on + by, source), []).append(method)
    return [f"  {on}{', '.join(methods)}: {source}" for (on, source), methods in alike.items()]


def _asks(work: Work, needs: Needs) -> list[str]:
    """A word on the time of a sampler that reads what it knows."""
    question, planned = needs.question, needs.planned or 0
    if question is None or question.sampler != "tpe" or planned < MANY_ASKS:
        return []
    ask_s = _time_ask(question)
    # Of several objectives every suggestion is read, so that an ask grows with their number.
    is_bounded = len(question.objective.metrics) == 1
    growth = 1.0 if is_bounded else (planned + needs.done) / (2 * MANY_ASKS)
    whole = ask_s * growth * (planned - needs.done)
    return [
        f"{work.name}: tpe itself takes about {_duration(whole)} for {planned} suggestions (one "
        f"after {MANY_ASKS} took {1000 * ask_s:.0f} ms now); "
        "sampler: random asks in no time"
    ]


def _time_ask(question: Question) -> float:
    """Seconds that TPE takes to suggest after ``MANY_ASKS`` suggestions."""
    storage, space = InMemoryStorage(), question.candidates().space
    objective, seed = question.objective, question.sampler_seed
    drawn = SearchStudy(storage, "ask", space, objective, "random", seed, [])
    for number in range(MANY_ASKS):
        drawn.suggestion(number)
        values = (number / MANY_ASKS,) * len(objective.metrics)
        drawn.tell(number, Standing("done", values, 0.0))
    asked = SearchStudy(storage, "ask", space, objective, "tpe", seed, [])
    started = time.monotonic()
    asked.suggestion(MANY_ASKS)
    return time.monotonic() - started


def _bytes(spec: TrialSpec, samples: int) -> tuple[int, int]:
    """Bytes of a network's artifact, and of its checkpoint with the optimiser's moments."""
    network, method = made(spec, samples)
    weights = _size_of([*network.state_dict().values(), *method.state_dict().values()])
    moments = {"sgd": 1 if spec.network.momentum else 0}.get(spec.network.optimizer, 2)
    trained = _size_of([*network.parameters(), *method.parameters()])
    best = 0 if spec.network.select == "last" else weights
    return weights, weights + moments * trained + best


def _bytes_of_head(spec: TrialSpec, slot: HeadSlot) -> int:
    """Bytes of a kept classifier: the head, and what it knows of the network's own."""
    record = spec.data.import_record
    width = made(spec, 1)[0].width if record is None else record.width
    weight = torch.zeros(info_of(spec.data).classes, width)
    own = weight, weight[:, 0]
    context = HeadContext(width, len(weight), slot.epochs, *own, 1.0, weight.device)
    method = METHODS[slot.method].implementation([slot], context)
    # What a method draws while it trains is kept too.
    method.begin_epoch(0)
    method.begin_batch(0)
    return _size_of([*own, *tensors_of(method).values()])


def _size_of(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _side_by_side(seconds: Sequence[float | None], at_once: int) -> float | None:
    """Of trials that run a few at a time: never less than the longest."""
    known = [second for second in seconds if second is not None]
    if len(known) < len(seconds):
        return None
    return max(sum(known) / at_once, max(known, default=0.0))


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    if seconds < 360:
        return f"{seconds:.0f} s"
    hours = seconds / 3600
    return f"{hours:.2g} h" if hours < 10 else f"{hours:,.0f} h"
