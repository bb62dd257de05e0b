"""Imported features and logits, stored like the feature bank of a network.

``imports/<digest>`` is a bank without a network, identified by its content; ``import_names/<name>``
holds the digest that a name currently stands for.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tune_calib.data.arrays import stamp_of
from tune_calib.data.imported import ImportedSplit, LinearHead, halves, read_head, read_split
from tune_calib.engine.bank import write_arrow, write_split
from tune_calib.engine.store import (
    ARTIFACT_MANIFEST,
    Read,
    Store,
    artifact_manifest,
    read_or_remove,
    write_folder,
)
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.metrics.summary import measure_network_check_in_parts
from tune_calib.paths import AnyPath, require_writable
from tune_calib.spec.slots.data import ImportedData
from tune_calib.text import short_repr

KIND, NAMES = "imports", "import_names"

LAYOUT = 2  # version of the content of an import; part of the digest
MOST = 50  # largest number of samples of a row in two splits that may tell copies from chance
SHARED = 0.01  # share of a split's samples that may be in another split, as in published data sets
COPIED = 0.1  # share of the rows of a split that may be copies; data sets contain a few
SURE = 3.0  # standard deviations by which copies must exceed the number expected by chance
RARE = 0.001  # largest probability that equal rows taken for shared samples are equal by chance

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

Files = Sequence[str]


@dataclass(frozen=True)
class Import:
    """Checked files of an import before they are stored, with the stamp of each file."""

    record: ImportedData
    files: Mapping[str, Files]
    head: LinearHead | None
    stamps: Mapping[Path, tuple[int, int]]


def check_files(train: Files, select: Files, calib: Files, test: Files, head: Files) -> Import:
    """Read and check the files of all splits, one after the other, and compute the digest.

    ``train`` and ``select`` may be empty. Without ``select``, ``calib`` is split in two. ``head``
    is the last layer, which is required with features.
    """
    splits = {"train": train, "select": select, "calib": calib, "test": test}
    for name in ("calib", "test"):
        if not splits[name]:
            raise UserError(f"`{name}` is missing; specify the files of this split")
    files = {name: paths for name, paths in splits.items() if paths}
    last_layer = read_head(head) if head else None
    stamps: dict[Path, tuple[int, int]] = {}
    summaries: dict[str, _Summary] = {}
    labels: dict[str, Tensor] = {}
    groups: dict[str, Tensor] = {}
    counts = {"train": 0}
    first: ImportedSplit | None = None
    for name, paths in files.items():
        split = read_split(name, paths, last_layer)
        first = first or split
        _check_equal(first, split)
        stamps |= {array.path: array.stamp for array in split.arrays.values()}
        summaries[name] = _summarise(split)
        counts[name], labels[name] = len(split.labels), split.labels
        if split.groups is not None:
            groups[name] = split.groups
    assert first is not None
    if last_layer is not None and not first.width:
        raise UserError("is used with features only; add features, or omit `head`", setting="head")
    group_counts = _count_groups(groups, files)
    if "select" not in files:
        if counts["calib"] < 2:
            raise UserError("has only one sample, too few for select and calib", setting="calib")
        parts = halves(labels["calib"], groups.get("calib"))
        counts["select"], counts["calib"] = (int(part.sum()) for part in parts)
    for left, right in combinations(summaries, 2):
        if shared := _count_shared(summaries[left], summaries[right]):
            raise UserError(
                f"`{left}` and `{right}` share {shared} identical samples; splits must be disjoint"
            )
    if "select" not in files:
        _refuse_copies(summaries["calib"])
    record = ImportedData(
        digest=_digest(summaries, last_layer),
        classes=first.classes,
        width=first.width,
        is_cut="select" not in files,
        groups=group_counts,
        outputs=first.kind,
        **counts,
    )
    return Import(record, files, last_layer, stamps=stamps)


def write_import(name: str, checked: Import, store: Store, replace: bool) -> None:
    """Write an import to a store under a name; ``replace`` allows reusing an existing name."""
    check_name(name)
    digest = checked.record.digest
    require_writable(store.root, f"{KIND}/{digest}")
    with store.lock("import", "names"):
        replaced_digest = _digest_named(name, store)
        if replaced_digest not in (None, digest) and not replace:
            raise UserError(
                f"{store.root} has another import named {name} ({replaced_digest}); choose another "
                "name, or use `replace`, which keeps the results of the old import"
            )
        folder = store.folder(KIND, digest)
        if read_or_remove(folder, artifact_manifest) is None:
            _write_bank(checked, store)
        if replaced_digest != digest:
            write_folder(store.folder(NAMES, name), lambda path: None, {"digest": digest})


def find_names(digest: str, store: Store) -> list[str]:
    """Return the names of an import in a store, sorted."""
    names = (path.parent.name for path in (store.root / NAMES).glob(f"*/{ARTIFACT_MANIFEST}"))
    return sorted(name for name in names if _digest_named(name, store) == digest)


def check_name(name: str) -> None:
    """Raise if the name of an import is invalid."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{short_repr(name)} is not a valid name of an import: use letters, digits, _.-"
        )


def read_record(name: str, store: Store) -> ImportedData:
    """Return the record of the import with a name."""
    check_name(name)
    digest = _digest_named(name, store)
    if digest is None:
        raise UserError(
            f"{store.root} has no import {name!r}; create it with "
            f"tune-calib import {name} --calib FILE --test FILE --store {store.root}, or use the "
            "`store` that has it"
        )
    return ImportedData(**_read(artifact_manifest, digest, store)["imported"])


def open_import(
    read: Callable[[AnyPath], Read], imported: ImportedData | str, store: Store
) -> Read:
    """Read the bank or the manifest of an import; ``read`` can be the class of a bank."""
    if isinstance(imported, str):  # names are resolved before planning
        raise UserError(f"data.imported: {short_repr(imported)} is a name; its record is needed")
    return _read(read, imported.digest, store)


def _read(read: Callable[[AnyPath], Read], digest: str, store: Store) -> Read:
    try:
        return read(store.folder(KIND, digest))
    except DamagedFileError as error:
        raise UserError(
            f"{store.root} does not contain the complete import {digest} ({error}); import its "
            "files again"
        ) from None


def _digest_named(name: str, store: Store) -> str | None:
    if not store.holds(NAMES, name):
        return None
    try:
        return str(artifact_manifest(store.folder(NAMES, name))["digest"])
    except (DamagedFileError, KeyError):
        return None


def _write_bank(checked: Import, store: Store) -> None:
    record, head = checked.record, checked.head
    # Keys as in the manifests of networks and banks.
    manifest: dict[str, Any] = {"imported": record.model_dump()}
    manifest |= {"train_views": int(record.has_heads), "has_test": True, "epoch": 0, "history": []}

    def fill(folder: Path) -> None:
        network_checks = {}
        for name, files in checked.files.items():
            split = read_split(name, files, head)
            parts: dict[str, Tensor | None] = {name: None}
            if name == "calib" and record.is_cut:
                masks = halves(split.labels, split.groups)
                parts = dict(zip(("select", "calib"), masks, strict=True))
            for part, mask in parts.items():
                labels, groups = split.labels, split.groups
                if mask is not None:
                    labels = labels[mask]
                    groups = None if groups is None else groups[mask]
                if part in ("train", "select"):
                    pairs = _with_labels(split.chunks(mask), labels)
                    network_checks[part] = measure_network_check_in_parts(pairs)
                if part != "train":
                    write_split(folder / f"{part}.arrow", split.chunks(mask), labels, groups)
                elif record.has_heads:
                    write_split(folder / "train-000.arrow", split.chunks(mask), labels)
        if head is not None:
            write_arrow(folder / "head.arrow", {"weight": head.weight, "bias": head.bias[:, None]})
        # Otherwise the digest would not match the stored numbers.
        for path, stamp in checked.stamps.items():
            if stamp_of(path) != stamp:
                raise UserError(f"{path} changed while it was read; import it again")
        accuracies = {part: metrics["accuracy"] for part, metrics in network_checks.items()}
        manifest["accuracy"], manifest["regime"] = accuracies, network_checks.get("train", {})

    write_folder(store.folder(KIND, record.digest), fill, manifest)


def _with_labels(
    chunks: Iterator[tuple[Tensor, Tensor]], labels: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    first = 0
    for _, logits in chunks:
        if len(logits):
            yield logits, labels[first : first + len(logits)]
        first += len(logits)


def _count_groups(groups: Mapping[str, Tensor], names: Collection[str]) -> dict[str, int] | None:
    """Return the number of groups of each split but train; None without groups.

    Raises if a split lacks groups or has too few, or if two splits share a group.
    """
    if not groups:
        return None
    counts = {name: len(groups[name].unique()) for name in groups if name != "train"}
    for name in names:
        if name not in counts and name != "train":
            raise UserError(f"`{name}` has no groups, but another split has; add groups=FILE:KEY")
    for left, right in combinations(groups, 2):
        shared = np.intersect1d(groups[left].numpy(), groups[right].numpy())
        if len(shared):
            raise UserError(
                f"`{left}` and `{right}` share group {shared[0]}; numbers of groups are compared "
                "between splits, and a group must be in one split"
            )
    least = {"test": 2, "calib": 1 if "select" in names else 2}
    for name, needed in least.items():
        if counts[name] < needed:
            raise UserError(f"has {counts[name]} group, but needs at least {needed}", setting=name)
    return counts


def _check_equal(first: ImportedSplit, other: ImportedSplit) -> None:
    """Raise if splits cannot belong to the same network."""
    for name, key in (("classes", "classes"), ("features", "width"), ("outputs", "kind")):
        expected, actual = getattr(first, key), getattr(other, key)
        if expected != actual:
            raise UserError(
                f"`{first.name}` and `{other.name}` differ in {name}: {expected} and {actual}; are "
                "they outputs of the same network?"
            )


@dataclass(frozen=True)
class _Summary:
    """Digest of a split, and 64-bit hashes of its distinct rows, (M,) uint64, with counts."""

    digest: str
    samples: int
    rows: Any
    counts: Any


def _summarise(split: ImportedSplit) -> _Summary:
    shapes = repr((len(split.labels), split.width, split.classes, split.kind)).encode()
    features_digest, outputs_digest = hashlib.sha256(shapes), hashlib.sha256(shapes)
    outputs_digest.update(split.labels.numpy().tobytes())
    sums = []
    for features, outputs in split.numbers():
        features_digest.update(features.contiguous().numpy().data)
        outputs_digest.update(outputs.contiguous().numpy().data)
        # A 64-bit hash of each row: the same for equal rows, and hardly ever for others.
        values = features if split.width else outputs
        bits = values.contiguous().numpy().view(np.uint32).astype(np.uint64)
        odd = np.random.RandomState(1).randint(1, 2**63, bits.shape[1], np.uint64) | np.uint64(1)
        sums.append((bits * odd).sum(1, dtype=np.uint64))
    rows, counts = np.unique(np.concatenate(sums), return_counts=True)
    digest = f"{features_digest.hexdigest()}+{outputs_digest.hexdigest()}"
    if split.groups is not None:
        digest += f"+{hashlib.sha256(split.groups.numpy().tobytes()).hexdigest()}"
    return _Summary(digest, len(split.labels), rows, counts)


def _count_shared(left: _Summary, right: _Summary) -> int:
    """Count the rows that two splits share; 0 if they are few or may be equal by chance.

    Rows may be repeated in a split, and probabilities of two classes, with few digits or near 1 can
    be equal by chance. Chance divides the n samples of a row between the splits at random: whatever
    its rates there, a of n are in the first with a probability of at most C(n, a) (a/n)^a (b/n)^b,
    where b = n - a. Copies are divided in the same way more often.
    """
    if left.digest == right.digest:
        return left.samples
    rows, indices = np.unique(np.concatenate([left.rows, right.rows]), return_inverse=True)
    counts = np.zeros((len(rows), 2), np.int64)
    # All samples of a split may be repeated equally often.
    counts[indices[: len(left.rows)], 0] = left.counts // np.gcd.reduce(left.counts)
    counts[indices[len(left.rows) :], 1] = right.counts // np.gcd.reduce(right.counts)
    totals = Counter(counts.sum(1).tolist())
    in_both = counts[(counts > 0).all(1) & (counts.sum(1) <= MOST)]
    shared = 0
    for (a, b), frequency in Counter(map(tuple, in_both.tolist())).items():
        n, total = a + b, totals[a + b]
        chance = math.comb(n, a) * (a / n) ** a * (b / n) ** b
        alike = min(int((counts[:, 0] == a).sum()), int((counts[:, 1] == b).sum()))
        # Less evidence is needed for the divisions that are more plausible of copies.
        rare = RARE / (n - 1) / 2.0 ** (n - 2)
        is_sure = frequency > chance * total and _bound_tail(frequency, total, chance) < rare
        if is_sure and frequency - chance * total > SHARED * chance * alike:
            shared += frequency
    return shared


def _refuse_copies(calib: _Summary) -> None:
    """Refuse a split with copies of samples, which would be in both of its halves.

    Where rows are equal by chance, f_n, the number of rows with n samples, is at most the square
    root of f_(n-1) f_(n+1) (n+1)/n on average.
    """
    for n in (2, 3):
        fewer, copies, more = (int(np.sum(calib.counts == count)) for count in (n - 1, n, n + 1))
        by_chance = math.sqrt(fewer * more * (n + 1) / n)
        bound = COPIED * len(calib.rows) + SURE * math.sqrt(copies + by_chance)
        if copies - by_chance > bound:
            raise UserError(
                f"contains {copies} samples {n} times, so that its halves select and calib would "
                "share them; remove the copies, or give `select`",
                setting="calib",
            )


def _bound_tail(count: int, total: int, chance: float) -> float:
    """Return Chernoff's bound of the probability of ``count`` or more of ``total``."""
    log = count * math.log(total * chance / count)
    if count < total:
        log += (total - count) * math.log(total * (1 - chance) / (total - count))
    return math.exp(log)


def _digest(summaries: Mapping[str, _Summary], head: LinearHead | None) -> str:
    """Return the digest used in specs, 16 hexadecimal digits."""
    head_digest = hashlib.sha256()
    if head is not None:
        for tensor in (head.weight, head.bias):
            head_digest.update(repr(tuple(tensor.shape)).encode())
            head_digest.update(tensor.contiguous().numpy().tobytes())
    content = {
        "layout": LAYOUT,
        "splits": {name: summary.digest for name, summary in summaries.items()},
        "head": head_digest.hexdigest(),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
