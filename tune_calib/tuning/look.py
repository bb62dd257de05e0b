"""What finished trials are looked at beside: shift sets, bootstrap intervals.

It is asked for with a ladder, a comparison or an evaluation and is part of neither: no hash and no
question knows of it, so that it may be asked for later, of what is finished.
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

# torch and Ray, which nobody needs to read what was asked for, or that nothing is left to do.
if TYPE_CHECKING:
    from tune_calib.tuning.ray.executor import Resources
    from tune_calib.tuning.ray.look import Look

_TOLD = tuple(column("test", name) for name in ("accuracy", "ece"))


@dataclass(frozen=True)
class CloserLook:
    """A closer look as it is asked for.

    Attributes:
        shift: words of ``data.shift``.
        bootstrap: draws of the test samples, and of those of shift sets; 0 asks for none.
    """

    shift: tuple[str, ...] = ()
    bootstrap: int = 0

    def sets(self, slot: DataSlot, root: Path | None) -> list[str]:
        """Names of the shift sets.

        Raises:
            UserError: a word is unknown, files are not there or damaged, or the number of draws is
                too small for an interval.
        """
        if self.bootstrap < 0 or 0 < self.bootstrap < LEAST_DRAWS:
            raise UserError(
                f"`bootstrap` must be 0 or at least {LEAST_DRAWS}, got {self.bootstrap}"
            )
        from tune_calib.data.shift import sets_asked

        return sets_asked(self.shift, slot, root)


def lacking(
    asked: CloserLook, sets: Sequence[str], planned: Sequence[PlannedTrial], out: AnyPath
) -> "list[Look]":
    """What of a closer look is left to do: of trials that are done, and have no such rows.

    A trial that was looked at on a shift set with fewer draws, or with none, is looked at again.

    Args:
        asked: the look.
        sets: as ``CloserLook.sets`` gives them.
        planned: the trials that it is asked of.
        out: their folder.
    """
    if not sets and not asked.bootstrap:
        return []
    from tune_calib.tuning.ray.look import in_looks

    rows = _done(out)
    trials = [(trial, rows[trial.spec.hash]) for trial in planned if trial.spec.hash in rows]
    looked = _looked(out, asked.bootstrap) if sets else set()
    looks = []
    for name in sets:
        left = [each for each in trials if (each[0].spec.hash, name) not in looked]
        looks += in_looks(left, name, asked.bootstrap)
    if asked.bootstrap:
        drawn = _drawn(out, asked.bootstrap)
        left = [each for each in trials if each[0].spec.hash not in drawn]
        looks += in_looks(left, None, asked.bootstrap)
    # Of one network after the other: a Ray actor keeps open what they share.
    return sorted(looks, key=lambda look: look.trials[0][0].spec.network_id)


def needs(looks: "Sequence[Look]", gpus: float) -> "list[Resources]":
    """What the Ray trials of some looks need."""
    from tune_calib.tuning.ray.executor import Resources

    kinds = {(look.threads, look.precision) for look in looks}
    return [Resources(threads, gpus, precision) for threads, precision in sorted(kinds)]


def _done(out: AnyPath) -> dict[str, Mapping[str, float]]:
    """What the rows of finished trials say of test, by spec hash."""
    names = {"spec_hash", "status", *_TOLD}
    rows: list[dict[str, Any]] = read_table(out, "trials", keep=names.__contains__).to_pylist()
    return {
        row["spec_hash"]: {name: row[name] for name in _TOLD}
        for row in rows
        if row["status"] == "done" and row.get(_TOLD[0]) is not None
    }


def _looked(out: AnyPath, resamples: int = 0) -> set[tuple[str, str]]:
    """Spec hash and name of every shift set that a trial was looked at on, with so many draws."""
    table = read_table(out, "shifts", keep={"spec_hash", "set", "resamples"}.__contains__)
    drawn = pc.greater_equal(pc.fill_null(table["resamples"], 0), resamples)
    pairs = table.filter(drawn).group_by(["spec_hash", "set"]).aggregate([]).to_pylist()
    return {(row["spec_hash"], "/".join(row["set"].split("/")[:2])) for row in pairs}


def _drawn(out: AnyPath, resamples: int) -> set[str]:
    """Spec hashes of trials that have intervals of so many draws."""
    table = read_table(out, "intervals")
    return set(table.filter(pc.equal(table["resamples"], resamples))["spec_hash"].to_pylist())
