"""Imported features and logits, stored like the feature bank of a network.

``imports/<digest>`` is a bank without a network, identified by its content; ``import_names/<name>``
holds the digest that a name currently stands for.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
from torch import Tensor

from tune_calib.data.arrays import FORMATS, ROLES, Array, arrays_in
from tune_calib.data.imported import ImportedSplit, LinearHead, halves, read_head, read_split
from tune_calib.engine.bank import FeatureBank, FeatureSplit, write_arrow, write_split
from tune_calib.engine.duplicates import Summary, count_shared, refuse_copies, summarise
from tune_calib.errors import DamagedFileError, RefusedError, UserError
from tune_calib.files.documents import hash_bytes, hash_text
from tune_calib.files.paths import AnyPath, require_writable
from tune_calib.files.store import (
    ARTIFACT_MANIFEST,
    Read,
    Store,
    artifact_manifest,
    read_manifest,
    read_or_remove,
    write_folder,
)
from tune_calib.metrics.summary import measure_network_check_in_parts
from tune_calib.progress import report_progress
from tune_calib.spec.slots.data import ImportedData
from tune_calib.spec.trial import TrialSpec
from tune_calib.text import format_count, short_repr

KIND, NAMES = "imports", "import_names"

LAYOUT = 2  # version of the content of an import; part of the digest
NO_SELECT = ("none",)  # in place of the files of ``select``

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_NAME = re.compile(rf"(?=.{{1,200}}$){_PART}(/{_PART})*")

Files = Sequence[str]

_SPLITS = {"select": "select", "cal": "calib", "calib": "calib", "test": "test"}
_ROLES = {name: role for role, names in ROLES.items() for name in names}

Models = Mapping[str, Mapping[str, Sequence[str]]]
"""The files of each split of each model, as ``check_files`` takes them."""


@dataclass(frozen=True)
class Import:
    record: ImportedData
    files: Mapping[str, Files]
    head: LinearHead | None


def check_files(train: Files, select: Files, calib: Files, test: Files, head: Files) -> Import:
    """Read and check the files of all splits, one after the other, and compute the digest.

    Without ``select``, ``calib`` is split in two, unless it is ``NO_SELECT``.
    """
    has_select = tuple(select) != NO_SELECT
    is_cut = has_select and not select
    splits = {"train": train, "select": select if has_select else (), "calib": calib, "test": test}
    for name in ("calib", "test"):
        if not splits[name]:
            raise UserError(f"`{name}` is missing; specify the files of this split")
    files = {name: paths for name, paths in splits.items() if paths}
    last_layer = read_head(head) if head else None
    summaries: dict[str, Summary] = {}
    labels: dict[str, Tensor] = {}
    groups: dict[str, Tensor] = {}
    counts = {"train": 0, "select": 0}
    first: ImportedSplit | None = None
    for name, paths in files.items():
        split = read_split(name, paths, last_layer)
        first = first or split
        _check_equal(first, split)
        summaries[name] = summarise(split)
        split.check_order()
        counts[name], labels[name] = len(split.labels), split.labels
        if split.groups is not None:
            groups[name] = split.groups
    assert first is not None
    if last_layer is not None and not first.width:
        raise UserError("is used with features only; add features, or omit `head`", setting="head")
    group_counts = _count_groups(groups, files, is_cut)
    if is_cut:
        if counts["calib"] < 2:
            raise UserError("has only one sample, too few for select and calib", setting="calib")
        parts = halves(labels["calib"], groups.get("calib"))
        counts["select"], counts["calib"] = (int(part.sum()) for part in parts)
    for left, right in combinations(summaries, 2):
        if shared := count_shared(summaries[left], summaries[right]):
            raise UserError(
                f"`{left}` and `{right}` share {shared} identical samples; splits must be disjoint"
            )
    if is_cut:
        refuse_copies(summaries["calib"])
    record = ImportedData(
        digest=_digest(summaries, last_layer, has_select),
        classes=first.classes,
        width=first.width,
        is_cut=is_cut,
        groups=group_counts,
        outputs=first.kind,
        **counts,
    )
    return Import(record, files, last_layer)


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
            write_folder(_folder_of(name, store), lambda path: None, {"digest": digest})


def find_names(digest: str, store: Store) -> list[str]:
    return [name for name in _list_names(store) if _digest_named(name, store) == digest]


def _list_names(store: Store) -> list[str]:
    paths = (store.root / NAMES).glob(f"*/{ARTIFACT_MANIFEST}")
    return sorted(unquote(path.parent.name) for path in paths)


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{short_repr(name)} is not a valid name of an import: use letters, digits, _.- and / "
            "between parts, at most 200 in all"
        )


def read_record(name: str, store: Store) -> ImportedData:
    check_name(name)
    digest = _digest_named(name, store)
    if digest is None:
        raise UserError(
            f"{store.root} has no import {name!r}; create it with "
            f"tune-calib import {name} --calib FILE --test FILE --store {store.root}, or use the "
            "`store` that has it"
        )
    return ImportedData(**_read(artifact_manifest, digest, store)["imported"])


def read_records(pattern: str, store: Store) -> dict[str, ImportedData]:
    """Return the records of the imports whose names match a pattern, by their first name."""
    names = _list_names(store)
    records: dict[str, ImportedData] = {}
    digests: dict[str, str] = {}
    for name in names:
        if not fnmatchcase(name, pattern):
            continue
        digest = _digest_named(name, store) or ""
        if digest not in digests:
            digests[digest] = name
            # Without the checksums of all files, which a run verifies anyway.
            records[name] = ImportedData(**_read(read_manifest, digest, store)["imported"])
    if not records:
        content = f"it has {format_count(len(names), 'import')}"
        if names:
            content += f", such as {names[0]}"
        raise UserError(f"no import in {store.root} matches {pattern!r}; {content}")
    return records


def open_import(read: Callable[[AnyPath], Read], record: ImportedData, store: Store) -> Read:
    """Read the bank or the manifest of an import; ``read`` can be the class of a bank."""
    return _read(read, record.digest, store)


def refuse_other_imports(members: Sequence[TrialSpec], store: Store) -> None:
    """Raise unless the members of a pool are models of the same samples and classes."""
    first: Mapping[str, FeatureSplit] = {}
    for record in filter(None, (member.data.import_record for member in members)):
        bank = open_import(FeatureBank, record, store).evaluated()
        first = first or bank
        for name, split in bank.items():
            of_first = first.get(name, bank["calib"])
            is_alike = first.keys() == bank.keys() and split.logits.shape == of_first.logits.shape
            if not (is_alike and split.labels.equal(of_first.labels)):
                raise UserError(
                    "a pool averages models of one data set, with the same samples in the same "
                    f"order, but its members differ in `{name}`; name other imports",
                    setting="imported",
                )


def _read(read: Callable[[AnyPath], Read], digest: str, store: Store) -> Read:
    try:
        return read(store.folder(KIND, digest))
    except (DamagedFileError, OSError) as error:
        raise UserError(
            f"{store.root} does not contain the complete import {digest} ({error}); import its "
            "files again"
        ) from None


def _digest_named(name: str, store: Store) -> str | None:
    folder = _folder_of(name, store)
    if not store.holds(NAMES, folder.name):
        return None
    try:
        return str(artifact_manifest(folder)["digest"])
    except (DamagedFileError, KeyError):
        return None


def _folder_of(name: str, store: Store) -> AnyPath:
    """Return the folder that holds the digest of a name, in which a slash is written ``%2F``."""
    return store.folder(NAMES, quote(name, safe=""))


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


def _count_groups(
    groups: Mapping[str, Tensor], names: Collection[str], is_cut: bool
) -> dict[str, int] | None:
    """Return the number of groups of each split but train; None without groups."""
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
    least = {"test": 2, "calib": 2 if is_cut else 1}
    for name, needed in least.items():
        if counts[name] < needed:
            raise UserError(f"has {counts[name]} group, but needs at least {needed}", setting=name)
    return counts


def _check_equal(first: ImportedSplit, other: ImportedSplit) -> None:
    for name, key in (("classes", "classes"), ("features", "width"), ("outputs", "kind")):
        expected, actual = getattr(first, key), getattr(other, key)
        if expected != actual:
            raise UserError(
                f"`{first.name}` and `{other.name}` differ in {name}: {expected} and {actual}; are "
                "they outputs of the same network?"
            )


def _digest(summaries: Mapping[str, Summary], head: LinearHead | None, has_select: bool) -> str:
    parts = []
    if head is not None:
        for tensor in (head.weight, head.bias):
            parts.append(repr(tuple(tensor.shape)).encode())
            parts.append(tensor.contiguous().numpy().tobytes())
    content = {
        "layout": LAYOUT,
        "splits": {name: summary.digest for name, summary in summaries.items()},
        "head": hash_bytes(*parts),
    }
    if not has_select:
        content["without"] = "select"
    return hash_text(json.dumps(content, sort_keys=True))[:16]


def find_models(path: Path) -> Models:
    """Find the models of an HDF5 file or a folder in the layout of CalArena, by their arrays.

    The arrays of a model are ``DATASET/MODEL/ROLE_SPLIT`` or ``DATASET/MODEL/SPLIT/ROLE``, e.g.
    ``cifar10/resnet110/probas_cal``. Below a folder, the path of a file without its suffix is the
    beginning of the names of its arrays.
    """
    models: dict[str, dict[str, list[str]]] = {}
    for name, array in _list_arrays(path):
        parent, _, leaf = name.rpartition("/")
        role, _, split = leaf.rpartition("_")
        if split not in _SPLITS:
            role = leaf
            parent, _, split = parent.rpartition("/")
        if parent and split in _SPLITS and role in _ROLES:
            files = models.setdefault(parent, {"select": [], "calib": [], "test": []})
            files[_SPLITS[split]].append(f"{_ROLES[role]}={array.path}:{array.name}")
    for splits in models.values():
        for split, arrays in splits.items():
            if any(array.startswith("logits=") for array in arrays):  # they are exact
                splits[split] = [array for array in arrays if not array.startswith("probs=")]
    if not models:
        raise UserError(
            f"{path} has no model; the names of its arrays must be DATASET/MODEL/probas_cal, "
            "labels_cal, probas_test and labels_test (logits_ for logits)"
        )
    return models


def _list_arrays(path: Path) -> Iterator[tuple[str, Array]]:
    if not path.is_dir():
        yield from arrays_in(path).items()
        return
    for file in sorted(path.rglob("*")):
        if file.suffix.lower() not in FORMATS or not file.is_file():
            continue
        parent = file.relative_to(path).with_suffix("").as_posix()
        for name, array in arrays_in(file).items():
            is_named_by_file = file.suffix.lower() == ".npy"
            yield parent if is_named_by_file else f"{parent}/{name}", array


def import_models(
    name: str, models: Models, select: Sequence[str], store: Store, replace: bool
) -> list[str]:
    """Import models as ``NAME/DATASET/MODEL``; return a line for each that is refused."""
    refused = []
    for number, (model, files) in enumerate(models.items()):
        report_progress(f"importing {model}", number, len(models))
        try:
            check_name(f"{name}/{model}")
            select_files = select or files["select"]
            checked = check_files((), select_files, files["calib"], files["test"], head=())
            write_import(f"{name}/{model}", checked, store, replace=replace)
        except RefusedError:  # it concerns all of them, e.g. a full disk
            raise
        except UserError as error:
            refused.append(f"{model}: {error}")
    return refused
