"""Sums over ladders and searches: what is trained and evaluated, on how much disk, how long."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from optuna.storages import InMemoryStorage

from tune_calib.data.corruptions import SEVERITIES
from tune_calib.data.splits import Sizes, published_sizes
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.population import population_key
from tune_calib.engine.shifts import shifted_bank_key
from tune_calib.engine.store import Store
from tune_calib.experiments.forecast.clock import Clock, Rate, kind_of
from tune_calib.experiments.forecast.cost import made
from tune_calib.experiments.forecast.disk import bytes_of_head, bytes_of_network
from tune_calib.experiments.forecast.needs import Needs
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.ray.look import Look
from tune_calib.tuning.search.job import Question
from tune_calib.tuning.search.objective import Standing
from tune_calib.tuning.search.study import SearchStudy

STARTS, NETWORKS, HEADS = "starts of Ray", "networks", "heads"
EVALUATION, LOOKS, REPORT = "evaluation", "closer looks", "report"
SAMPLER, SEARCHES = "sampler", "searches for some hours"
ORDER = (STARTS, NETWORKS, HEADS, EVALUATION, SAMPLER, SEARCHES, LOOKS, REPORT)

RAY_S, CREW_S = 6.0, 8.0
"""Seconds in which Ray starts and ends, and in which its processes import what trials need, on two
cores with nothing else to do; slower disks and busy cores take longer."""

TRIAL_S = 0.1
"""Seconds of a Ray trial beside its work: it is handed out, told of, and its rows are written."""

REPORT_S = 8.0
"""Seconds of a report, most of them figures."""

CHECKPOINT_S, DISK = 0.01, 300e6
"""Seconds of writing a checkpoint, and bytes a second."""


@dataclass
class Forecast:
    """Sums over ladders and searches.

    Attributes:
        store: artifacts.
        clocks: rates by device, ``cpu`` or ``cuda``.
        networks: to train, by id; each once, wherever it is needed.
        in_store: networks that are there already, by id.
        banks: bytes of the feature banks to build, by identity.
        network_bytes: of all networks to train.
        head_bytes: of the heads that are kept: those of searches are not.
        checkpoint_bytes: of the networks in training at one time, at most.
        seconds: by what takes them, those side by side counted once; None if a rate is unknown.
        sources: where the rates are from, by what they are of.
        sizes: bytes of a network and of its checkpoint, by what it is but for its seed.
        heads: bytes of a kept head, by its shape.
        shifted: features of shift sets, by network and set, each made once.
    """

    store: Store
    clocks: dict[str, Clock]
    networks: dict[str, TrialSpec] = field(default_factory=dict)
    in_store: set[str] = field(default_factory=set)
    banks: dict[str, int] = field(default_factory=dict)
    network_bytes: int = 0
    head_bytes: int = 0
    checkpoint_bytes: int = 0
    seconds: dict[str, float | None] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    shifted: set[tuple[str, str]] = field(default_factory=set)

    def add(self, needs: Needs) -> int:
        """Add what a ladder or search needs; returns how many networks it trains."""
        clock = self.clocks["cuda" if needs.gpus else "cpu"]
        there = {i for i, spec in needs.networks.items() if has_network(spec, self.store)}
        self.in_store |= there
        new = {i: s for i, s in needs.networks.items() if i not in there | self.networks.keys()}
        self.networks |= new
        trained = [*new.values(), *[needs.like] * needs.searched] if needs.like else [*new.values()]
        if not needs.is_over:
            if needs.uses_ray:
                starts = RAY_S + CREW_S * needs.crews
                trials = needs.ray_trials + len(needs.looks)
                self._take(STARTS, starts + TRIAL_S * trials / needs.heads_at_once)
            self._take(REPORT, REPORT_S)
        self._add_networks([spec for spec in trained if spec], needs, clock)
        for spec, slots in needs.populations:
            self._add_bank(spec, slots[0], needs, clock)
            self._add_heads(spec, slots, needs, clock)
        self._add_evaluations(needs, clock)
        for look in needs.looks:
            self._add_look(look, needs, clock)
        if (one_s := ask_s(needs)) is not None:
            self._take(SAMPLER, asks_s(needs, one_s))
            self.sources[f"a suggestion of tpe for {needs.name}"] = (
                f"{1000 * one_s:.0f} ms after {KNOWN}, timed now; sampler: random asks in no time"
            )
        if needs.hours:
            self._take(SEARCHES, 3600 * needs.hours)
        return sum(spec is not None and not spec.network.is_given for spec in trained)

    @property
    def parts(self) -> dict[str, float | None]:
        """What takes how long, in the order in which it is done."""
        return {what: self.seconds[what] for what in ORDER if what in self.seconds}

    @property
    def whole(self) -> float | None:
        """Seconds of all; None if some are unknown."""
        known = [seconds for seconds in self.seconds.values() if seconds is not None]
        return sum(known) if len(known) == len(self.seconds) else None

    def _take(self, what: str, seconds: float | None) -> None:
        """Some seconds more; what is unknown stays so."""
        before = self.seconds.get(what, 0.0)
        both = None if before is None or seconds is None else before + seconds
        self.seconds[what] = both

    def _add_networks(self, specs: Sequence[TrialSpec], needs: Needs, clock: Clock) -> None:
        seconds: list[float | None] = []
        for spec in specs:
            key = str(kind_of(spec))
            if key not in self.sizes:
                self.sizes[key] = bytes_of_network(spec, clock.sizes(spec.data).train)
            weights, state = self.sizes[key]
            self.network_bytes += weights
            if spec.network.is_given:
                seconds.append(_all_images_s(spec, clock))
                continue
            at_once = min(needs.at_once, len(specs))
            self.checkpoint_bytes = max(self.checkpoint_bytes, state * at_once)
            rate = clock.network(spec)
            self._note(clock.told(spec), rate, clock.why_unknown)
            judged = _all_images_s(spec, clock)
            if rate is None or judged is None:
                seconds.append(None)
                continue
            epoch_s = rate.seconds + CHECKPOINT_S + state / DISK
            seconds.append(epoch_s * spec.network.epochs + judged)
        if specs:
            self._take(NETWORKS, _side_by_side(seconds, needs.at_once))

    def _add_bank(self, spec: TrialSpec, head: HeadSlot, needs: Needs, clock: Clock) -> None:
        key = bank_key(spec, head)
        is_there = spec.data.imported is not None or self.store.holds("banks", key.identity)
        if is_there or key.identity in self.banks:
            return
        sizes, info = clock.sizes(spec.data), spec.data.info
        is_search = needs.question is not None
        count = max(1, key.views) * sizes.train + sizes.select + sizes.calib
        count += 0 if is_search else sizes.test
        width = made(spec, sizes.train)[0].width
        # Features and logits in 4 bytes each, the label in 8.
        self.banks[key.identity] = count * (4 * (width + info.classes) + 8)
        if clock.is_here:
            self._take(HEADS, count * clock.image_s(spec) / needs.heads_at_once)

    def _add_heads(
        self, spec: TrialSpec, slots: Sequence[HeadSlot], needs: Needs, clock: Clock
    ) -> None:
        rate = clock.heads(spec, slots)
        what = f"heads of {slots[0].method} on {spec.data.dataset}"
        self._note(what, rate, clock.why_unknown)
        self._take(HEADS, rate.seconds * slots[0].epochs / needs.heads_at_once if rate else None)

    def _add_evaluations(self, needs: Needs, clock: Clock) -> None:
        is_search = needs.question is not None
        for spec, count in needs.evaluated:
            seconds = clock.evaluation_s(spec, is_search) * count
            self._take(EVALUATION, seconds / needs.heads_at_once)
            if spec.head is not None and not is_search:
                self.head_bytes += self._bytes_of_head(spec, spec.head)

    def _bytes_of_head(self, spec: TrialSpec, head: HeadSlot) -> int:
        key = f"{canonical_json(spec.data)} {spec.network.backbone} {population_key(head)}"
        if key not in self.heads:
            self.heads[key] = bytes_of_head(spec, head)
        return self.heads[key]

    def _add_look(self, look: Look, needs: Needs, clock: Clock) -> None:
        spec, count = look.trials[0][0].spec, len(look.trials)
        if look.shift is None:
            seconds: float | None = clock.intervals_s(spec, look.resamples) * count
        else:
            is_foreign = look.shift.startswith("ood/")
            parts = 1 if is_foreign else len(SEVERITIES)
            images = _images_of(look.shift, clock.sizes(spec.data))
            seconds = clock.shifted_s(spec, images, look.resamples, is_foreign) * parts * count
            made_once = shifted_bank_key(spec).identity, look.shift
            if made_once not in self.shifted:
                self.shifted.add(made_once)
                passed = images * parts * clock.image_s(spec) if clock.is_here else None
                seconds = None if passed is None else seconds + passed
        self._take(LOOKS, None if seconds is None else seconds / needs.at_once)

    def _note(self, what: str, rate: Rate | None, why: str) -> None:
        self.sources.setdefault(
            what,
            f"{rate.seconds:.3g} s an epoch, {rate.source}"
            if rate
            else f"unknown: {why}, and none measured",
        )


def _all_images_s(spec: TrialSpec, clock: Clock) -> float | None:
    """Seconds in which a network, when it is finished, meets each image once."""
    sizes = clock.sizes(spec.data)
    count = sizes.train + sizes.select + sizes.calib + sizes.test
    return count * clock.image_s(spec) if clock.is_here else None


def _images_of(shift: str, sizes: Sizes) -> int:
    """Images of a part of a shift set; as many as the test split where it tells no others."""
    name = shift.partition("/")[2]
    is_foreign = shift.startswith("ood/") and name in DATASETS
    if is_foreign and DATASETS[name].published is not None:
        return published_sizes(DataSlot(dataset=name)).test
    return sizes.test


def _side_by_side(seconds: Sequence[float | None], at_once: int) -> float | None:
    """Of trials that run a few at a time: never less than the longest."""
    known = [second for second in seconds if second is not None]
    if len(known) < len(seconds):
        return None
    return max(sum(known) / at_once, max(known, default=0.0))


MANY_ASKS = 1000
"""Suggestions from which on the sampler's own time is worth counting."""

KNOWN = 200
"""Suggestions behind which one is timed."""


def ask_s(needs: Needs) -> float | None:
    """Seconds that TPE takes for a suggestion, timed now; None where it is not worth a word."""
    question, planned = needs.question, needs.planned or 0
    if question is None or question.sampler != "tpe" or planned < MANY_ASKS:
        return None
    return _time_ask(question)


def asks_s(needs: Needs, one_s: float) -> float:
    """Seconds of all suggestions that are left, given those of one."""
    assert needs.question is not None
    planned = needs.planned or 0
    # Of several objectives every suggestion is read, so that an ask grows with their number.
    is_bounded = len(needs.question.objective.metrics) == 1
    growth = 1.0 if is_bounded else (planned + needs.done) / (2 * KNOWN)
    return one_s * growth * (planned - needs.done)


def _time_ask(question: Question) -> float:
    """Seconds that TPE takes to suggest after ``KNOWN`` suggestions."""
    storage, space = InMemoryStorage(), question.candidates().space
    objective, seed = question.objective, question.sampler_seed
    drawn = SearchStudy(storage, "ask", space, objective, "random", seed, [])
    for number in range(KNOWN):
        drawn.suggestion(number)
        values = (number / KNOWN,) * len(objective.metrics)
        drawn.tell(number, Standing("done", values, 0.0))
    asked = SearchStudy(storage, "ask", space, objective, "tpe", seed, [])
    started = time.monotonic()
    asked.suggestion(KNOWN)
    return time.monotonic() - started
