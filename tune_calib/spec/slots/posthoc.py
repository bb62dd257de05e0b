"""The slot of the post-hoc method."""

from typing import ClassVar

from tune_calib.spec.slots.base import MethodSlot


class PostHocSlot(MethodSlot):
    """A transform of the logits, fitted on ``calib``."""

    kind: ClassVar[str] = "posthoc"
