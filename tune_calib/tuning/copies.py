"""Identify the copy of a data set behind the rows of a folder, so that two copies never mix.

A trial spec names a data set and not its files. Two copies of one data set, such as the archive
and a re-encoded folder of images, therefore give trials of one hash and other numbers.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tune_calib.console import echo
from tune_calib.data.splits import load_development
from tune_calib.engine.imports import read_manifest
from tune_calib.engine.store import ARTIFACT_MANIFEST, Store
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.results.tables import NUMBERS, read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import canonical_json

COLUMNS = ("data", "dataset", "network_id", "data_digest", "numbers")
"""Columns of ``trials`` that identify the copy and the version behind a row."""


class Copy(NamedTuple):
    """A data set as the driver of a run reads it."""

    digest: str  # of all pixels and labels; equal for two layouts of the same images
    fingerprint: str  # of its splits, as manifests of networks hold it
    is_bundled: bool  # it has no files, so that there is one copy alone


@dataclass(frozen=True)
class Copies:
    """The copies that a run reads, by the canonical JSON of their data slots.

    Imported data have none, since their digest is part of the spec. The manifests of networks in
    the store identify the copy behind rows of earlier versions.
    """

    known: Mapping[str, Copy]
    data_root: Path | None
    store: Store

    @classmethod
    def read(cls, slots: Iterable[DataSlot], data_root: Path | None, store: Store) -> "Copies":
        """Read the data of a run, so that damaged files are refused before it starts."""
        known: dict[str, Copy] = {}
        for key, slot in {canonical_json(slot): slot for slot in slots}.items():
            if slot.imported is not None:
                read_manifest(slot.imported, store)
                continue
            read = load_development(slot, data_root, store.images)
            is_bundled = not slot.info.locate(data_root)
            known[key] = Copy(read.digest, read.fingerprint(), is_bundled)
        return cls(known, data_root, store)

    @property
    def digests(self) -> dict[str, str]:
        """Return the digest of each data slot, for the rows of its trials."""
        return {key: copy.digest for key, copy in self.known.items()}

    def refuse_other(self, out: AnyPath, left: Iterable[PlannedTrial]) -> None:
        """Refuse to add rows to a folder whose rows are of another copy or of another version."""
        rows = read_table(out, "trials", columns=COLUMNS).group_by(list(COLUMNS))
        undated: set[str] = set()
        for row in rows.aggregate([]).to_pylist():
            if (row["numbers"] or 1) != NUMBERS:
                raise UserError(
                    f"`out` {out} holds trials of a version of the program whose numbers are "
                    f"others ({row['numbers'] or 1}, and this one has {NUMBERS}); report still "
                    "reads it, but to go on name another `out`"
                )
            if self.is_same(row, out) is None:
                undated.add(row["dataset"])
        specs = {trial.spec.network_id: trial.spec for trial in left}
        for network_id, spec in specs.items():
            copy = self.known.get(canonical_json(spec.data))
            if copy is not None and self._fingerprint(network_id) not in (None, copy.fingerprint):
                raise UserError(
                    f"`store` {self.store.root} holds networks that were trained on another copy "
                    f"of {spec.data.dataset} than `data_root` {self.data_root} holds; name "
                    "another `store`, or the `data_root` as it was"
                )
        if undated and specs:
            echo(
                f"{out} holds trials of an earlier version, which did not record its copy of "
                f"{' and '.join(sorted(undated))}: make sure that it was {self.data_root}",
                err=True,
            )

    def is_same(self, row: Mapping[str, Any], out: AnyPath) -> bool | None:
        """Return whether a row is of the copy that is read now; None where nobody can know.

        Rows of earlier versions hold no digest. The network behind them does, if the store still
        has it.
        """
        copy = self.known.get(row["data"])
        if copy is None:
            return True
        before, now = row["data_digest"], copy.digest
        if before is None:
            before, now = self._fingerprint(row["network_id"]), copy.fingerprint
        if before is None:
            return True if copy.is_bundled else None
        if before != now:
            raise UserError(
                f"{out} holds trials on another copy of {row['dataset']} ({before}) than "
                f"`data_root` {self.data_root} holds ({now}), and they cannot be mixed: name "
                "another `out`, or the `data_root` as it was"
            )
        return True

    def _fingerprint(self, network_id: str) -> str | None:
        """Return the fingerprint of the splits that a network in the store was trained on."""
        path = self.store.folder("networks", network_id) / ARTIFACT_MANIFEST
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads(path.read_text())["data"])
        return None
