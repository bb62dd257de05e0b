"""Features and logits that others made, kept in the store as the feature bank of a network.

``imports/<digest>`` is a bank without a network, by what it holds; ``import_names/<name>`` says
which of them a name means, and may say another later.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from tune_calib.data.given import GivenSplit, OwnHead, halves, head_of, refuse_unequal, split_of
from tune_calib.engine.bank import DevelopmentBank, write_arrow, write_split
from tune_calib.engine.store import Store, artifact_manifest, read_or_remove, write_folder
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.metrics.summary import regime_in_parts
from tune_calib.places import require_writable
from tune_calib.slots.data import ImportedData
from tune_calib.wording import shown

KIND, NAMES = "imports", "import_names"

LAYOUT = 1
"""Of what an import keeps; part of the digest."""

SHARED = 0.01
"""Share of a split's samples that may be in another one, as in published data sets; more is a
mistake."""

SATURATED = 0.99
"""A probability from which on its sample is not told from others by it."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

_Bank = TypeVar("_Bank", bound=DevelopmentBank)


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
    splits: Mapping[str, tuple[GivenSplit, Tensor | None]]
    head: OwnHead | None
    stamps: Mapping[Path, tuple[int, int]]


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
    stamps = {path: _stamp(path) for split in given.values() for path in split.paths}
    first = given["calib"]
    if own is not None and not first.width:
        raise UserError("`head` is of no use without features; leave it out, or give them")
    sums = {name: _Sums.of(split) for name, split in given.items()}
    _refuse_shared(sums)
    splits: dict[str, tuple[GivenSplit, Tensor | None]] = {n: (s, None) for n, s in given.items()}
    is_cut = "select" not in given
    if is_cut:
        if len(first.labels) < 2:
            raise UserError("`calib` has one sample, too few for select and calib")
        for name, kept in zip(("select", "calib"), halves(first.labels), strict=True):
            splits[name] = (first, kept)
    counts = {
        name: len(split.labels) if kept is None else int(kept.sum())
        for name, (split, kept) in splits.items()
    }
    record = ImportedData(
        digest=_digest(sums, own, is_cut, first.kind),
        classes=first.classes,
        width=first.width,
        is_cut=is_cut,
        outputs=first.kind,
        **{"train": 0, **counts},
    )
    return Import(record, splits, own, stamps)


@dataclass(frozen=True)
class _Sums:
    """What is kept of a split's numbers.

    Attributes:
        digest: of all of them.
        samples: how many there are.
        rows: a sum of each sample that can be told from others, (M,) uint64.
    """

    digest: str
    samples: int
    rows: Any

    @classmethod
    def of(cls, split: GivenSplit) -> "_Sums":
        digests = {name: hashlib.sha256() for name in ("features", "outputs")}
        digests["outputs"].update(split.labels.numpy().tobytes())
        rows = []
        for features, outputs in split.numbers():
            for name, values in (("features", features), ("outputs", outputs)):
                digests[name].update(values.contiguous().numpy().data)
            row_sums = _row_sums(features if split.features else outputs)
            # Of saturated probabilities many samples have the same.
            told = (outputs.amax(1) < SATURATED).numpy() if split.has_probs else slice(None)
            rows.append(row_sums[told])
        joined = "+".join(each.hexdigest() for each in digests.values())
        return cls(joined, len(split.labels), np.concatenate(rows))


def _row_sums(values: Tensor) -> Any:
    """A number of 64 bits for each row: equal rows have equal ones, others hardly ever."""
    bits = values.contiguous().numpy().view(np.uint32).astype(np.uint64)
    odd = np.random.RandomState(1).randint(1, 2**63, bits.shape[1], np.uint64) | np.uint64(1)
    return (bits * odd).sum(1, dtype=np.uint64)


def _refuse_shared(sums: Mapping[str, _Sums]) -> None:
    """Refuse splits of which more than a few samples are in another split too."""
    single = {}
    for name, found in sums.items():
        # What several samples of a split have says nothing of who they are.
        rows, counts = np.unique(found.rows, return_counts=True)
        single[name] = rows[counts == 1]
    names = list(sums)
    for index, one in enumerate(names):
        for two in names[index + 1 :]:
            shared = len(np.intersect1d(single[one], single[two], assume_unique=True))
            if shared > SHARED * min(sums[one].samples, sums[two].samples):
                raise UserError(
                    f"`{one}` and `{two}` share {shared} samples, to the last digit; splits must "
                    "be disjoint"
                )


def _digest(sums: Mapping[str, _Sums], head: OwnHead | None, is_cut: bool, kind: str) -> str:
    """What stands for the import in specs, 16 hexadecimal digits."""
    own = hashlib.sha256()
    for tensor in (head.weight, head.bias) if head else ():
        own.update(repr(tuple(tensor.shape)).encode() + tensor.contiguous().numpy().tobytes())
    told = {
        "layout": LAYOUT,
        "splits": {name: each.digest for name, each in sums.items()},
        "head": own.hexdigest(),
        "is_cut": is_cut,
        "outputs": kind,
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def keep(name: str, given: Import, store: Store, replaces: bool) -> None:
    """Write an import into a store, under a name.

    Args:
        name: by which it is asked for.
        given: what ``checked`` found.
        store: where to.
        replaces: the name may mean another import by now.

    Raises:
        UserError: the name is none, or means another import; the store cannot be written.
    """
    refuse_name(name)
    digest = given.record.digest
    require_writable(store.root, f"{KIND}/{digest}")
    with store.lock("import", "names"):
        before = _named(name, store)
        if before is not None and before != digest and not replaces:
            raise UserError(
                f"{store.root} has another import by the name {name} ({before}); take another "
                "name, or `replace` it: results of the old one stay as they are"
            )
        folder = store.folder(KIND, digest)
        if read_or_remove(folder, artifact_manifest) is None:
            _write(given, store)
        if before != digest:
            write_folder(store.folder(NAMES, name), lambda path: None, {"digest": digest})


def _write(given: Import, store: Store) -> None:
    record, regimes = given.record, {}

    def fill(path: Path) -> None:
        for name, (split, kept) in given.splits.items():
            labels = split.labels if kept is None else split.labels[kept]
            if name in ("train", "select"):
                regimes[name] = regime_in_parts(_judged(split, labels, kept))
            if name != "train":
                write_split(path / f"{name}.arrow", split.chunks(kept), labels)
            elif record.has_heads:
                write_split(path / "train-000.arrow", split.chunks(kept), labels)
        if given.head is not None:
            head = {"weight": given.head.weight, "bias": given.head.bias[:, None]}
            write_arrow(path / "head.arrow", head)
        for path_of_file, stamp in given.stamps.items():
            if _stamp(path_of_file) != stamp:  # its digest was that of other numbers
                raise UserError(f"{path_of_file} was changed while it was read; import it again")
        about["accuracy"] = {name: found["accuracy"] for name, found in regimes.items()}
        about["regime"] = regimes.get("train", {})

    # As manifests of networks and banks, of which it takes the place; ``fill`` puts more into it.
    about: dict[str, Any] = {
        "imported": record.model_dump(),
        "train_views": int(record.has_heads),
        "has_test": True,
        "epoch": 0,
        "history": [],
    }
    write_folder(store.folder(KIND, record.digest), fill, about)


def _stamp(path: Path) -> tuple[int, int]:
    """Size and time of modification of a file."""
    told = path.stat()
    return told.st_size, told.st_mtime_ns


def _judged(
    split: GivenSplit, labels: Tensor, kept: Tensor | None
) -> Iterator[tuple[Tensor, Tensor]]:
    first = 0
    for _, logits in split.chunks(kept):
        if len(logits):
            yield logits, labels[first : first + len(logits)]
        first += len(logits)


def refuse_name(name: str) -> None:
    """Refuse what is no name of an import.

    Raises:
        UserError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise UserError(f"{shown(name)} names no import: take letters, digits, _.-")


def record_of(name: str, store: Store) -> ImportedData:
    """What a name means.

    Raises:
        UserError: the store has no such import, or not whole.
    """
    refuse_name(name)
    digest = _named(name, store)
    if digest is None:
        raise UserError(
            f"{store.root} has no import {name!r}: make it by "
            f"tune-calib import {name} --calib FILE --test FILE --store {store.root}, or name the "
            "`store` that has it"
        )
    return ImportedData(**_manifest(digest, store)["imported"])


def bank_of_import(kind: type[_Bank], imported: ImportedData | str, store: Store) -> _Bank:
    """The bank of an import.

    Args:
        kind: ``FeatureBank``, or ``DevelopmentBank`` in a search.
        imported: what a spec says of it.
        store: where it lies.

    Raises:
        UserError: the store does not hold it, or not whole.
    """
    digest = _digest_of(imported)
    try:
        return kind(store.folder(KIND, digest))
    except DamagedFileError as error:
        raise _lost(digest, store, error) from None


def manifest_of_import(imported: ImportedData | str, store: Store) -> dict[str, Any]:
    """The manifest of an import, as ``bank_of_import`` finds it."""
    return _manifest(_digest_of(imported), store)


def _digest_of(imported: ImportedData | str) -> str:
    if isinstance(imported, str):  # only what is planned is looked up by its name
        raise UserError(f"data.imported: {shown(imported)} is a name, and its record is needed")
    return imported.digest


def _manifest(digest: str, store: Store) -> dict[str, Any]:
    try:
        return artifact_manifest(store.folder(KIND, digest))
    except DamagedFileError as error:
        raise _lost(digest, store, error) from None


def _lost(digest: str, store: Store, error: DamagedFileError) -> UserError:
    return UserError(
        f"{store.root} does not hold the import {digest} whole ({error}); import its files again"
    )


def _named(name: str, store: Store) -> str | None:
    """The digest that a name means; None if it means nothing."""
    if not store.holds(NAMES, name):
        return None
    try:
        return str(artifact_manifest(store.folder(NAMES, name))["digest"])
    except (DamagedFileError, KeyError):
        return None
