"""The slot of the head."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from tune_calib.spec.slots.base import OptimisedSlot


class HeadSlot(OptimisedSlot):
    """A head retrained on the frozen features of the network."""

    kind: ClassVar[str] = "head"
    epochs: int = Field(40, ge=1)
    """Passes over the features of the training split."""
    lr: float = Field(0.01, gt=0)
    """Constant learning rate."""
    views: int = Field(4, ge=1)
    """Augmented views of the training split in the feature bank. Epoch t uses view t mod `views`;
    `views` = `epochs` gives the published augmentation, fresh in every epoch. Not used with
    `augment` = `none`."""
    bn_mode: Literal["eval", "train"] = "eval"
    """Mode of the frozen extractor's batch normalisation while features are computed. `train`
    imitates TST's code, in which the running statistics drift
    (docs/pages/methods/index.md#frozen-body)."""
    batch_order: Literal["shared", "own"] = "shared"
    """Order of the batches: `shared` by all heads of a network (faster), or `own`, drawn from the
    head's seed."""
    select_every: int | None = Field(None, ge=1, exclude_if=lambda steps: steps is None)
    """Updates after which `select` also judges a head within an epoch, whose best state may then be
    the result; only at the end of each epoch if absent. For heads whose best epoch is the first.
    The curve `best_step` has the updates of the epoch before this state."""

    @model_validator(mode="after")
    def _every_needs_a_rule(self) -> Self:
        if self.select_every is not None and self.select == "last":
            raise ValueError("select_every needs a rule by which select chooses, not last")
        return self
