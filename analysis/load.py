"""Reading a sweep: its manifest and its result tables, complete or loudly incomplete."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tune_calib.errors import UserError
from tune_calib.names import STATUSES
from tune_calib.results import read_table


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep as its folder holds it.

    Attributes:
        manifest: ``sweep.json``: what was asked and planned.
        trials: one row a planned trial that has a result; metrics are fractions.
        curves: one row a (trial, epoch, name).
        bins: one row a (trial, split, bin).
    """

    manifest: dict[str, Any]
    trials: pd.DataFrame
    curves: pd.DataFrame
    bins: pd.DataFrame

    @property
    def rungs(self) -> list[dict[str, Any]]:
        """Rungs in the order of the ladder, controls last."""
        return list(self.manifest["rungs"])

    @property
    def missing(self) -> int:
        """Planned trials without a row."""
        planned = {entry["spec_hash"] for entry in self.manifest["planned"]}
        return len(planned - set(self.trials["spec_hash"]))

    def of_rung(self, index: int, done_only: bool = True) -> pd.DataFrame:
        """Rows of one rung; only those that are done have metrics."""
        rows = self.trials[self.trials["rung"] == index]
        return rows[rows["status"] == "done"] if done_only else rows

    def statuses(self, index: int) -> str:
        """How the trials of a rung ended, e.g. ``5 done`` or ``3 done, 1 diverged, 1 missing``."""
        counts = Counter(self.of_rung(index, done_only=False)["status"])
        planned = sum(entry["rung"] == index for entry in self.manifest["planned"])
        parts = [f"{counts[status]} {status}" for status in STATUSES if counts[status]]
        missing = planned - sum(counts.values())
        return ", ".join([*parts, f"{missing} missing"] if missing else parts)

    def curves_of(self, rung: int, name: str) -> pd.DataFrame:
        """One recorded quantity of a rung's trials: columns spec_hash, epoch, value."""
        hashes = set(self.of_rung(rung)["spec_hash"])
        chosen = self.curves["spec_hash"].isin(hashes) & (self.curves["name"] == name)
        return self.curves[chosen].drop(columns="name")


def load(out: Path) -> Sweep:
    """Read a sweep.

    Args:
        out: its folder.

    Raises:
        UserError: the folder holds no sweep, or a file of it is damaged.
    """
    path = out / "sweep.json"
    if not path.exists():
        raise UserError(f"{out} holds no sweep.json; name the --out folder of a sweep")
    try:
        manifest = json.loads(path.read_text())
    except ValueError:
        raise UserError(f"{path} is not whole; run the sweep's command again") from None
    trials = read_table(out, "trials").to_pandas()
    planned = {entry["spec_hash"] for entry in manifest["planned"]}
    trials = trials[trials["spec_hash"].isin(planned)].drop_duplicates("spec_hash")
    order = ["rung", "network_seed", "head_seed"]
    return Sweep(
        manifest=manifest,
        trials=trials.sort_values(order).reset_index(drop=True),
        curves=read_table(out, "curves")
        .to_pandas()
        .drop_duplicates(["spec_hash", "epoch", "name"]),
        bins=read_table(out, "bins").to_pandas().drop_duplicates(["spec_hash", "split", "bin"]),
    )
