"""The slot of the data, and the records of scanned and imported data."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.names import IMPORTED
from tune_calib.spec.slots.base import Slot
from tune_calib.spec.strict import StrictModel


class ScannedData(StrictModel):
    """The properties of a data set of the user's own images, read from its files."""

    classes: int = Field(ge=2)
    """Number of classes."""
    channels: Literal[1, 3]
    """1 is grey, 3 is colour."""
    stored: int = Field(ge=1)
    """Height and width of the stored images."""
    size: int = Field(ge=1)
    """Height and width of the images as a network sees them."""
    mean: tuple[float, ...]
    """Mean of the pixels of the training part, per channel."""
    std: tuple[float, ...]
    """Standard deviation of the pixels of the training part, per channel."""
    digest: str
    """Digest of all pixels and labels."""


Shares = tuple[float, float, float]
Norm = tuple[Annotated[tuple[float, ...], Field(min_length=1)], tuple[float, ...]]

SHARES: Shares = (0.25, 0.25, 0.5)
"""Default shares of `select`, `calib` and `test` if they are cut from the test part."""

_OF_IMPORTS = ("dataset", "imported", "plugin", "split_seed", "calib_size")

OWN_NORM = "dataset"
"""Value of ``data.norm`` for the constants of the data set itself."""


class ImportedData(StrictModel):
    """The content of imported features and logits (`tune-calib import`), whatever their name."""

    digest: str
    """Digest of all numbers and labels."""
    classes: int = Field(ge=2)
    """Number of classes."""
    width: int = Field(ge=0)
    """Number of features; 0 if only logits are given."""
    train: int = Field(ge=0)
    """Samples of the split, 0 if it is not given; likewise for the other splits."""
    select: int = Field(ge=0)
    calib: int = Field(ge=1)
    test: int = Field(ge=0)
    is_cut: bool
    """Whether `select` and `calib` are halves of one split that was given."""
    groups: dict[str, int] | None = Field(None, exclude_if=lambda groups: groups is None)
    """Number of groups of each split given but train; groups are never divided, and the bootstrap
    draws them. Omitted without groups."""
    outputs: Literal["logits", "probs", "head"]
    """Origin of the logits: given as such, logarithms of given probabilities, or computed from the
    features by the given last layer."""

    @property
    def has_heads(self) -> bool:
        return self.width > 0 and self.train > 0


class DataSlot(Slot):
    """The images of a trial, and changes to its training split (other splits are unchanged).

    With ``imported`` there are no images, and the other settings have no meaning.
    """

    kind: ClassVar[str] = "data"
    named: ClassVar = {"dataset": DATASETS}
    dataset: str = "digits"
    """A name of the data set registry."""
    train_fraction: float = Field(1.0, gt=0, le=1)
    """Share of the training split that is used."""
    label_noise: float = Field(0.0, ge=0, lt=1)
    """Share of training labels that are replaced by another class, drawn uniformly."""
    imbalance: float = Field(1.0, ge=1)
    """Size of the largest class over the smallest; classes in between follow an exponential
    profile (Cui et al., CVPR 2019)."""
    # Omitted from the JSON at their default: specs from before they were settings keep their hash.
    split: str = Field("default", exclude_if=lambda split: split == "default")
    """Published rule that splits the data set: `default` is that of the data set, `whole` trains on
    the whole training part and takes `select` and `calib` from the test part, and the others are
    from papers (docs/pages/data.md#splits)."""
    labels: Literal["fine", "coarse"] = Field("fine", exclude_if=lambda labels: labels == "fine")
    """`coarse`: the 20 superclasses of CIFAR-100."""
    holdout: Literal["train", "test"] = Field("train", exclude_if=lambda part: part == "train")
    """Published part that `select` and `calib` are taken from. `test` trains on the whole training
    part and splits the test part in three (docs/pages/data.md#hold-out-test-images)."""
    holdout_shares: Shares = Field(SHARES, exclude_if=lambda shares: shares == SHARES)
    """Shares of the test part for `select`, `calib` and `test` with `holdout` = `test`; they sum
    to 1."""
    held_out_classes: tuple[int, ...] = Field((), exclude_if=lambda classes: not classes)
    """Numbers of classes (after `labels`) whose images are left out of every split; the other
    classes are renumbered. The test images of held-out classes are the shift set `heldout`
    (docs/pages/data.md#foreign-images)."""
    norm: str | Norm | None = Field(None, exclude_if=lambda norm: norm is None)
    """Constants for the normalisation of pixels: a name, or mean and standard deviation of each
    channel as `[[r, g, b], [r, g, b]]`; those of the data set if absent or `dataset`
    (docs/pages/data.md#normalisation)."""
    test_norm: Literal["same", "legacy_imagenet"] = Field(
        "same", exclude_if=lambda norm: norm == "same"
    )
    """`legacy_imagenet` normalises only the test images with ImageNet's constants, as the programs
    of several papers do on CIFAR-100."""

    resize: int | None = Field(None, ge=8, exclude_if=lambda resize: resize is None)
    """Height and width to which images of varying size are resized when decoded; those of the data
    set if absent."""
    crop: int | None = Field(None, ge=8, exclude_if=lambda crop: crop is None)
    """Height and width of the crop that a network sees: a random crop in training (with `augment` =
    `standard`), else the centre crop."""
    grey: Literal["refuse", "convert"] = Field("refuse", exclude_if=lambda grey: grey == "refuse")
    """Whether grey images in a folder or Parquet file of colour images are refused or converted."""
    image_column: str | None = Field(None, exclude_if=lambda column: column is None)
    """Column of a Parquet file with the images; detected if absent."""
    label_column: str | None = Field(None, exclude_if=lambda column: column is None)
    """Column of a Parquet file with the labels; detected if absent."""
    classes: tuple[str, ...] = Field((), exclude_if=lambda classes: not classes)
    """Names of the classes of `imagefolder` (its folders) or `parquet` in the order in which they
    are numbered; if absent, folders in the order of their names as text (10 before 2), and the
    order in the training file."""
    found: ScannedData | None = Field(None, exclude_if=lambda scan: scan is None)
    """Properties of the files of `imagefolder` and `parquet`, filled in when a run is planned."""
    imported: str | ImportedData | None = Field(None, exclude_if=lambda imported: imported is None)
    """Name of features and logits imported by `tune-calib import`, with the data set `imported`; a
    spec contains their description instead (docs/pages/own-network.md#features-and-logits)."""

    split_seed: int | None = Field(None, ge=0, exclude_if=lambda seed: seed is None)
    """Seed that draws train, `select` and `calib` anew within their published part, stratified and
    with their sizes; the published draw if absent. A network that was trained without it keeps its
    train, and `select` and `calib` are drawn from their own samples; `test` never changes
    (docs/pages/data.md#other-splits)."""
    calib_size: int | None = Field(None, ge=2, exclude_if=lambda size: size is None)
    """Number of samples of a stratified subset of `calib` that replaces it; smaller subsets are
    part of larger ones. All samples if absent."""

    @model_validator(mode="after")
    def _of_import(self) -> Self:
        if (self.dataset == IMPORTED) != (self.imported is not None):
            raise ValueError(f"dataset={IMPORTED} and imported=NAME go together; give both")
        if self.imported is None:
            return self
        for key, info in type(self).model_fields.items():
            if key not in _OF_IMPORTS and getattr(self, key) != info.default:
                raise ValueError(f"{key} needs images, and imported data have none; leave it out")
        if self.import_record and not self.import_record.select:
            for key in ("split_seed", "calib_size"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key} needs an import with `select`; leave it out")
        return self

    @property
    def import_record(self) -> ImportedData | None:
        """Return the imported data; None for images and for a name that is not yet resolved."""
        return self.imported if isinstance(self.imported, ImportedData) else None

    @field_validator("norm")
    @classmethod
    def _own_norm(cls, value: str | Norm | None) -> str | Norm | None:
        if isinstance(value, tuple) and not (len(value[0]) == len(value[1]) and min(value[1]) > 0):
            raise ValueError("needs as many means as standard deviations, which must be above 0")
        return None if value == OWN_NORM else value

    @property
    def holds_out_train(self) -> bool:
        """Return whether `select` and `calib` are cut from the published training part."""
        return self.holdout == "train" and self.split not in ("whole", "val_is_test")

    @field_validator("classes", mode="before")
    @classmethod
    def _as_names(cls, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        names = tuple(str(name) if type(name) is int else name for name in value)
        if len(set(map(str, names))) < len(names) or len(names) == 1:
            raise ValueError("classes must be at least two different names")
        return names

    @field_validator("held_out_classes")
    @classmethod
    def _in_order(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _fits(self) -> Self:
        shares = self.holdout_shares
        if min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
            raise ValueError(f"holdout_shares must be above 0 and sum to 1, got {shares}")
        if self.holdout == "train" and shares != SHARES:
            raise ValueError("holdout_shares needs holdout=test; set that, or leave it out")
        if self.holdout == "test" and self.split != "default":
            raise ValueError(
                f"holdout=test splits the test part by its own rule; leave split={self.split} out"
            )
        if self.split_seed is not None and self.split == "val_is_test":
            raise ValueError("split_seed does not go with split=val_is_test; leave one out")
        size, classes, record = self.calib_size, self.info.classes, self.import_record
        if size is None or isinstance(self.imported, str):
            return self
        if size < classes:
            raise ValueError(f"calib_size={size} is less than the number of classes, {classes}")
        if record is not None and size > record.calib:
            raise ValueError(f"calib_size={size}, but `calib` has only {record.calib} samples")
        return self

    @property
    def info(self) -> DatasetInfo:
        return DATASETS[self.dataset].with_options(self)
