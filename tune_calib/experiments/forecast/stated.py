"""What an epoch takes on a named GPU, by what its vendor states: no data and no GPU needed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tune_calib.data.splits import Sizes, published_sizes
from tune_calib.engine.network import EVALUATION_BATCH
from tune_calib.experiments.forecast.clock import Clock, Rate
from tune_calib.experiments.forecast.cost import (
    HEAD_KERNELS,
    LAUNCH_S,
    SHARE,
    Cost,
    counted_as,
    image_cost,
    step_cost,
)
from tune_calib.spec.gpus import Gpu
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import TrialSpec, canonical_json

STATED = "stated rate, not measured"


@dataclass
class StatedClock(Clock):
    """Rates of a GPU for one sweep; what was measured on such a GPU is taken before them.

    Attributes:
        gpu: which.
    """

    gpu: Gpu = field(kw_only=True)
    why_unknown: ClassVar[str] = "a step needs the data itself"
    _steps: dict[str, Cost | None] = field(default_factory=dict)
    _evaluations: dict[str, Cost] = field(default_factory=dict)

    @property
    def where(self) -> str:  # type: ignore[override]
        """On what is measured."""
        return f" on {self.gpu.name}"

    @property
    def is_here(self) -> bool:
        """Nothing is run, so that it is as good as here."""
        return True

    def sizes(self, slot: DataSlot) -> Sizes:
        """Images of each split of a data slot, without its files.

        Raises:
            UserError: they are not published.
        """
        return published_sizes(slot)

    def not_measured(self, spec: TrialSpec) -> Rate | None:
        """An epoch by the counted cost of a step; None if a step needs the data itself.

        Raises:
            UserError: the GPU does not compute the precision fast.
        """
        counted = counted_as(spec.network.method)
        key = f"{_key(spec)} {spec.network.batch_size} {counted}"
        if key not in self._steps:
            self._steps[key] = step_cost(spec)
        cost = self._steps[key]
        if cost is None:
            return None
        step_s = cost.seconds(self.gpu, spec.network.precision)
        seconds = self.steps(spec) * step_s + self.judged(spec) * self.image_s(spec)
        teraflops = cost.flops * self.steps(spec) / 1e12
        return Rate(seconds, f"{STATED} ({teraflops:,.0f} TFLOP)")

    def told(self, spec: TrialSpec) -> str:
        """Networks of one backbone and method."""
        return f"{super().told(spec)} by {spec.network.method}"

    def ran_here(self, spec: TrialSpec, about: Mapping[str, Any]) -> bool:
        """Whether a network was trained on this GPU."""
        return self.gpu.is_named(about.get("machine", {}).get("gpu")) and about["device"] == "cuda"

    def is_row_here(self, row: Mapping[str, Any]) -> bool:
        """Whether a head was trained on this GPU."""
        return self.gpu.is_named(row["gpu"]) and row["device"] == "cuda"

    def image_s(self, spec: TrialSpec) -> float:
        """Seconds of the backbone for one image, in evaluation."""
        if _key(spec) not in self._evaluations:
            self._evaluations[_key(spec)] = image_cost(spec)
        cost = self._evaluations[_key(spec)]
        return cost.seconds(self.gpu, spec.network.precision) / EVALUATION_BATCH

    def heads_not_measured(self, spec: TrialSpec, slots: Sequence[HeadSlot]) -> Rate:
        """An epoch of a population: so small are its products that launches are what it takes."""
        steps = math.ceil(self.sizes(spec.data).train / slots[0].batch_size)
        return Rate(steps * HEAD_KERNELS * LAUNCH_S / SHARE, STATED)


def _key(spec: TrialSpec) -> str:
    return f"{canonical_json(spec.data)} {spec.network.backbone} {spec.network.init}"
