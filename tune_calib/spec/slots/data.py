"""The slot of the data, and the records of scanned and imported data."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.names import IMPORTED
from tune_calib.spec.slots.base import Slot
from tune_calib.spec.strict import StrictModel


class ScannedData(StrictModel):
    """The facts on a data set of the user's own images, read from its files."""

    classes: int = Field(ge=2)
    """Number of classes."""
    channels: Literal[1, 3]
    """1 is grey, 3 is colour."""
    stored: int = Field(ge=1)
    """Height and width of the images as they are kept."""
    size: int = Field(ge=1)
    """Height and width of the images as a network sees them."""
    mean: tuple[float, ...]
    """Of the pixels of the training part, per channel."""
    std: tuple[float, ...]
    """Of the pixels of the training part, per channel."""
    digest: str
    """Of all pixels and labels."""


Shares = tuple[float, float, float]
Norm = tuple[Annotated[tuple[float, ...], Field(min_length=1)], tuple[float, ...]]

SHARES: Shares = (0.25, 0.25, 0.5)
"""Of the test part, where it is held out: `select`, `calib` and `test`."""

OWN_NORM = "dataset"
"""How ``data.norm`` names the constants of the data set itself."""


class ImportedData(StrictModel):
    """The content of imported features and logits (`tune-calib import`), whatever their name."""

    digest: str
    """Of all numbers and labels."""
    classes: int = Field(ge=2)
    """Number of classes."""
    width: int = Field(ge=0)
    """Number of features; 0 where logits alone are given."""
    train: int = Field(ge=0)
    """Samples of the split, 0 where it is not given; so the others."""
    select: int = Field(ge=1)
    calib: int = Field(ge=1)
    test: int = Field(ge=1)
    is_cut: bool
    """Whether `select` and `calib` are halves of one split that was given."""
    outputs: Literal["logits", "probs", "head"]
    """What the logits are: given ones, logarithms of given probabilities, or what the given last
    layer makes of the features."""

    @property
    def has_heads(self) -> bool:
        """Return whether heads can be trained on it."""
        return self.width > 0 and self.train > 0


class DataSlot(Slot):
    """The images of a trial, and changes to its training split (the other splits stay clean).

    With ``imported`` there are no images, and the other settings have no meaning.
    """

    kind: ClassVar[str] = "data"
    named: ClassVar = {"dataset": DATASETS}
    dataset: str = "digits"
    """A name of the data set registry."""
    train_fraction: float = Field(1.0, gt=0, le=1)
    """Share of the training split that is kept."""
    label_noise: float = Field(0.0, ge=0, lt=1)
    """Share of training labels replaced by a uniformly drawn other class."""
    imbalance: float = Field(1.0, ge=1)
    """Size of the largest class over the smallest; classes in between follow an exponential
    profile (Cui et al., CVPR 2019)."""
    # Left out of the JSON at their default: specs of before they were settings keep their hash.
    split: str = Field("default", exclude_if=lambda split: split == "default")
    """Published rule that cuts the data set: `default` is that of its page, `whole` trains on all
    of the training part and takes `select` and `calib` from the test part; others are those of
    some papers (docs/pages/data.md#splits)."""
    labels: Literal["fine", "coarse"] = Field("fine", exclude_if=lambda labels: labels == "fine")
    """`coarse`: the 20 superclasses of CIFAR-100."""
    holdout: Literal["train", "test"] = Field("train", exclude_if=lambda part: part == "train")
    """Published part that `select` and `calib` are taken from. `test` trains on all of the training
    part and cuts the test part in three (docs/pages/data.md#hold-out-test-images)."""
    holdout_shares: Shares = Field(SHARES, exclude_if=lambda shares: shares == SHARES)
    """Of the test part with `holdout` = `test`: `select`, `calib`, `test`; they sum to one."""
    held_out_classes: tuple[int, ...] = Field((), exclude_if=lambda classes: not classes)
    """Classes by their numbers (after `labels`) whose images are left out of every split; the
    others are numbered anew. Their test images are the shift set `heldout`
    (docs/pages/data.md#foreign-images)."""
    norm: str | Norm | None = Field(None, exclude_if=lambda norm: norm is None)
    """Constants that pixels are normalised by: a name, or mean and standard deviation of each
    channel as `[[r, g, b], [r, g, b]]`; those of the data set if absent or `dataset`
    (docs/pages/data.md#normalisation)."""
    test_norm: Literal["same", "legacy_imagenet"] = Field(
        "same", exclude_if=lambda norm: norm == "same"
    )
    """`legacy_imagenet` normalises test images, and they alone, by ImageNet's constants, as the
    programs of several papers do on CIFAR-100."""

    resize: int | None = Field(None, ge=8, exclude_if=lambda resize: resize is None)
    """Height and width that images of many sizes are resized to when they are decoded; that of the
    data set if absent."""
    crop: int | None = Field(None, ge=8, exclude_if=lambda crop: crop is None)
    """Height and width of the window of them that a network sees: a random one in training (with
    `augment` = `standard`), else the one in the middle."""
    grey: Literal["refuse", "convert"] = Field("refuse", exclude_if=lambda grey: grey == "refuse")
    """What becomes of a grey image in a folder or Parquet file of colour images."""
    image_column: str | None = Field(None, exclude_if=lambda column: column is None)
    """Column of the images of a Parquet file; it is found if absent."""
    label_column: str | None = Field(None, exclude_if=lambda column: column is None)
    """Column of the labels of a Parquet file; it is found if absent."""
    found: ScannedData | None = Field(None, exclude_if=lambda found: found is None)
    """What the files of `imagefolder` and `parquet` say; filled in when a run is planned."""
    imported: str | ImportedData | None = Field(None, exclude_if=lambda imported: imported is None)
    """Name of features and logits that `tune-calib import` took in, with the data set `imported`;
    a spec holds what they are in its place (docs/pages/own-network.md#features-and-logits)."""

    @field_validator("dataset")
    @classmethod
    def _known(cls, value: str) -> str:
        DATASETS[value]
        return value

    @model_validator(mode="after")
    def _of_import(self) -> Self:
        if (self.dataset == IMPORTED) != (self.imported is not None):
            raise ValueError(
                f"dataset={IMPORTED} and imported=NAME go together: give both, or `imported` NAME"
            )
        if self.imported is None:
            return self
        for key, info in type(self).model_fields.items():
            if key not in ("dataset", "imported", "plugin") and getattr(self, key) != info.default:
                raise ValueError(f"{key} is of images, and imported data have none; leave it out")
        return self

    @property
    def import_record(self) -> ImportedData | None:
        """Return the imported data; None for images, and for a name not resolved yet."""
        return self.imported if isinstance(self.imported, ImportedData) else None

    @field_validator("norm")
    @classmethod
    def _own_norm(cls, value: str | Norm | None) -> str | Norm | None:
        """Refuse constants that do not fit each other, and leave out those of the data set."""
        if isinstance(value, tuple) and not (len(value[0]) == len(value[1]) and min(value[1]) > 0):
            raise ValueError("needs as many means as standard deviations, and these above 0")
        return None if value == OWN_NORM else value

    @model_validator(mode="after")
    def _one_cut(self) -> Self:
        shares = self.holdout_shares
        if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            raise ValueError(f"holdout_shares must be above 0 and sum to 1, got {shares}")
        if self.holdout == "train" and shares != SHARES:
            raise ValueError("holdout_shares goes with holdout=test; leave it out")
        if self.holdout == "test" and self.split != "default":
            raise ValueError(
                "holdout=test trains on all of the training part and cuts the test part by a rule "
                f"of its own; leave split={self.split} out"
            )
        return self

    @property
    def holds_out_train(self) -> bool:
        """Return whether `select` and `calib` are cut from the published training part."""
        return self.holdout == "train" and self.split not in ("whole", "val_is_test")

    @field_validator("held_out_classes")
    @classmethod
    def _in_order(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        """Refuse options that the data set does not have."""
        _ = self.info
        return self

    @property
    def info(self) -> DatasetInfo:
        """Return the data set with the options of this slot applied."""
        return DATASETS[self.dataset].with_options(self)
