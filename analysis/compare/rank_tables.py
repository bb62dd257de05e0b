"""The table of ranks."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis.compare.ranks import KEY, RankTable, name
from analysis.tables.latex import label_of
from analysis.tables.render import View
from analysis.tables.table import BEST, Table
from analysis.text import Cell, cell, decimal_cell, number_cell, ranked, records_of
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import signed

_TIES = {"competition": "ties share the smallest place", "average": "ties share the mean place"}


def view(table: RankTable) -> View:
    """A row a method, best mean rank first; a column a (data set, backbone), data sets together."""
    summary = table.summary
    order = summary.index
    keys: list[Any] = table.values.columns.to_list()
    datasets = list(dict.fromkeys(key[:2] for key in keys))
    may_win = ~table.at_chance.loc[order]
    columns: dict[str, list[Cell]] = {
        "method": [Cell(signed(str(own), table.flags.get(str(own), []))) for own in order]
    }
    groups = {}
    # LaTeX and HTML put one head over neighbours, so columns of a data set must be neighbours.
    for key in sorted(keys, key=lambda key: datasets.index(key[:2])):
        group, own = _head(key, table.titles)
        groups[f"{group} {own}"] = (group, own)
        shown = [number_cell(table.metric, value) for value in table.values.loc[order, key]]
        direction = METRICS[table.metric].direction
        columns[f"{group} {own}"] = ranked(shown, direction, may_win[key])
    ranks = [decimal_cell(rank, 2) for rank in summary["mean_rank"]]
    columns["Mean rank"] = ranked(ranks, "min", may_win.all(axis="columns"))
    columns["Wins"] = [cell(wins) for wins in summary["wins"]]
    main = Table(
        "ranks",
        "\n".join([f"{_meaning(table)} {BEST}", *(f"{note}." for note in table.notes)]),
        records_of(columns),
        first=["Mean rank", "Wins"],
        groups=groups,
        label=label_of("ranks", table.metric),
        is_main=True,
    )
    return View([main], _entries(table), tidy_ranks(table), table.notes)


def _meaning(table: RankTable) -> str:
    counts = sorted({n for n in table.n.to_numpy().flat if n})
    n = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
    kind = "printed in" if table.is_published else f"mean over trials ({n} a cell) of sweep"
    columns = table.counted.shape[1]
    parts = [
        f"{METRICS[table.metric].head}, {kind} {table.source}",
        f"Mean rank over {columns} column{'s' * (columns > 1)}, of the values as printed; "
        f"{table.ranking} ranking: {_TIES[table.ranking]}",
        "Wins: columns in which no method is better",
    ]
    return ". ".join(parts) + "."


def _head(key: tuple[str, ...], titles: Mapping[str, str]) -> tuple[str, str]:
    dataset, variant, backbone, split = key
    upper = titles.get(dataset, dataset) + (f" ({variant})" if variant else "")
    lower = titles.get(backbone, backbone)
    if split != "test":
        shifted = split.removeprefix("ood/")
        lower += f" vs {titles.get(shifted, shifted)}" if split.startswith("ood/") else f" {split}"
    return upper, lower


def tidy_ranks(table: RankTable) -> pd.DataFrame:
    """One row a (method, column): value, n, rank, and the method's mean rank, wins, columns."""
    order = table.summary.index
    parts = {"value": table.values, "n": table.n, "rank": table.ranks}
    stacked = {part: frame.loc[order].stack(KEY) for part, frame in parts.items()}
    long = pd.concat(stacked, axis="columns")
    rows = long.reset_index().merge(table.summary, left_on="method", right_index=True)
    return rows.assign(metric=table.metric, ranking=table.ranking, source=table.source)


def _entries(table: RankTable) -> list[dict[str, Any]]:
    """An object a method, best first."""
    summary: dict[str, Any] = table.summary.to_dict("index")  # type: ignore[assignment]
    return [
        {
            "method": method,
            **entry,
            "metric": table.metric,
            "ranking": table.ranking,
            "ranks": _by_name(table.ranks, method),
            "values": _by_name(table.values, method),
        }
        for method, entry in summary.items()
    ]


def _by_name(frame: pd.DataFrame, method: Any) -> dict[str, float | None]:
    # JSON has no NaN: Python would write one that other programs cannot read.
    row: Any = frame.loc[method]
    return {name(key): None if math.isnan(value) else value for key, value in row.items()}
