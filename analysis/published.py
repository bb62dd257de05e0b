"""The numbers that the papers print, as package data."""

from importlib.resources import files

import pandas as pd

from tune_calib.errors import UserError
from tune_calib.names import METRICS


def published(table: str) -> pd.DataFrame:
    """Read one published table.

    Args:
        table: ``paper/table``, e.g. ``maccal/table5``.

    Returns:
        Columns method, dataset, arch, metric, value, note; metrics of ``names.METRICS`` are
        fractions, everything else as printed.

    Raises:
        UserError: there is no such table; the message lists those there are.
    """
    with (files("analysis") / "published" / "published_results.csv").open() as file:
        everything = pd.read_csv(file)
    names = everything["paper"] + "/" + everything["table"]
    if table not in set(names):
        known = ", ".join(sorted(set(names)))
        raise UserError(f"no published table {table!r}; known: {known}")
    rows = everything[names == table].drop(columns=["paper", "table"]).reset_index(drop=True)
    is_fraction = rows["metric"].isin([m.name for m in METRICS.values() if m.unit == "fraction"])
    rows.loc[is_fraction, "value"] /= 100
    return rows
