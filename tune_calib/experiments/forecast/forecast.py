"""Sum over ladders and searches what is trained and evaluated, on how much disk, and how long."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tune_calib.data.corruptions import SEVERITIES
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.bank import bank_key
from tune_calib.engine.extra import shifted_bank_key
from tune_calib.engine.store import Store
from tune_calib.experiments.forecast.measure import build_empty
from tune_calib.experiments.forecast.needs import Needs
from tune_calib.experiments.forecast.rates import Rate, Rates
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.extra import ExtraTrial

STARTS, NETWORKS, HEADS = "starts of Ray", "networks", "heads"
EVALUATION, LOOKS, REPORT = "evaluation", "closer looks", "report"
SEARCHES = "searches for some hours"
ORDER = (STARTS, NETWORKS, HEADS, EVALUATION, SEARCHES, LOOKS, REPORT)

RAY_S, TUNER_S = 6.0, 8.0
"""Seconds in which Ray starts and ends, and in which its processes import what trials need, on two
cores with nothing else to do; slower disks and busy cores take longer."""

TRIAL_S = 0.1
"""Seconds of a Ray trial beside its work: scheduling, reports, and writing its rows."""

REPORT_S = 8.0
"""Seconds of a report, most of them figures."""

CHECKPOINT_S, DISK = 0.01, 300e6
"""Seconds of writing a checkpoint, and bytes a second."""


@dataclass
class Forecast:
    """Sums over ladders and searches."""

    store: Store
    rates: dict[str, Rates]  # by device, cpu or cuda
    # To train, by id; each once, wherever it is needed.
    networks: dict[str, TrialSpec] = field(default_factory=dict)
    in_store: set[str] = field(default_factory=set)
    banks: dict[str, int] = field(default_factory=dict)  # bytes of those to build, by identity
    network_bytes: int = 0
    head_bytes: int = 0  # of heads that are kept: those of searches are not
    checkpoint_bytes: int = 0  # of the networks in training at one time, at most
    # By what takes them, those side by side counted once; NaN if a rate is unknown.
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ORDER, 0.0))
    sources: dict[str, str] = field(default_factory=dict)  # of rates, by what they are of
    # Features of shift sets, by network and set, each made once.
    shifted: set[tuple[str, str]] = field(default_factory=set)

    def add(self, needs: Needs) -> int:
        """Add what a ladder or search needs; return how many networks it trains."""
        rates = self.rates["cuda" if needs.job.location.gpus else "cpu"]
        there = {i for i, spec in needs.networks.items() if has_network(spec, self.store)}
        self.in_store |= there
        new = {i: s for i, s in needs.networks.items() if i not in there | self.networks.keys()}
        self.networks |= new
        trained = [*new.values(), *needs.searched]
        if not needs.is_over:
            if needs.job.location.uses_ray:
                trials = needs.ray_trials + len(needs.looks)
                starts = RAY_S + TUNER_S * needs.tuners
                self.seconds[STARTS] += starts + TRIAL_S * trials / needs.heads_at_once
            self.seconds[REPORT] += REPORT_S
        self._add_networks(trained, needs.at_once, rates)
        for spec, slots in needs.populations:
            self._add_bank(spec, slots[0], needs, rates)
            rate = rates.heads(spec, slots)
            self._note(f"heads of {slots[0].method} on {spec.data.dataset}", rate)
            self.seconds[HEADS] += rate.seconds * slots[0].epochs / needs.heads_at_once
        for spec, count in needs.evaluated:
            self._add_evaluation(spec, count, needs, rates)
        for look in needs.looks:
            self._add_look(look, needs, rates)
        self.seconds[SEARCHES] += 3600 * (needs.hours or 0.0)
        return sum(not spec.network.is_frozen for spec in trained)

    @property
    def parts(self) -> dict[str, float]:
        """Return the seconds of what takes any, in the order in which it is done."""
        return {what: seconds for what, seconds in self.seconds.items() if seconds}

    @property
    def whole(self) -> float:
        """Return the seconds of all; NaN if some are unknown."""
        return sum(self.seconds.values())

    def _add_networks(self, specs: Sequence[TrialSpec], at_once: int, rates: Rates) -> None:
        seconds = [0.0]
        for spec in specs:
            sizes = rates.sizes(spec.data)
            weights, state = rates.network_bytes(spec)
            self.network_bytes += weights
            # When it is finished, it meets each image once.
            every = sizes.train + sizes.select + sizes.calib + sizes.test
            seconds.append(every * rates.image_s(spec))
            if not spec.network.is_frozen:
                state_of_all = state * min(at_once, len(specs))
                self.checkpoint_bytes = max(self.checkpoint_bytes, state_of_all)
                rate = rates.network(spec)
                self._note(f"{spec.network.backbone} on {spec.data.dataset}", rate)
                epoch_s = rate.seconds + CHECKPOINT_S + state / DISK
                seconds[-1] += epoch_s * spec.network.epochs
        # Side by side, and never less than the longest; NaN stands in front and stays.
        self.seconds[NETWORKS] += max(sum(seconds) / at_once, max(seconds))

    def _add_bank(self, spec: TrialSpec, head: HeadSlot, needs: Needs, rates: Rates) -> None:
        key = bank_key(spec, head)
        is_there = spec.data.imported is not None or self.store.holds("banks", key.identity)
        if is_there or key.identity in self.banks:
            return
        sizes = rates.sizes(spec.data)
        count = max(1, key.views) * sizes.train + sizes.select + sizes.calib
        count += 0 if needs.is_search else sizes.test
        width = build_empty(spec, sizes.train)[0].width
        # Features and logits in 4 bytes each, the label in 8.
        self.banks[key.identity] = count * (4 * (width + spec.data.info.classes) + 8)
        image_s = rates.image_s(spec)
        if not math.isnan(image_s):
            self.seconds[HEADS] += count * image_s / needs.heads_at_once

    def _add_evaluation(self, spec: TrialSpec, count: int, needs: Needs, rates: Rates) -> None:
        sizes = rates.sizes(spec.data)
        samples = sizes.select + sizes.calib + (0 if needs.is_search else sizes.test)
        seconds = rates.evaluation_s(spec, samples) * count
        self.seconds[EVALUATION] += seconds / needs.heads_at_once
        if spec.head is not None and not needs.is_search:
            self.head_bytes += rates.head_bytes(spec, spec.head)

    def _add_look(self, look: ExtraTrial, needs: Needs, rates: Rates) -> None:
        spec, samples = look.first.spec, rates.sizes(look.first.spec.data).test
        if look.shift is not None and not look.shift.startswith("ood/"):
            samples *= len(SEVERITIES)
        one_s = rates.draws_s(spec, samples, look.resamples) if look.resamples else 0.0
        one_s += rates.evaluation_s(spec, samples) if look.shift else 0.0
        seconds = one_s * len(look.trials)
        made_once = shifted_bank_key(spec).identity, look.shift or ""
        if look.shift is not None and made_once not in self.shifted:
            self.shifted.add(made_once)
            seconds += samples * rates.image_s(spec)
        self.seconds[LOOKS] += seconds / needs.at_once

    def _note(self, what: str, rate: Rate) -> None:
        is_known = not math.isnan(rate.seconds)
        source = f"{rate.seconds:.3g} s an epoch, {rate.source}" if is_known else rate.source
        self.sources.setdefault(what, source)
