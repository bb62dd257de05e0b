"""Mean ranks of methods over (data set, backbone) columns, as the papers print them."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import pandas as pd

from analysis.compare.regime import name_of, regime_of, withheld
from analysis.load import load
from analysis.published import published, published_titles
from analysis.shifts import FOREIGN_MEAN
from analysis.text import rounded
from analysis.tidy import (
    check_looked,
    check_metric,
    choose,
    flags_of_methods,
    incomplete,
    parted,
    tidy,
)
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.spec.metrics import METRICS, OOD_METRICS
from tune_calib.spec.names import CHANCE, legend

TIES: dict[str, Literal["min", "average"]] = {"competition": "min", "average": "average"}
KEY = ["dataset", "variant", "backbone", "split"]


@dataclass(frozen=True, eq=False)
class RankTable:
    """Values and ranks of methods, a column for each (data set, variant, backbone, split).

    Attributes:
        source: the published tables, or the ids of the sweeps.
        is_published: whether the values are printed ones.
        metric: a name of ``names.METRICS``.
        ranking: how ties are ranked: ``competition`` (all get the smallest rank, as in the
            papers) or ``average`` (all get the mean rank).
        values: means over seeds, index method in the order of the source; fractions where the
            metric is one; NaN where a method has no number.
        n: how many trials stand behind each value.
        ranks: from 1, of the values as printed; NaN in columns that do not count.
        notes: what was left out and why, a line each.
        flags: cells of the column ``flags`` of the trials of each method that has some.
        at_chance: which values stand on a trial at chance; such a one is ranked last.
        titles: printed names of data sets and backbones, as far as they are known and distinct.
    """

    source: str
    is_published: bool
    metric: str
    ranking: str
    values: pd.DataFrame
    n: pd.DataFrame
    ranks: pd.DataFrame
    notes: tuple[str, ...]
    flags: Mapping[str, list[str]]
    at_chance: pd.DataFrame
    titles: Mapping[str, str]

    @property
    def counted(self) -> pd.DataFrame:
        """Ranks in the columns that count."""
        return self.ranks.dropna(axis="columns", how="all")

    @property
    def summary(self) -> pd.DataFrame:
        """Columns mean_rank, wins (columns in which no method is better), columns (counted).

        Index method, best mean rank first.
        """
        best = self.counted.eq(self.counted.min()) & ~self.at_chance[self.counted.columns]
        table = pd.DataFrame(
            {
                "mean_rank": self.counted.mean(axis="columns"),
                "wins": best.sum(axis="columns"),
                "columns": len(self.counted.columns),
            }
        )
        # Stable: methods of one mean rank stay in the order of the source.
        return table.sort_values("mean_rank", kind="stable")


class Gathered(NamedTuple):
    """Numbers of one metric, methods down, columns across.

    Attributes:
        values: means over seeds of methods that have a number; NaN where one has none.
        n: how many trials stand behind each value.
        at_chance: which values stand on a trial at chance.
        uncounted: columns in which a method has no number.
        flags: cells of the column ``flags`` of the trials of each method that has some.
        notes: what is left out or does not count and why, a line each.
    """

    values: pd.DataFrame
    n: pd.DataFrame
    at_chance: pd.DataFrame
    uncounted: list[Any]
    flags: dict[str, list[str]]
    notes: list[str]


def gather(frame: pd.DataFrame, metric: str) -> Gathered:
    """The numbers of a tidy frame, those in columns that count told from the others.

    Methods compare only where all have a number. So methods without any number are left out, then
    columns in which a method has none do not count. Averages that a paper prints beside its
    columns are no columns.

    Raises:
        UserError: a label means two things in one column, or no column counts.
    """
    of_metric = frame[frame["metric"] == metric]
    values, n = _cells(of_metric, metric)
    at_chance = _at_chance(of_metric, values)
    absent = values.index[values.isna().all(axis="columns")]
    values, n, at_chance = (part.drop(index=absent) for part in (values, n, at_chance))
    keys: list[Any] = values.columns.to_list()
    without = {key: values.index[values[key].isna()] for key in keys}
    uncounted = [key for key, methods in without.items() if len(methods)]
    told = [f"left out, without any number: {', '.join(absent)}"] if len(absent) else []
    told += [
        f"{name(key)} does not count: no number of {', '.join(without[key])}" for key in uncounted
    ]
    if len(uncounted) == len(without):
        raise UserError("no column has a number of every method: " + "; ".join(told))
    return Gathered(values, n, at_chance, uncounted, flags_of_methods(of_metric), told)


def source_of(frame: pd.DataFrame) -> str:
    """The published tables, or the ids of the sweeps, that a tidy frame is of."""
    return ", ".join(frame["source"].astype(str).unique())


def is_published(frame: pd.DataFrame) -> bool:
    """Whether the numbers of a tidy frame are printed ones."""
    return bool((frame["status"] == "published").all())


def rank(
    frame: pd.DataFrame,
    metric: str,
    ranking: str = "competition",
    notes: Sequence[str] = (),
    titles: Mapping[str, str] | None = None,
) -> RankTable:
    """Rank the methods of a tidy frame.

    A mean rank means something only if all methods are ranked in the same columns: what does not
    count, as of ``gather``, is told in the notes.

    Args:
        frame: as of ``tidy.tidy`` or ``published.published``, or several of them below each
            other. Trials of one label and column are seeds of one method.
        metric: a name of ``names.METRICS``.
        ranking: ``competition`` or ``average``.
        notes: lines to tell with the table.
        titles: printed names of data sets and backbones; those of the published tables if None.

    Raises:
        UserError: the metric or the ranking is unknown, a label means two things in one column,
            or nothing is left to rank.
    """
    check_metric(metric)
    if ranking not in TIES:
        raise UserError(f"unknown ranking {ranking!r}; known: {', '.join(TIES)}")
    found = gather(frame, metric)
    values, at_chance, told = found.values, found.at_chance, [*found.notes]
    # What prints alike ties, as in the papers, who ranked what they print.
    printed = values.map(partial(rounded, metric))
    is_less_better = METRICS[metric].is_less_better
    # A low ECE of a classifier at chance is no result: none is worse.
    printed = printed.mask(at_chance, math.inf if is_less_better else -math.inf)
    ranks = printed.rank(method=TIES[ranking], ascending=is_less_better)
    # NaN, and not left out: the tables show the values of such a column all the same.
    ranks.loc[:, found.uncounted] = float("nan")
    told += _emptiness(ranks.dropna(axis="columns"))
    told += legend(cell for cells in found.flags.values() for cell in cells)
    told += ["at chance in a column is ranked last in it"] if at_chance.any(axis=None) else []
    return RankTable(
        source=source_of(frame),
        is_published=is_published(frame),
        metric=metric,
        ranking=ranking,
        values=values,
        n=found.n,
        ranks=ranks,
        notes=(*notes, *told),
        flags=found.flags,
        at_chance=at_chance,
        titles=_distinct(published_titles() if titles is None else titles),
    )


def _distinct(titles: Mapping[str, str]) -> dict[str, str]:
    """Titles that one name alone has: two columns of one head could not be told apart."""
    counts = Counter(titles.values())
    return {name: title for name, title in titles.items() if counts[title] == 1}


def name(key: Iterable[str]) -> str:
    """A column's (data set, variant, backbone, split) in words; the test split goes unsaid."""
    dataset, variant, backbone, split = key
    parts = [dataset, f"({variant})" if variant else "", backbone, split if split != "test" else ""]
    return " ".join(part for part in parts if part)


def _cells(rows: pd.DataFrame, metric: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mean and count over seeds, methods down, columns across."""
    has_rows = len(rows) > 0
    rows = rows[(rows["backbone"] != "average") & (rows["dataset"] != "average")]
    if rows["value"].isna().all():
        why = "only averages are printed" if has_rows and rows.empty else "is the split right?"
        raise UserError(f"no {METRICS[metric].title} of a column in these results; {why}")
    # A spec that two sweeps share is one trial; a printed number is known by its table.
    trial = rows["spec_hash"].where(rows["spec_hash"] != "", rows["source"])
    rows = rows.assign(trial=trial).reset_index(drop=True)
    # In one of them it may have crashed: that it has a number in the other counts.
    numbers_first = rows["value"].isna().sort_values(kind="stable").index
    rows = rows.loc[numbers_first].drop_duplicates(["trial", "method", *KEY]).sort_index()
    seeds = ["method", *KEY, "network_seed", "head_seed"]
    mixed = rows[rows["value"].notna() & rows.duplicated(seeds, keep=False)]
    if len(mixed):
        first = mixed.iloc[0]
        raise UserError(
            f"{first['method']!r} is two different methods on {name(first[KEY])}: same seeds, "
            "other settings; rank these folders apart"
        )
    # Grouping drops rows without a key: trials that are missing may not know their backbone.
    groups = rows.fillna({"backbone": "unknown"}).groupby(["method", *KEY], sort=False)["value"]
    cells = groups.agg(["mean", "count"])
    wide = {part: cells[part].unstack(KEY, sort=False) for part in cells}
    return wide["mean"], wide["count"].fillna(0).astype(int)


def _at_chance(rows: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """Where a value stands on a trial that is flagged so; of the shape of the values."""
    flagged = rows[rows["flags"].astype(str).str.contains(CHANCE)]
    found = pd.DataFrame(False, index=values.index, columns=values.columns)
    for method, *key in flagged.fillna({"backbone": "unknown"})[["method", *KEY]].to_numpy():
        found.loc[method, tuple(key)] = True
    return found


def _emptiness(ranks: pd.DataFrame) -> list[str]:
    """What makes the ranks say little, in words."""
    if len(ranks) == 1:
        return ["one method only: its rank says nothing"]
    if (ranks.nunique() == 1).all():
        return ["all methods tie in every column: the ranks say nothing"]
    return ["one column only: the mean rank is the rank there"] if ranks.shape[1] == 1 else []


class Collected(NamedTuple):
    """What is to be ranked.

    Attributes:
        frame: of the form of ``tidy.tidy``.
        notes: the regime of each sweep, and a line for each way in which planned trials have no
            numbers.
        titles: printed names of data sets and backbones.
        withheld: why no verdict may be given; empty if one may.
    """

    frame: pd.DataFrame
    notes: list[str]
    titles: dict[str, str]
    withheld: str = ""


def collect(
    folders: Sequence[AnyPath], table: str | None, metric: str, split: str | None = None
) -> Collected:
    """Gather what is to be ranked, of sweeps or of a published table.

    Args:
        folders: of sweeps.
        table: a published table, instead of folders.
        metric: a name of ``names.METRICS``, or one of a split such as ``ood/svhn/auroc``.
        split: if None, ``test``, or every ``ood/`` set for metrics of foreign images.

    Raises:
        UserError: neither or both of folders and table are given, a folder holds no sweep, or
            there is no such metric or table.
    """
    metric, split = parted(metric, split)
    check_metric(metric)
    if bool(folders) == (table is not None):
        raise UserError("name folders of sweeps, or --published with a table, not both")
    sweeps = [load(folder, metric) for folder in folders]
    regimes = [(name_of(sweep), regime_of(sweep)) for sweep in sweeps]
    notes = [
        f"{named}: {regime.sentence[0].lower()}{regime.sentence[1:]}" for named, regime in regimes
    ]
    notes += [line for sweep in sweeps for line in incomplete(sweep, metric)]
    # Sweeps of before titles were recorded are named as the papers do.
    titles = published_titles()
    for sweep in sweeps:
        titles |= sweep.manifest.titles
    if table is None:
        frame = pd.concat([tidy(sweep, [metric]) for sweep in sweeps], ignore_index=True)
        check_looked(frame, metric)
    else:
        frame = published(table)
    # A mean over sets stands for them where it is asked for alone.
    is_ood = frame["split"].str.startswith("ood/") & (frame["split"] != FOREIGN_MEAN)
    if split is not None:
        frame = choose(frame, split=split)
    else:
        frame = frame[is_ood if metric in OOD_METRICS else frame["split"] == "test"]
    return Collected(frame, notes, titles, withheld(regimes))
