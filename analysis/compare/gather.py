"""Means of methods in (data set, variant, backbone, split) columns, for ranks and averages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from analysis.compare.regime import name_of, regime_of
from analysis.load import load
from analysis.published import published, published_titles
from analysis.shifts import FOREIGN_MEAN
from analysis.tidy import (
    check_looked,
    check_metric,
    choose,
    flags_of_methods,
    incomplete,
    parted,
    tidy,
    without_identity,
)
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.spec.metrics import METRICS, OOD_METRICS
from tune_calib.spec.names import CHANCE, signed

KEY = ["dataset", "variant", "backbone", "split"]


class Collected(NamedTuple):
    """Results to compare."""

    frame: pd.DataFrame  # with the columns of ``tidy.tidy``
    notes: list[str]  # the network check of each run, and planned trials without numbers
    titles: dict[str, str]  # printed names of data sets and backbones


def collect(
    folders: Sequence[AnyPath], table: str | None, metric: str, split: str | None = None
) -> Collected:
    """Read the results of runs or of a published table, on ``test`` or every ``ood/`` set."""
    metric, split = parted(metric, split)
    check_metric(metric)
    if bool(folders) == (table is not None):
        raise UserError("name folders of runs, or --published with a table, not both")
    sweeps = [load(folder, metric) for folder in folders]
    checked = [(name_of(sweep), regime_of(sweep).sentence) for sweep in sweeps]
    notes = [f"{name}: {sentence[0].lower()}{sentence[1:]}" for name, sentence in checked]
    notes += [line for sweep in sweeps for line in incomplete(sweep, metric)]
    # Runs recorded before there were titles have those of the papers.
    titles = published_titles()
    for sweep in sweeps:
        titles |= sweep.manifest.titles
    if table is None:
        frame = pd.concat([tidy(sweep, [metric]) for sweep in sweeps], ignore_index=True)
        check_looked(frame, metric)
    else:
        frame = published(table)
    # The mean over foreign sets counts only where a user names it.
    is_ood = frame["split"].str.startswith("ood/") & (frame["split"] != FOREIGN_MEAN)
    if split is not None:
        frame = choose(frame, split=split)
    else:
        frame = frame[is_ood if metric in OOD_METRICS else frame["split"] == "test"]
    return Collected(frame, notes, titles)


@dataclass(frozen=True, eq=False)
class Scores:
    """Means of one metric over seeds, methods down and columns across."""

    metric: str
    source: str  # the published tables, or the ids of the sweeps
    is_published: bool
    values: pd.DataFrame  # of methods with a number, in the order of the source; fractions
    n: pd.DataFrame  # trials behind each value
    at_chance: pd.DataFrame  # values that include a trial at chance
    uncounted: tuple[Any, ...]  # columns in which a method has no number
    flags: Mapping[str, list[str]]  # cells of the column ``flags`` of the trials of each method
    notes: tuple[str, ...]  # what is left out or does not count, and why

    def label(self, method: str) -> str:
        """Return the name of a method with the signs of its flags."""
        return signed(method, self.flags.get(method, []))


def gather(frame: pd.DataFrame, metric: str) -> Scores:
    """Compute the scores of a metric in a tidy frame.

    Methods compare only where all have a number: methods without any are left out, then columns
    in which a method has none do not count. Averages that a paper prints are no columns.
    """
    rows = frame[frame["metric"] == metric]
    values, n = _average_seeds(rows, metric)
    at_chance = _find_chance(rows, values)
    absent = values.index[values.isna().all(axis="columns")]
    values, n, at_chance = (part.drop(index=absent) for part in (values, n, at_chance))
    keys: list[Any] = values.columns.to_list()
    without = {key: values.index[values[key].isna()] for key in keys}
    uncounted = tuple(key for key, methods in without.items() if len(methods))
    notes = [f"left out, without any number: {', '.join(absent)}"] if len(absent) else []
    notes += [
        f"{column_name(key)} does not count: no number of {', '.join(without[key])}"
        for key in uncounted
    ]
    if len(uncounted) == len(without):
        raise UserError("no column has a number of every method: " + "; ".join(notes))
    return Scores(
        metric=metric,
        source=", ".join(frame["source"].astype(str).unique()),
        is_published=bool((frame["status"] == "published").all()),
        values=values,
        n=n,
        at_chance=at_chance,
        uncounted=uncounted,
        flags=flags_of_methods(rows),
        notes=tuple(notes),
    )


def column_name(key: Iterable[str]) -> str:
    """Return the name of a column, without its split where that is ``test``."""
    dataset, identity, backbone, split = key
    variant = without_identity(identity)
    parts = [dataset, f"({variant})" if variant else "", backbone, split if split != "test" else ""]
    return " ".join(part for part in parts if part)


def without_nan(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with None for NaN, which JSON does not have."""
    return frame.astype(object).where(frame.notna(), None)


def _average_seeds(rows: pd.DataFrame, metric: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return mean and count over seeds, methods down and columns across."""
    has_rows = len(rows) > 0
    rows = rows[(rows["backbone"] != "average") & (rows["dataset"] != "average")]
    if rows["value"].isna().all():
        why = "only averages are printed" if has_rows and rows.empty else "is the split right?"
        raise UserError(f"no {METRICS[metric].title} of a column in these results; {why}")
    # A spec that two sweeps share is one trial; a printed number is known by its table.
    trial = rows["spec_hash"].where(rows["spec_hash"] != "", rows["source"])
    rows = rows.assign(trial=trial).reset_index(drop=True)
    # It may have crashed in one of them: its number in the other counts.
    numbers_first = rows["value"].isna().sort_values(kind="stable").index
    rows = rows.loc[numbers_first].drop_duplicates(["trial", "method", *KEY]).sort_index()
    seeds = ["method", *KEY, "network_seed", "head_seed"]
    mixed = rows[rows["value"].notna() & rows.duplicated(seeds, keep=False)]
    if len(mixed):
        first = mixed.iloc[0]
        raise UserError(
            f"{first['method']!r} is two different methods on {column_name(first[KEY])}: same "
            "seeds, other settings; rank these folders apart"
        )
    # Grouping drops rows without a key: trials that are missing may not know their backbone.
    groups = rows.fillna({"backbone": "unknown"}).groupby(["method", *KEY], sort=False)["value"]
    cells = groups.agg(["mean", "count"])
    wide = {part: cells[part].unstack(KEY, sort=False) for part in cells}
    return wide["mean"], wide["count"].fillna(0).astype(int)


def _find_chance(rows: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """Return which values include a trial flagged as at chance."""
    flagged = rows[rows["flags"].astype(str).str.contains(CHANCE)]
    is_chance = pd.DataFrame(False, index=values.index, columns=values.columns)
    for method, *key in flagged.fillna({"backbone": "unknown"})[["method", *KEY]].to_numpy():
        is_chance.loc[method, tuple(key)] = True
    return is_chance
