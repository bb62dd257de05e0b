"""Records of data sets with their published constants, and their registry."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.text import format_count, nearest, short_repr

Settings = Mapping[str, Mapping[str, Any]]
"""Settings by slot, which include those of its method: ``{"head": {"gamma": 0.9}}``."""

DEFAULT_RULE = "default"
GENERAL_RULES = ("whole", "val_is_test")
"""Names of the rules by which every data set can be cut (``data.rules``)."""

HELD_OUT = -1
"""In place of a class whose images are in no split."""

# Means and standard deviations that published programs normalise by, by the name of `data.norm`:
# per channel, of pixels scaled to [0, 1]; (mean, std).
Constants = tuple[tuple[float, ...], tuple[float, ...]]

NORMS: dict[str, Constants] = {
    # The code of Mukhoti et al., which MbLS, FeDLaS and AdaFocal share; for CIFAR-100 and SVHN too.
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    # TST and BalCAL.
    "cifar10_tst": ((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
    "cifar100_tst": ((0.5074, 0.4867, 0.4411), (0.2011, 0.1987, 0.2025)),
    # CRL.
    "cifar10_crl": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
    # CRL, PLP and MIT.
    "cifar100_crl": ((0.507, 0.487, 0.441), (0.267, 0.256, 0.276)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    # PLP and MIT on SVHN; what the weights of ViT-B/16 were trained with.
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}


@dataclass(frozen=True)
class Quick:
    """The cheapest settings of a data set whose results are worth a table."""

    title: str  # one line, as captions print it
    settings: Settings
    backbones: tuple[str, ...] = ()  # that it was made for; none if it fits any


@dataclass(frozen=True, eq=False)
class DatasetInfo:
    """A data set as registered in ``DATASETS``.

    ``mean`` and ``std`` are per channel, of pixels scaled to [0, 1]; sizes are in pixels.
    """

    name: str
    title: str  # heads of tables leave out what stands in parentheses
    classes: int  # C
    channels: int  # colour channels of an image
    size: int  # height and width of an image as a network sees it
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int  # black border before a random crop of the old size; 0 is no crop
    flip: bool  # whether mirroring an image keeps its class
    # Read ``Source`` from a root; raises DataNotFoundError or DamagedFileError.
    load: Callable[[Path | None], Any]
    # Return the files that ``load`` reads, and by which its result may be cached; none if the data
    # is embedded. Raises DataNotFoundError.
    locate: Callable[[Path | None], tuple[Path, ...]]
    # The published rule and default: from the length of the training part to the positions of the
    # train split and of the validation split in it, (N,) int64 each. None if ``rules`` has one
    # named ``default``, which needs the labels.
    split: Callable[[int], tuple[Any, Any]] | None = None
    hint: str = "nothing to download"  # how to get the data, for error messages
    quick: Quick | None = None  # the recipe where none is named
    rules: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # further, by data.split
    coarse: tuple[int, ...] | None = None  # the class in a coarser labelling of each class
    # Height and width of a stored image, if larger than ``size``: training sees random windows and
    # evaluation the one in the middle.
    stored: int | None = None
    # As ``load``, with images stored at another size; none where they have one size.
    load_at: Callable[[Path | None, int], Any] | None = None
    general: "General | None" = None  # reader of a data set that only its files describe
    reading: str = ""  # what decides the pixels besides the files, e.g. a size
    digest: str | None = None  # of all images, where a spec names it; none is any copy
    rule: str = DEFAULT_RULE  # in force
    relabel: tuple[int, ...] | None = None  # the class of each stored class, or ``HELD_OUT``
    test_constants: Constants | None = None  # of test images, where they differ
    # Of ``select``, ``calib`` and ``test`` in a test part that is held out; none where a rule cuts.
    holdout_shares: tuple[float, float, float] | None = None
    # Images of the published training and test part, by which plans are made without the files;
    # none if each copy has its own number.
    published: tuple[int, int] | None = None

    @property
    def spare(self) -> int:
        """Return the pixels by which stored images are larger than those that a network sees."""
        return (self.stored or self.size) - self.size

    def of_test(self) -> "DatasetInfo":
        """Return the record for test images, which may have other constants."""
        if self.test_constants is None:
            return self
        mean, std = self.test_constants
        return replace(self, mean=mean, std=std)

    def with_options(self, slot: Any) -> "DatasetInfo":
        """Return the record with the options of a data slot applied."""
        changed = self._stored_as(slot)
        if slot.split != DEFAULT_RULE:
            self._refuse_unknown("split", slot.split, (*GENERAL_RULES, *self.rules))
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
            if slot.import_record is not None:
                raise UserError("data.held_out_classes is of images, which imported data have not")
            changed |= self._without(slot.held_out_classes, changed)
        if slot.norm is not None:
            changed["mean"], changed["std"] = self._norm("norm", slot.norm)
        if slot.test_norm == "legacy_imagenet":
            changed["test_constants"] = self._norm("test_norm", "imagenet")
        return replace(self, **changed) if changed else self

    def _without(self, held_out: Sequence[int], changed: Mapping[str, Any]) -> dict[str, Any]:
        """Renumber the classes without some."""
        classes = changed.get("classes", self.classes)
        stored = changed.get("relabel") or tuple(range(classes))
        kept = [label for label in range(classes) if label not in held_out]
        if not all(0 <= label < classes for label in held_out) or len(kept) < 2:
            raise UserError(
                f"data.held_out_classes: {self.name} has classes 0 to {classes - 1}, of which at "
                f"least two must stay; got {', '.join(map(str, held_out))}"
            )
        number = {label: place for place, label in enumerate(kept)}
        relabel = tuple(number.get(label, HELD_OUT) for label in stored)
        return {"relabel": relabel, "classes": len(kept)}

    def _stored_as(self, slot: Any) -> dict[str, Any]:
        """Return the stored size of the images, or what a scan of the files found."""
        if self.general is not None:
            return self.general.effective(slot)
        for key in ("grey", "image_column", "label_column", "found"):
            if key in slot.model_fields_set and getattr(slot, key) not in (None, "refuse"):
                raise UserError(f"data.{key} is not for {self.name}; leave it out")
        if slot.resize is None and slot.crop is None:
            return {}
        if self.load_at is None:
            raise UserError(
                f"data.{'resize' if slot.resize else 'crop'}: the images of {self.name} have one "
                "size; leave it out"
            )
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
                    f"constants of {len(name[0])} are given"
                )
            return name
        self._refuse_unknown(key, name, NORMS)
        if len(NORMS[name][0]) != self.channels:
            raise UserError(f"data.{key}: {name} is of colour images, and {self.name} is grey")
        return NORMS[name]

    def _refuse_unknown(self, key: str, name: str, known: Iterable[str]) -> None:
        if name not in known:
            names = sorted({*known, DEFAULT_RULE} if key == "split" else known)
            near = nearest(name, names) or f"; known: {', '.join(names)}"
            raise UserError(f"data.{key}: {self.name} has no {short_repr(name)}{near}")


class General(Protocol):
    """Reader of data sets of a user's own images, which only their files describe."""

    def effective(self, slot: Any) -> dict[str, Any]:
        """Return the fields of the record that a slot with ``found`` gives, else none."""

    def describe(self, slot: Any, root: Path | None, cache: Path | None) -> dict[str, Any]:
        """Return the fields of ``ScannedData``, read from the files."""


def refuse_crop(stored: int, size: int) -> None:
    """Refuse windows that are larger than the images."""
    if size > stored:
        raise UserError(
            f"data.crop: a window of {size} pixels is larger than the images, which are resized to "
            f"{stored}; give data.resize too"
        )


DATASETS: Registry[DatasetInfo] = Registry("data set", "tune_calib.data.datasets", DatasetInfo)
