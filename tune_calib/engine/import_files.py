"""Files of features and logits that are to be imported: read once, checked, summed up."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tune_calib.data.given import GivenSplit, OwnHead, halves, head_of, refuse_unequal, split_of
from tune_calib.errors import UserError
from tune_calib.spec.slots.data import ImportedData

LAYOUT = 2
"""Of what an import keeps; part of the digest."""

SHARED = 0.01
"""Share of a split's samples that may be in another one, as in published data sets; more is a
mistake."""

SURE = 3.0
"""By how many standard deviations shared samples must be more than chance gives."""

_Splits = Mapping[str, tuple[GivenSplit, Tensor | None]]


@dataclass(frozen=True)
class Import:
    """What is to be imported, checked.

    Attributes:
        record: what a spec says of it.
        splits: train (if given), select, calib and test: files, and who of them belongs to it.
        head: the network's own, where features are given.
        stamps: of every file, when it was looked at.
    """

    record: ImportedData
    splits: _Splits
    head: OwnHead | None
    stamps: Mapping[Path, tuple[int, int]]

    def refuse_changed(self) -> None:
        """Refuse files that were written anew meanwhile: the digest is that of other numbers.

        Raises:
            UserError: one was.
        """
        for path, stamp in self.stamps.items():
            if _stamp(path) != stamp:
                raise UserError(f"{path} was changed while it was read; import it again")


def checked(
    train: Sequence[str],
    select: Sequence[str],
    calib: Sequence[str],
    test: Sequence[str],
    head: Sequence[str],
) -> Import:
    """Read everything once: is it what it must be, and which digest has it.

    Args:
        train: files of the split (``tune_calib.data.roles``); none if it is not known.
        select: likewise; none cuts ``calib`` in two.
        calib: likewise.
        test: likewise.
        head: files of the last layer; none without features.

    Raises:
        UserError: something is missing, does not fit, or is no number.
        DamagedFileError: a file cannot be read.
    """
    files = {"train": train, "select": select, "calib": calib, "test": test}
    for name in ("calib", "test"):
        if not files[name]:
            raise UserError(f"`{name}` is missing: give the file of the split")
    own = head_of(head) if head else None
    given = {name: split_of(name, each, own) for name, each in files.items() if each}
    refuse_unequal(list(given.values()))
    if own is not None and not given["calib"].width:
        raise UserError("`head` is of no use without features; leave it out, or give them")
    stamps = {path: _stamp(path) for split in given.values() for path in split.paths}
    splits = _with_select(given)
    sums = {name: _Sums.of(split) for name, split in given.items()}
    _refuse_shared(sums)
    return Import(_record(splits, _digest(sums, own)), splits, own, stamps)


def _with_select(given: Mapping[str, GivenSplit]) -> _Splits:
    """All splits, and who of their files belongs to them; without select, calib is cut in two."""
    splits: dict[str, tuple[GivenSplit, Tensor | None]] = {n: (s, None) for n, s in given.items()}
    if "select" not in given:
        whole = given["calib"]
        if len(whole.labels) < 2:
            raise UserError("`calib` has one sample, too few for select and calib")
        for name, kept in zip(("select", "calib"), halves(whole.labels), strict=True):
            splits[name] = (whole, kept)
    return splits


def _record(splits: _Splits, digest: str) -> ImportedData:
    calib, kept = splits["calib"]
    counts = {
        name: len(split.labels) if kept is None else int(kept.sum())
        for name, (split, kept) in splits.items()
    }
    return ImportedData(
        digest=digest,
        classes=calib.classes,
        width=calib.width,
        is_cut=kept is not None,
        outputs=calib.kind,
        **{"train": 0, **counts},
    )


@dataclass(frozen=True)
class _Sums:
    """What is kept of a split's numbers.

    Attributes:
        digest: of all of them, their shapes and what they are.
        samples: how many there are.
        rows: a sum of each sample, once, (M,) uint64, rising.
        counts: how often each comes up, (M,).
    """

    digest: str
    samples: int
    rows: Any
    counts: Any

    @classmethod
    def of(cls, split: GivenSplit) -> "_Sums":
        shapes = len(split.labels), split.width, split.classes, split.kind
        digests = [hashlib.sha256(repr(shapes).encode()) for _ in range(2)]
        digests[1].update(split.labels.numpy().tobytes())
        sums = []
        for chunk in split.numbers():
            for digest, values in zip(digests, chunk, strict=True):
                digest.update(values.contiguous().numpy().data)
            features, outputs = chunk
            sums.append(_row_sums(features if split.features else outputs))
        rows, counts = np.unique(np.concatenate(sums), return_counts=True)
        joined = "+".join(each.hexdigest() for each in digests)
        return cls(joined, len(split.labels), rows, counts)


def _row_sums(values: Tensor) -> Any:
    """A number of 64 bits for each row: equal rows have equal ones, others hardly ever."""
    bits = values.contiguous().numpy().view(np.uint32).astype(np.uint64)
    odd = np.random.RandomState(1).randint(1, 2**63, bits.shape[1], np.uint64) | np.uint64(1)
    return (bits * odd).sum(1, dtype=np.uint64)


def _refuse_shared(sums: Mapping[str, _Sums]) -> None:
    """Refuse splits of which more than a few samples are in another split too."""
    names = list(sums)
    for index, one in enumerate(names):
        for two in names[index + 1 :]:
            if shared := _shared(sums[one], sums[two]):
                raise UserError(
                    f"`{one}` and `{two}` share {shared} samples, to the last digit; splits must "
                    "be disjoint"
                )


def _shared(one: _Sums, two: _Sums) -> int:
    """Samples that two splits share; 0 where these are few, or may be equal by chance.

    Probabilities of two classes, of few digits or near 1 are equal by chance. Rows that are seen in
    one sample of each split are then not more, in the mean, than those that are seen in two samples
    of one split and in none of the other: at rates a and b it is ab <= (a^2 + b^2) / 2.
    """
    if one.digest == two.digest:
        return one.samples
    places = np.intersect1d(one.rows, two.rows, assume_unique=True, return_indices=True)[1:]
    found = [each.counts[at] for each, at in zip((one, two), places, strict=True)]
    shared = int(((found[0] == 1) & (found[1] == 1)).sum())
    by_chance = sum(
        int((each.counts == 2).sum() - (both == 2).sum())
        for each, both in zip((one, two), found, strict=True)
    )
    single = min(int((each.counts == 1).sum()) for each in (one, two))
    bound = SHARED * single + SURE * (shared + by_chance) ** 0.5
    return shared if shared - by_chance > bound else 0


def _digest(sums: Mapping[str, _Sums], head: OwnHead | None) -> str:
    """What stands for the import in specs, 16 hexadecimal digits.

    Where no select is given, that calib is cut in two is told by what is not there.
    """
    own = hashlib.sha256()
    for tensor in (head.weight, head.bias) if head else ():
        own.update(repr(tuple(tensor.shape)).encode() + tensor.contiguous().numpy().tobytes())
    told = {
        "layout": LAYOUT,
        "splits": {name: each.digest for name, each in sums.items()},
        "head": own.hexdigest(),
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _stamp(path: Path) -> tuple[int, int]:
    """Size and time of modification of a file."""
    told = path.stat()
    return told.st_size, told.st_mtime_ns
