"""Mean ranks of methods over (data set, backbone) columns, as printed in the papers."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pandas as pd

from analysis.compare.gather import KEY, Scores, column_name, gather, without_nan
from analysis.published import published_titles
from analysis.tables.latex import label_of
from analysis.tables.render import View
from analysis.tables.table import BEST, Table
from analysis.text import Cell, ranked, records_of, rounded
from analysis.tidy import check_metric, without_identity
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS
from tune_calib.text import format_count

TIES: dict[str, Literal["min", "average"]] = {"competition": "min", "average": "average"}
_TIED = {"competition": "smallest", "average": "mean"}


@dataclass(frozen=True, eq=False)
class RankTable(Scores):
    """Scores and ranks of methods."""

    ranking: str  # how ties are ranked, of ``TIES``; the papers use ``competition``
    ranks: pd.DataFrame  # from 1, of the values as printed; NaN in columns that do not count
    titles: Mapping[str, str]  # printed names of data sets and backbones, if distinct

    @property
    def counted(self) -> pd.DataFrame:
        """Return the ranks in the columns that count."""
        return self.ranks.dropna(axis="columns", how="all")

    @property
    def summary(self) -> pd.DataFrame:
        """Return mean_rank, wins (columns without a better method) and columns, sorted by rank."""
        best = self.counted.eq(self.counted.min()) & ~self.at_chance[self.counted.columns]
        table = pd.DataFrame(
            {
                "mean_rank": self.counted.mean(axis="columns"),
                "wins": best.sum(axis="columns"),
                "columns": len(self.counted.columns),
            }
        )
        # Stable, so that methods with equal mean ranks stay in the order of the source.
        return table.sort_values("mean_rank", kind="stable")


def rank(
    frame: pd.DataFrame,
    metric: str,
    ranking: str = "competition",
    notes: Sequence[str] = (),
    titles: Mapping[str, str] | None = None,
) -> RankTable:
    """Rank the methods of a tidy frame in the columns that count, under printed ``titles``."""
    check_metric(metric)
    if ranking not in TIES:
        raise UserError(f"unknown ranking {ranking!r}; known: {', '.join(TIES)}")
    scores = gather(frame, metric)
    # Values that are equal as printed tie, as in the papers.
    printed = scores.values.map(partial(rounded, metric))
    is_less_better = METRICS[metric].is_less_better
    # A classifier at chance is ranked last, however low its ECE is.
    printed = printed.mask(scores.at_chance, math.inf if is_less_better else -math.inf)
    ranks = printed.rank(method=TIES[ranking], ascending=is_less_better)
    # Tables show the values of these columns without ranks.
    ranks.loc[:, list(scores.uncounted)] = float("nan")
    remarks = list(scores.notes)
    counted = ranks.dropna(axis="columns")
    if len(counted) == 1:
        remarks.append("ranks are meaningless with only one method")
    elif (counted.nunique() == 1).all():
        remarks.append("ranks are meaningless, since all methods tie in every column")
    elif counted.shape[1] == 1:
        remarks.append("there is only one column, so the mean rank is the rank in it")
    remarks += scores.legend()
    if scores.at_chance.any(axis=None):
        remarks.append("a method at chance in a column is ranked last there")
    titles = published_titles() if titles is None else titles
    counts = Counter(titles.values())
    return RankTable(
        **{**vars(scores), "notes": (*notes, *remarks)},
        ranking=ranking,
        ranks=ranks,
        # Columns with the same title would be indistinguishable.
        titles={name: title for name, title in titles.items() if counts[title] == 1},
    )


def view(table: RankTable) -> View:
    """Return a row per method, best mean rank first; columns of a data set are adjacent."""
    summary = table.summary
    order = summary.index
    keys: list[Any] = table.values.columns.to_list()
    datasets = list(dict.fromkeys(key[:2] for key in keys))
    may_win = ~table.at_chance.loc[order]
    columns: dict[str, list[Cell]] = {"method": [Cell(table.label(str(own))) for own in order]}
    groups = {}
    # LaTeX and HTML put a shared head over adjacent columns only.
    for key in sorted(keys, key=lambda key: datasets.index(key[:2])):
        upper, lower = _heads(key, table.titles)
        groups[f"{upper} {lower}"] = (upper, lower)
        cells = [Cell.number(table.metric, value) for value in table.values.loc[order, key]]
        columns[f"{upper} {lower}"] = ranked(cells, METRICS[table.metric].direction, may_win[key])
    ranks = [Cell.formatted(rank, ".2f") for rank in summary["mean_rank"]]
    columns["Mean rank"] = ranked(ranks, "min", may_win.all(axis="columns"))
    columns["Wins"] = [Cell.of(wins) for wins in summary["wins"]]
    counts = sorted({n for n in table.n.to_numpy().flat if n})
    n = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
    kind = (
        f"printed in {table.source}" if table.is_published else f"mean over trials ({n} per cell)"
    )
    lines = [
        f"{METRICS[table.metric].head}, {kind}; values are ranked as printed.",
        f"Mean rank over {format_count(table.counted.shape[1], 'column')}; ties share the "
        f"{_TIED[table.ranking]} rank; wins: columns without a better method. {BEST}",
        *(f"{note}." for note in table.notes),
    ]
    main = Table(
        "ranks", "\n".join(lines), records_of(columns), first=["Mean rank", "Wins"],
        groups=groups, label=label_of("ranks", table.metric), is_main=True,
    )  # fmt: skip
    return View([main], _entries(table), tidy_ranks(table), table.notes)


def _heads(key: tuple[str, ...], titles: Mapping[str, str]) -> tuple[str, str]:
    dataset, identity, backbone, split = key
    variant = without_identity(identity)
    upper = titles.get(dataset, dataset) + (f" ({variant})" if variant else "")
    lower = titles.get(backbone, backbone)
    if split != "test":
        shifted = split.removeprefix("ood/")
        lower += f" vs {titles.get(shifted, shifted)}" if split.startswith("ood/") else f" {split}"
    return upper, lower


def tidy_ranks(table: RankTable) -> pd.DataFrame:
    """Return a row per (method, column) with value, n, rank and the summary of the method."""
    order = table.summary.index
    parts = {"value": table.values, "n": table.n, "rank": table.ranks}
    stacked = {part: frame.loc[order].stack(KEY) for part, frame in parts.items()}
    long = pd.concat(stacked, axis="columns")
    rows = long.reset_index().merge(table.summary, left_on="method", right_index=True)
    return rows.assign(metric=table.metric, ranking=table.ranking, source=table.source)


def _entries(table: RankTable) -> list[dict[str, Any]]:
    """Return an object per method, best first."""
    names = [column_name(key) for key in table.values.columns.to_list()]
    ranks, values = (
        without_nan(frame.set_axis(names, axis="columns")).to_dict("index")
        for frame in (table.ranks, table.values)
    )
    summary: dict[str, Any] = table.summary.to_dict("index")  # type: ignore[assignment]
    shared = {"metric": table.metric, "ranking": table.ranking}
    return [
        {"method": method, **entry, **shared, "ranks": ranks[method], "values": values[method]}
        for method, entry in summary.items()
    ]
