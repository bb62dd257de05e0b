"""Records of data sets with their published constants, and their registry."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.text import format_count, nearest, short_repr

Settings = Mapping[str, Mapping[str, Any]]
"""Settings by slot, including those of the slot's method: ``{"head": {"gamma": 0.9}}``."""


def flatten(settings: Settings) -> dict[str, Any]:
    """Return settings by ``slot.key``."""
    flat: dict[str, Any] = {}
    for slot, values in settings.items():
        flat |= {f"{slot}.{key}": value for key, value in values.items()}
    return flat


DEFAULT_RULE = "default"
GENERAL_RULES = ("whole", "val_is_test")
"""Names of the rules by which every data set can be split (``data.rules``)."""

HELD_OUT = -1
"""Stands for a class whose images are in no split."""

# Means and standard deviations that published programs normalise with, by their names in
# `data.norm`: (mean, std) per channel, for pixels scaled to [0, 1].
Constants = tuple[tuple[float, ...], tuple[float, ...]]

NORMS: dict[str, Constants] = {
    # From the code of Mukhoti et al., which MbLS, FeDLaS and AdaFocal share; also for CIFAR-100 and
    # SVHN.
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    # TST and BalCAL.
    "cifar10_tst": ((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
    "cifar100_tst": ((0.5074, 0.4867, 0.4411), (0.2011, 0.1987, 0.2025)),
    # CRL.
    "cifar10_crl": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    # CRL, PLP and MIT.
    "cifar100_crl": ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    # PLP and MIT on SVHN; the weights of ViT-B/16 were trained with it.
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}


@dataclass(frozen=True)
class Quick:
    """The cheapest settings for a data set that give meaningful results."""

    title: str  # one line, as printed in captions
    settings: Settings
    backbones: tuple[str, ...] = ()  # those it was made for; empty if it fits any


@dataclass(frozen=True, eq=False)
class DatasetInfo:
    """A data set as registered in ``DATASETS``.

    ``mean`` and ``std`` are per channel, of pixels scaled to [0, 1]; sizes are in pixels.
    """

    name: str
    title: str  # table headings omit the part in parentheses
    classes: int  # C
    channels: int  # colour channels of an image
    size: int  # height and width of an image as a network sees it
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int  # black border before a random crop to the old size; 0: no crop
    flip: bool  # whether mirroring an image keeps its class
    # Read ``Source`` from a root; raises DataNotFoundError or DamagedFileError.
    load: Callable[[Path | None], Any]
    # Return the files that ``load`` reads, by which its result may be cached; none if the data is
    # embedded. Raises DataNotFoundError.
    locate: Callable[[Path | None], tuple[Path, ...]]
    # The published rule, which is the default: maps the length of the training part to the
    # positions of the train and the validation split in it, (N,) int64 each. None if ``rules``
    # has a rule named ``default``, which needs the labels.
    split: Callable[[int], tuple[Any, Any]] | None = None
    hint: str = "nothing to download"  # how to get the data, for error messages
    quick: Quick | None = None  # the recipe if none is named
    rules: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # others, by data.split
    coarse: tuple[int, ...] | None = None  # the coarse class of each class
    # Height and width of a stored image, if larger than ``size``: training uses random crops and
    # evaluation the centre crop.
    stored: int | None = None
    # Like ``load``, with images stored at another size; None if all have the same size.
    load_at: Callable[[Path | None, int], Any] | None = None
    general: Any = None  # ``data.datasets.general.General`` of data described only by its files
    reading: str = ""  # what determines the pixels besides the files, e.g. a size
    digest: str | None = None  # of all images, if a spec names it; None: any copy
    rule: str = DEFAULT_RULE  # the rule in use
    relabel: tuple[int, ...] | None = None  # the class of each stored class, or ``HELD_OUT``
    test_constants: Constants | None = None  # of test images, if they differ
    # Shares of ``select``, ``calib`` and ``test`` if they are cut from the test part; else None.
    holdout_shares: tuple[float, float, float] | None = None
    # Sizes of the published training and test parts, so that runs can be planned without the files;
    # None if they differ between copies.
    published: tuple[int, int] | None = None

    @property
    def spare(self) -> int:
        """Return by how many pixels stored images are larger than those that a network sees."""
        return (self.stored or self.size) - self.size

    def of_test(self) -> "DatasetInfo":
        if self.test_constants is None:
            return self
        mean, std = self.test_constants
        return replace(self, mean=mean, std=std)

    def with_options(self, slot: Any) -> "DatasetInfo":
        changed = self._stored_as(slot)
        if slot.split != DEFAULT_RULE:
            rules = (DEFAULT_RULE, *GENERAL_RULES, *self.rules)
            if slot.split not in rules:
                raise self._unknown("split", slot.split, rules)
            changed["rule"] = slot.split
        if slot.holdout == "test":
            changed["holdout_shares"] = slot.holdout_shares
        if slot.labels == "coarse":
            if self.coarse is None:
                raise UserError(f"data.labels: {self.name} has no coarse labels; leave it out")
            changed |= {"relabel": self.coarse, "classes": max(self.coarse) + 1}
        if slot.import_record is not None:
            changed["classes"] = slot.import_record.classes
        if slot.held_out_classes:
            changed |= self._without(slot.held_out_classes, changed)
        if slot.norm is not None:
            changed["mean"], changed["std"] = self._norm("norm", slot.norm)
        if slot.test_norm == "legacy_imagenet":
            changed["test_constants"] = self._norm("test_norm", "imagenet")
        return replace(self, **changed) if changed else self

    def _without(self, held_out: Sequence[int], changed: Mapping[str, Any]) -> dict[str, Any]:
        classes = changed.get("classes", self.classes)
        stored = changed.get("relabel") or tuple(range(classes))
        remaining = [label for label in range(classes) if label not in held_out]
        if not set(held_out) <= set(range(classes)) or len(remaining) < 2:
            raise UserError(
                f"data.held_out_classes: at least two of the classes 0 to {classes - 1} must remain"
            )
        numbers = dict(zip(remaining, range(len(remaining)), strict=True))
        relabel = tuple(numbers.get(label, HELD_OUT) for label in stored)
        return {"relabel": relabel, "classes": len(remaining)}

    def _stored_as(self, slot: Any) -> dict[str, Any]:
        if self.general is not None:
            return dict(self.general.effective(slot))
        for key in ("grey", "image_column", "label_column", "classes", "found"):
            if key in slot.model_fields_set and getattr(slot, key) not in (None, "refuse", ()):
                raise UserError(f"data.{key} does not apply to {self.name}; leave it out")
        if slot.resize is None and slot.crop is None:
            return {}
        if self.load_at is None:
            key = "resize" if slot.resize else "crop"
            raise UserError(f"data.{key}: images of {self.name} have a fixed size; leave it out")
        stored, size = slot.resize or self.stored or self.size, slot.crop or self.size
        refuse_crop(stored, size)
        load_at = self.load_at

        def load(root: Path | None) -> Any:
            return load_at(root, stored)

        return {"stored": stored, "size": size, "load": load, "reading": str(stored)}

    def _norm(self, key: str, name: str | Constants) -> Constants:
        if not isinstance(name, str):
            if len(name[0]) != self.channels:
                raise UserError(
                    f"data.{key}: {self.name} has {format_count(self.channels, 'channel')}, and "
                    f"constants for {len(name[0])} were given"
                )
            return name
        if name not in NORMS:
            raise self._unknown(key, name, NORMS)
        if len(NORMS[name][0]) != self.channels:
            raise UserError(f"data.{key}: {name} is for colour images, and {self.name} is grey")
        return NORMS[name]

    def _unknown(self, key: str, name: str, names: Iterable[str]) -> UserError:
        hint = nearest(name, sorted({*names}))
        return UserError(f"data.{key}: {self.name} has no {short_repr(name)}{hint}")


def refuse_crop(stored: int, size: int) -> None:
    if size > stored:
        raise UserError(
            f"data.crop: a crop of {size} pixels is larger than images of {stored}; set data.resize"
        )


DATASETS: Registry[DatasetInfo] = Registry("data set", "tune_calib.data.datasets", DatasetInfo)
