"""Shift sets: images other than the test split, on which a finished classifier is evaluated.

They are requested by words:

* ``corruptions``: all kinds of CIFAR-10-C or CIFAR-100-C where the published files lie below the
  data root, else all that can be generated; ``corruptions:fog,contrast`` takes some of them;
* ``generated``, ``generated:fog,contrast``: generated ones, even if the files are there;
* ``noise``: Gaussian noise;
* ``heldout``: test images of the classes that ``data.held_out_classes`` leaves out;
* the name of a data set: its test split.

The name of a set says how it was made: ``corrupt/fog`` is published, ``generated/fog`` was
generated here, ``ood/cifar100`` is foreign.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tune_calib.data.base import Split
from tune_calib.data.corruptions import KINDS, MAIN, SEVERITIES, VERSION, corrupted
from tune_calib.data.shift.foreign import (
    HELD_OUT,
    NOISE,
    Part,
    ShiftSet,
    chunks_of,
    foreign_set,
    refuse_foreign_set,
)
from tune_calib.data.shift.published import Published, folder_of
from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.slots.data import DataSlot
from tune_calib.text import nearest

CORRUPTIONS, GENERATED = "corruptions", "generated"
FAMILIES = ("ood", "corrupt", "generated")


def find_sets(words: Sequence[str], slot: DataSlot, root: Path | None) -> list[str]:
    """Return the names of the shift sets that some words request, each once."""
    if words and slot.imported is not None:
        raise UserError("imported data have no images that could be shifted; leave `shift` out")
    return list(dict.fromkeys(name for word in words for name in _named(word, slot, root)))


def _named(word: str, slot: DataSlot, root: Path | None) -> Iterator[str]:
    what, colon, listed = word.partition(":")
    kinds = [kind.strip() for kind in listed.split(",")] if colon else []
    info = slot.info
    if what in (CORRUPTIONS, GENERATED):
        folder = folder_of(info, root) if what == CORRUPTIONS else None
        if folder is not None:
            published = Published.open(folder, info)
            yield from (f"corrupt/{kind}" for kind in published.chosen(kinds))
            return
        for kind in kinds or MAIN:
            refuse_kind(kind, info)
            yield f"generated/{kind}"
        return
    if colon:
        raise UserError(f"{word}: only {CORRUPTIONS} and {GENERATED} take kinds", setting="shift")
    known = [CORRUPTIONS, GENERATED, NOISE, HELD_OUT, *DATASETS]
    if what not in known:
        raise UserError(f"{word!r} is unknown{nearest(what, known)}", setting="shift")
    refuse_foreign_set(what, slot, root)
    yield f"ood/{what}"


def refuse_kind(kind: str, info: DatasetInfo) -> None:
    """Refuse an unknown kind, and one that changes nothing in grey images."""
    if kind not in KINDS:
        raise UserError(f"no corruption {kind!r} is generated{nearest(kind, list(KINDS))}")
    if KINDS[kind].needs_colour and info.channels == 1:
        raise UserError(f"{kind} changes colours, and the images of {info.name} are grey")


def generated(kind: str, test: Callable[[], Split]) -> ShiftSet:
    """Return a kind of corruption of the test split at every severity."""

    def parts() -> list[Part]:
        split = test()
        changes = [(level, partial(corrupted, kind=kind, severity=level)) for level in SEVERITIES]
        return [Part(str(n), split.labels, chunks_of(split, change)) for n, change in changes]

    return ShiftSet(f"generated/{kind}", f"version {VERSION}", parts)


def open_set(
    name: str, slot: DataSlot, root: Path | None, cache: Path | None, test: Callable[[], Split]
) -> ShiftSet:
    """Open a shift set by its name; no image is read before its parts are read."""
    family, _, what = name.partition("/")
    info: DatasetInfo = slot.info
    if family == "generated":
        return generated(what, test)
    if family == "corrupt":
        folder = folder_of(info, root)
        if folder is None:
            raise UserError(f"{root} no longer holds the published {name}; restore it")
        return Published.open(folder, info).shift_set(what, test)
    return foreign_set(what, slot, root, cache, test)
