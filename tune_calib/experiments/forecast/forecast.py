"""Sums over ladders and searches: what is trained and evaluated, on how much disk, how long."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tune_calib.data.corruptions import SEVERITIES
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.population import population_key
from tune_calib.engine.shifts import shifted_bank_key
from tune_calib.engine.store import Store
from tune_calib.experiments.forecast.needs import Needs
from tune_calib.experiments.forecast.rates import Rate, Rates, kind_of
from tune_calib.experiments.forecast.timed import bytes_of_head, bytes_of_network, made
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec, canonical_json
from tune_calib.tuning.ray.extra import ExtraTrial

STARTS, NETWORKS, HEADS = "starts of Ray", "networks", "heads"
EVALUATION, LOOKS, REPORT = "evaluation", "closer looks", "report"
SEARCHES = "searches for some hours"
ORDER = (STARTS, NETWORKS, HEADS, EVALUATION, SEARCHES, LOOKS, REPORT)

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
        rates: by device, ``cpu`` or ``cuda``.
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
    rates: dict[str, Rates]
    networks: dict[str, TrialSpec] = field(default_factory=dict)
    in_store: set[str] = field(default_factory=set)
    banks: dict[str, int] = field(default_factory=dict)
    network_bytes: int = 0
    head_bytes: int = 0
    checkpoint_bytes: int = 0
    seconds: dict[str, float | None] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    heads: dict[object, int] = field(default_factory=dict)
    shifted: set[tuple[str, str]] = field(default_factory=set)

    def add(self, needs: Needs) -> int:
        """Add what a ladder or search needs; return how many networks it trains."""
        rates = self.rates["cuda" if needs.gpus else "cpu"]
        there = {i for i, spec in needs.networks.items() if has_network(spec, self.store)}
        self.in_store |= there
        new = {i: s for i, s in needs.networks.items() if i not in there | self.networks.keys()}
        self.networks |= new
        trained = [*new.values(), *([needs.like] * needs.searched if needs.like else [])]
        if not needs.is_over:
            if needs.uses_ray:
                trials = needs.ray_trials + len(needs.looks)
                starts = RAY_S + CREW_S * needs.crews
                self._take(STARTS, starts + TRIAL_S * trials / needs.heads_at_once)
            self._take(REPORT, REPORT_S)
        self._add_networks(trained, needs, rates)
        for spec, slots in needs.populations:
            self._add_bank(spec, slots[0], needs, rates)
            rate = rates.heads(spec, slots)
            self._note(f"heads of {slots[0].method} on {spec.data.dataset}", rate)
            epochs = slots[0].epochs / needs.heads_at_once
            self._take(HEADS, rate.seconds * epochs if rate else None)
        for spec, count in needs.evaluated:
            self._add_evaluation(spec, count, needs, rates)
        for look in needs.looks:
            self._add_look(look, needs, rates)
        if needs.hours:
            self._take(SEARCHES, 3600 * needs.hours)
        return sum(not spec.network.is_frozen for spec in trained)

    @property
    def parts(self) -> dict[str, float | None]:
        """What takes how long, in the order in which it is done."""
        return {what: self.seconds[what] for what in ORDER if what in self.seconds}

    @property
    def whole(self) -> float | None:
        """Seconds of all; None if some are unknown."""
        known = [seconds for seconds in self.seconds.values() if seconds is not None]
        return sum(known) if len(known) == len(self.seconds) else None

    def describe_sources(self) -> list[str]:
        """Return where the rates are from, in a line each."""
        return [f"  {what}: {source}" for what, source in self.sources.items()]

    def _take(self, what: str, seconds: float | None) -> None:
        """Add some seconds; what is unknown stays so."""
        before = self.seconds.get(what, 0.0)
        self.seconds[what] = None if before is None or seconds is None else before + seconds

    def _add_networks(self, specs: Sequence[TrialSpec], needs: Needs, rates: Rates) -> None:
        seconds: list[float | None] = []
        for spec in specs:
            sizes, key = rates.sizes(spec.data), str(kind_of(spec))
            if key not in self.sizes:
                self.sizes[key] = bytes_of_network(spec, sizes.train)
            weights, state = self.sizes[key]
            self.network_bytes += weights
            image_s = rates.image_s(spec)
            # When it is finished, it meets each image once.
            every = sizes.train + sizes.select + sizes.calib + sizes.test
            judged = None if image_s is None else every * image_s
            if not spec.network.is_frozen:
                at_once = min(needs.at_once, len(specs))
                self.checkpoint_bytes = max(self.checkpoint_bytes, state * at_once)
                rate = rates.network(spec)
                self._note(f"{spec.network.backbone} on {spec.data.dataset}", rate)
                if rate is None or judged is None:
                    judged = None
                else:
                    epoch_s = rate.seconds + CHECKPOINT_S + state / DISK
                    judged += epoch_s * spec.network.epochs
            seconds.append(judged)
        if specs:
            self._take(NETWORKS, _side_by_side(seconds, needs.at_once))

    def _add_bank(self, spec: TrialSpec, head: HeadSlot, needs: Needs, rates: Rates) -> None:
        key = bank_key(spec, head)
        is_there = spec.data.imported is not None or self.store.holds("banks", key.identity)
        if is_there or key.identity in self.banks:
            return
        sizes = rates.sizes(spec.data)
        count = max(1, key.views) * sizes.train + sizes.select + sizes.calib
        count += 0 if needs.question else sizes.test
        width = made(spec, sizes.train)[0].width
        # Features and logits in 4 bytes each, the label in 8.
        self.banks[key.identity] = count * (4 * (width + spec.data.info.classes) + 8)
        if (image_s := rates.image_s(spec)) is not None:
            self._take(HEADS, count * image_s / needs.heads_at_once)

    def _add_evaluation(self, spec: TrialSpec, count: int, needs: Needs, rates: Rates) -> None:
        sizes = rates.sizes(spec.data)
        samples = sizes.select + sizes.calib + (0 if needs.question else sizes.test)
        seconds = rates.evaluation_s(spec, samples) * count
        self._take(EVALUATION, seconds / needs.heads_at_once)
        if spec.head is not None and needs.question is None:
            shape = canonical_json(spec.data), spec.network.backbone, population_key(spec.head)
            if shape not in self.heads:
                self.heads[shape] = bytes_of_head(spec, spec.head)
            self.head_bytes += self.heads[shape]

    def _add_look(self, look: ExtraTrial, needs: Needs, rates: Rates) -> None:
        spec, samples = look.trials[0][0].spec, rates.sizes(look.trials[0][0].spec.data).test
        if look.shift is not None and not look.shift.startswith("ood/"):
            samples *= len(SEVERITIES)
        one_s = rates.draws_s(spec, samples, look.resamples) if look.resamples else 0.0
        one_s += rates.evaluation_s(spec, samples) if look.shift else 0.0
        seconds: float | None = one_s * len(look.trials)
        made_once = shifted_bank_key(spec).identity, look.shift or ""
        if look.shift is not None and made_once not in self.shifted:
            self.shifted.add(made_once)
            image_s = rates.image_s(spec)
            seconds = None if image_s is None else one_s * len(look.trials) + samples * image_s
        self._take(LOOKS, None if seconds is None else seconds / needs.at_once)

    def _note(self, what: str, rate: Rate | None) -> None:
        unknown = "unknown: no such GPU or cores here, and none measured"
        told = f"{rate.seconds:.3g} s an epoch, {rate.source}" if rate else unknown
        self.sources.setdefault(what, told)


def _side_by_side(seconds: Sequence[float | None], at_once: int) -> float | None:
    """Return the seconds of trials that run a few at a time: never less than the longest."""
    known = [second for second in seconds if second is not None]
    if len(known) < len(seconds):
        return None
    return max(sum(known) / at_once, max(known, default=0.0))
