"""Extra evaluations of finished trials: on shift sets, and with bootstrap intervals.

No hash and no request contains them, so that they may be added later to what is finished.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import column
from tune_calib.spec.names import LEAST_DRAWS
from tune_calib.spec.slots.data import DataSlot

# Torch and Ray, which nobody needs to see that nothing is left to do.
if TYPE_CHECKING:
    from tune_calib.tuning.ray.extra import ExtraTrial

_TEST_COLUMNS = tuple(column("test", name) for name in ("accuracy", "ece"))


@dataclass(frozen=True)
class ExtraEvaluations:
    """The requested extra evaluations.

    Attributes:
        shift: words of ``data.shift``.
        bootstrap: draws of the test samples, and of those of shift sets; 0 for none.
    """

    shift: tuple[str, ...] = ()
    bootstrap: int = 0

    def list_sets(self, slot: DataSlot, root: Path | None) -> list[str]:
        """Return the names of the shift sets."""
        if self.bootstrap < 0 or 0 < self.bootstrap < LEAST_DRAWS:
            raise UserError(
                f"`bootstrap` must be 0 or at least {LEAST_DRAWS}, got {self.bootstrap}"
            )
        from tune_calib.data.shift import find_sets

        return find_sets(self.shift, slot, root)


def find_extra_trials(
    extra: ExtraEvaluations, sets: Sequence[str], planned: Sequence[PlannedTrial], out: AnyPath
) -> "list[ExtraTrial]":
    """Find the extra evaluations, on shift sets by name, that finished trials of a folder lack.

    A trial that was evaluated on a shift set with fewer draws, or with none, is evaluated again.
    """
    if not sets and not extra.bootstrap:
        return []
    from tune_calib.tuning.ray.extra import group_extra_trials

    names = {"spec_hash", "status", *_TEST_COLUMNS}
    rows: list[dict[str, Any]] = read_table(out, "trials", columns=names).to_pylist()
    finished: dict[str, Mapping[str, float]] = {
        row["spec_hash"]: {name: row[name] for name in _TEST_COLUMNS}
        for row in rows
        if row["status"] == "done" and row.get(_TEST_COLUMNS[0]) is not None
    }
    trials = [(t, finished[t.spec.hash]) for t in planned if t.spec.hash in finished]
    found = []
    if sets:
        table = read_table(out, "shifts", columns=["spec_hash", "set", "resamples"])
        is_drawn = pc.greater_equal(pc.fill_null(table["resamples"], 0), extra.bootstrap)
        pairs = table.filter(is_drawn).group_by(["spec_hash", "set"]).aggregate([]).to_pylist()
        # A set may have parts, such as the severities of a corruption.
        evaluated = {(row["spec_hash"], "/".join(row["set"].split("/")[:2])) for row in pairs}
        for name in sets:
            left = [each for each in trials if (each[0].spec.hash, name) not in evaluated]
            found += group_extra_trials(left, name, extra.bootstrap)
    if extra.bootstrap:
        table = read_table(out, "intervals", columns=["spec_hash", "resamples"])
        drawn = table.filter(pc.equal(table["resamples"], extra.bootstrap))["spec_hash"]
        hashes = set(drawn.to_pylist())
        left = [each for each in trials if each[0].spec.hash not in hashes]
        found += group_extra_trials(left, None, extra.bootstrap)
    # One network after the other: a Ray actor keeps open what they share.
    return sorted(found, key=lambda each: each.network_id)
