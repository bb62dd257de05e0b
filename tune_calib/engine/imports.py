"""Features and logits that others made, kept in the store as the feature bank of a network.

``imports/<digest>`` is a bank without a network, by what it holds; ``import_names/<name>`` says
which of them a name means, and may say another later.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from tune_calib.data.given import GivenSplit
from tune_calib.engine.bank import DevelopmentBank, write_arrow, write_split
from tune_calib.engine.import_files import Import
from tune_calib.engine.store import (
    ARTIFACT_MANIFEST,
    Store,
    artifact_manifest,
    read_or_remove,
    write_folder,
)
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.metrics.summary import regime_in_parts
from tune_calib.paths import require_writable
from tune_calib.spec.slots.data import ImportedData
from tune_calib.text import short_repr

KIND, NAMES = "imports", "import_names"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

_Bank = TypeVar("_Bank", bound=DevelopmentBank)


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
        given.refuse_changed()
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


def _judged(
    split: GivenSplit, labels: Tensor, kept: Tensor | None
) -> Iterator[tuple[Tensor, Tensor]]:
    first = 0
    for _, logits in split.chunks(kept):
        if len(logits):
            yield logits, labels[first : first + len(logits)]
        first += len(logits)


def names_of(digest: str, store: Store) -> list[str]:
    """Return the names that mean an import in a store, in their order."""
    found = (path.parent.name for path in (store.root / NAMES).glob(f"*/{ARTIFACT_MANIFEST}"))
    return sorted(name for name in found if _named(name, store) == digest)


def refuse_name(name: str) -> None:
    """Refuse what is no name of an import.

    Raises:
        UserError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise UserError(f"{short_repr(name)} names no import: take letters, digits, _.-")


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
        raise UserError(
            f"data.imported: {short_repr(imported)} is a name, and its record is needed"
        )
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
