"""The numbers that the papers print, as package data, in the tidy shape of our own results."""

from dataclasses import replace
from functools import cache
from importlib.resources.abc import Traversable

import pandas as pd

from analysis.load import Sweep
from analysis.printed import NUMBERS, TITLES, overview
from analysis.tidy import COLUMNS
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS, OOD_METRICS

# Our name of a method, and how each paper prints it where that is more than a matter of case.
_PRINTED = {
    "maccal": {"ce": "Vanilla", "mit_a": "MIT", "mac_cal": "MaC-Cal"},
    "fedlas": {
        "flsd": "FLSD-53",
        "fedlas_ls": "FeDLaS-LS",
        "fedlas_mbls": "FeDLaS-MbLS",
        "temperature": "CE+TS",
    },
    "tst": {"ce": "Base", "temperature": "TS", "vtst": "V-TST", "retrain": "Linear"},
}


def published(table: str) -> pd.DataFrame:
    """Read one published table.

    Args:
        table: ``paper/table``, e.g. ``maccal/table5``.

    Returns:
        The columns of ``tidy.COLUMNS``: source is the table's name, method as printed, status
        ``published``, seeds absent; dataset and backbone are ``average`` where the paper prints
        only that. OOD results stand on the split ``ood/<set>``. Metrics of ``names.METRICS`` are
        fractions; ``rank_ece``, ``rank_aece`` and ``train_seconds_a40`` as printed.

    Raises:
        UserError: there is no such table; the message lists those there are.
    """
    everything = _everything()
    rows = everything[everything["source"] == table]
    if rows.empty:
        raise UserError(f"no published table {table!r}; known: {', '.join(published_tables())}")
    return rows.reset_index(drop=True)


def published_tables() -> list[str]:
    """Names of the published tables, sorted."""
    return list(overview())


def printed_name(table: str, method: str) -> str | None:
    """How a table names one of our methods; None if it has no such row."""
    methods = {name.lower(): name for name in published(table)["method"].unique()}
    name = _PRINTED.get(table.partition("/")[0], {}).get(method, method)
    return methods.get(name.lower())


def published_titles() -> dict[str, str]:
    """How the papers print the names of data sets and backbones, by our names."""
    rows = _read(TITLES)
    return dict(zip(rows["name"], rows["title"], strict=True))


def beside(sweep: Sweep, table: str) -> Sweep:
    """The sweep with another published table beside it: its rungs get the names of that table.

    Raises:
        UserError: there is no such table, or it prints none of the sweep's methods.
    """
    if table == sweep.manifest.published:
        return sweep
    rungs = [
        rung.model_copy(update={"published": printed_name(table, rung.label)})
        for rung in sweep.rungs
    ]
    if not any(rung.published for rung in rungs):
        printed = ", ".join(published(table)["method"].unique())
        raise UserError(f"{table} prints none of this sweep's methods; it prints {printed}")
    return replace(
        sweep, manifest=sweep.manifest.model_copy(update={"published": table, "rungs": rungs})
    )


def _read(file: Traversable) -> pd.DataFrame:
    with file.open(encoding="utf-8") as text:
        return pd.read_csv(text, keep_default_na=False)


@cache
def _everything() -> pd.DataFrame:
    rows = pd.concat([_read(numbers) for numbers in NUMBERS], ignore_index=True)
    data = rows["dataset"].str.partition("->")
    is_ood = rows["metric"].isin(OOD_METRICS)
    is_fraction = rows["metric"].isin(
        [name for name in METRICS if METRICS[name].unit == "fraction"]
    )
    rows = rows.rename(columns={"arch": "backbone"}).assign(
        source=rows["paper"] + "/" + rows["table"],
        dataset=data[0],
        variant="",
        split=("ood/" + data[2].where(data[2] != "", "average")).where(is_ood, "test"),
        # Rounded, since 1.22 / 100 is 0.012199999999999999.
        value=rows["value"].where(~is_fraction, (rows["value"] / 100).round(6)),
        status="published",
        network_seed=pd.array([pd.NA] * len(rows), dtype="Int64"),
        head_seed=pd.array([pd.NA] * len(rows), dtype="Int64"),
        spec_hash="",
        flags="",
    )
    return rows[list(COLUMNS)]
