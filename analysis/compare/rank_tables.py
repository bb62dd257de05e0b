"""Renderers of a rank table: plain text, Markdown, LaTeX, CSV, HTML and JSON."""

import html
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from tabulate import tabulate

from analysis.compare.ranks import KEY, RankTable, name
from analysis.latex import Table, label_of, render
from analysis.latex_text import escape
from analysis.text import Cell, best_two, cell, decimal_cell, number_cell, title
from tune_calib import console
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import signed

_TIES = {"competition": "ties share the smallest place", "average": "ties share the mean place"}


def reading(table: RankTable) -> str:
    """What the numbers are, how they are ranked, and what is left out."""
    return " ".join([_meaning(table), *(f"{note}." for note in table.notes)])


def _meaning(table: RankTable) -> str:
    counts = sorted({n for n in table.n.to_numpy().flat if n})
    n = f"n = {counts[0]}" + (f" to {counts[-1]}" if len(counts) > 1 else "")
    kind = "printed in" if table.is_published else f"mean over trials ({n} a cell) of sweep"
    columns = table.counted.shape[1]
    parts = [
        f"{title(table.metric)}, {kind} {table.source}",
        f"Mean rank over {columns} column{'s' * (columns > 1)}, of the values as printed; "
        f"{table.ranking} ranking: {_TIES[table.ranking]}",
        "Wins: columns in which no method is better",
    ]
    return ". ".join(parts) + "."


def cells(table: RankTable) -> pd.DataFrame:
    """Ranked cells, index method, columns (data set, backbone), data sets together."""
    summary = table.summary
    order, columns = summary.index, {}
    keys: list[Any] = table.values.columns.to_list()
    datasets = list(dict.fromkeys(key[:2] for key in keys))
    may_win = ~table.at_chance.loc[order]
    # LaTeX and HTML put one head over neighbours, so columns of a data set must be neighbours.
    for key in sorted(keys, key=lambda key: datasets.index(key[:2])):
        shown = [number_cell(table.metric, value) for value in table.values.loc[order, key]]
        columns[_head(key, table.titles)] = _ranked(
            shown, METRICS[table.metric].direction, may_win[key]
        )
    ranks = [decimal_cell(rank, 2) for rank in summary["mean_rank"]]
    columns["", "Mean rank"] = _ranked(ranks, "min", may_win.all(axis="columns"))
    columns["", "Wins"] = [cell(wins) for wins in summary["wins"]]
    labels = [signed(str(method), table.flags.get(str(method), [])) for method in order]
    return pd.DataFrame(columns, index=labels)


def _head(key: tuple[str, ...], titles: Mapping[str, str]) -> tuple[str, str]:
    dataset, variant, backbone, split = key
    upper = titles.get(dataset, dataset) + (f" ({variant})" if variant else "")
    lower = titles.get(backbone, backbone)
    if split != "test":
        shifted = split.removeprefix("ood/")
        lower += f" vs {titles.get(shifted, shifted)}" if split.startswith("ood/") else f" {split}"
    return upper, lower


def _ranked(shown: Sequence[Cell], direction: str | None, may_win: Iterable[bool]) -> list[Cell]:
    """Cells with the ranks of the best and the second, which are none of those at chance."""
    pairs = list(zip(shown, may_win, strict=True))
    best = best_two((c.value for c, may in pairs if may and c.value is not None), direction)
    return [replace(c, rank=best.get(c.value, 0) if may and c.value is not None else 0)
            for c, may in pairs]  # fmt: skip


def _rows(table: RankTable, kind: str) -> tuple[list[list[str]], list[tuple[str, str]]]:
    """Rows of marked cells, the method's name first, and the heads of the other columns."""
    frame = cells(table)
    heads: list[Any] = frame.columns.to_list()
    rows: Any = zip(frame.index, frame.to_numpy(), strict=True)
    return [[str(method), *(c.marked(kind) for c in row)] for method, row in rows], heads


def plain(table: RankTable) -> str:
    """The table for a terminal; ``*`` is the best, ``'`` the second."""
    rows, heads = _rows(table, "plain")
    names = ["method", *(" ".join(head).strip() for head in heads)]
    body = console.Table(names, rows, first=names[-2:], is_main=True, numbers="right")
    told = [f"{_meaning(table)} * best, ' second.", *table.notes]
    return console.Text([body, *map(console.Prose, told)])


def markdown(table: RankTable) -> str:
    """The table in Markdown, best bold, second underlined."""
    rows, heads = _rows(table, "markdown")
    names = ["method", *(" ".join(head).strip() for head in heads)]
    body = tabulate(rows, names, tablefmt="github", disable_numparse=True)
    return f"{body}\n\n{reading(table)} Best bold, second underlined."


def latex(table: RankTable, caption: str | None = None, label: str | None = None) -> str:
    """The table in LaTeX (booktabs), backbones under a head for their data set."""
    rows, heads = _rows(table, "latex")
    content = Table(
        heads=["method", *(head[1] for head in heads)],
        rows=[[escape(row[0]), *row[1:]] for row in rows],
        caption=caption or f"{reading(table)} Best bold, second underlined.",
        label=label or label_of("ranks", table.metric),
        groups=["", *(head[0] for head in heads)],
    )
    return render(content)


def html_table(table: RankTable) -> str:
    """The table in HTML, two lines of heads, a caption; a fragment without style."""
    rows, heads = _rows(table, "html")
    escaped = [tuple(map(html.escape, head)) for head in heads]
    frame = pd.DataFrame(
        [row[1:] for row in rows],
        index=[html.escape(row[0]) for row in rows],
        columns=pd.MultiIndex.from_tuples(escaped, names=["", "method"]),
    )
    text = f"{reading(table)} Best bold, second underlined."
    # pandas writes no caption of its own.
    body = frame.to_html(escape=False, border=0, classes="ranks")
    return body.replace("<thead>", f"<caption>{html.escape(text)}</caption>\n  <thead>", 1)


def tidy_ranks(table: RankTable) -> pd.DataFrame:
    """One row a (method, column): value, n, rank, and the method's mean rank, wins, columns."""
    order = table.summary.index
    parts = {"value": table.values, "n": table.n, "rank": table.ranks}
    stacked = {part: frame.loc[order].stack(KEY) for part, frame in parts.items()}
    long = pd.concat(stacked, axis="columns")
    rows = long.reset_index().merge(table.summary, left_on="method", right_index=True)
    return rows.assign(metric=table.metric, ranking=table.ranking, source=table.source)


def csv(table: RankTable) -> str:
    """The tidy ranks as CSV; fractions."""
    # pandas takes the line ends of the system: here the bytes are the same on each.
    return tidy_ranks(table).to_csv(index=False, lineterminator="\n").rstrip("\n")


def json_list(table: RankTable) -> str:
    """A list of objects, best first: method, mean_rank, wins, columns, ranks and values."""
    entries = [
        {
            "method": method,
            **entry,
            "metric": table.metric,
            "ranking": table.ranking,
            "ranks": _by_name(table.ranks, method),
            "values": _by_name(table.values, method),
        }
        for method, entry in table.summary.to_dict("index").items()
    ]
    return json.dumps(entries, indent=1)


def _by_name(frame: pd.DataFrame, method: Any) -> dict[str, float | None]:
    # JSON has no NaN: Python would write one that other programs cannot read.
    row: Any = frame.loc[method]
    return {name(key): None if math.isnan(value) else value for key, value in row.items()}


RENDERERS: dict[str, Callable[[RankTable], str]] = {
    "plain": plain,
    "markdown": markdown,
    "latex": latex,
    "csv": csv,
    "html": html_table,
    "json": json_list,
}
