"""Settings of pools of networks."""

from typing import ClassVar, Literal

from pydantic import Field

from tune_calib.spec.methods import METHODS
from tune_calib.spec.slots.base import Slot

Average = Literal["probabilities", "logits"]


class PoolSlot(Slot):
    """A pool as a comparison names it; a trial spec lists its members instead (``Pool``)."""

    kind: ClassVar[str] = "pool"
    named: ClassVar = {"posthoc": METHODS}
    size: int | None = Field(None, ge=1)
    """Seeds of each method in a pool; they are divided into disjoint pools. All seeds if one method
    is pooled, and otherwise 1, so that the methods are pooled seed by seed."""
    average: Average = "probabilities"
    """What is averaged: the `probabilities` of the members, or their `logits`."""
    posthoc: str | None = None
    """Post-hoc method that is fitted to each member before the average; none if absent."""
