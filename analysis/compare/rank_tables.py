"""Renderers of a rank table: plain text, Markdown, LaTeX, CSV, HTML and JSON."""

import html
import json
import math
from collections.abc import Callable
from typing import Any

import pandas as pd
from tabulate import tabulate

from analysis.compare.ranks import KEY, RankTable, name
from analysis.ladder.tables import MARKS, TITLES, number, places, title
from analysis.latex import Table, label_of, render
from analysis.latex_text import escape
from tune_calib.names import METRICS, signed

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


def cells(table: RankTable, kind: str) -> pd.DataFrame:
    """Marked cells as text, index method, columns (data set, backbone), data sets together.

    Args:
        table: the ranks.
        kind: of ``tables.MARKS``.
    """
    marks = MARKS[kind]
    summary, columns = table.summary, {}
    keys: list[Any] = table.values.columns.to_list()
    datasets = list(dict.fromkeys(key[:2] for key in keys))
    for key in sorted(keys, key=lambda key: datasets.index(key[:2])):
        texts = table.values.loc[summary.index, key].map(lambda value: number(table.metric, value))
        at_chance = table.at_chance[key]
        columns[_head(key)] = _marked(texts, METRICS[table.metric].direction, marks, at_chance)
    ranks = summary["mean_rank"].map("{:.2f}".format)
    columns["", "Mean rank"] = _marked(ranks, "min", marks, table.at_chance.any(axis="columns"))
    columns["", "Wins"] = summary["wins"].astype(str)
    return pd.DataFrame(columns).rename(index=lambda m: signed(m, table.flags.get(m, [])))


def _head(key: tuple[str, ...]) -> tuple[str, str]:
    dataset, variant, backbone, split = key
    upper = TITLES.get(dataset, dataset) + (f" ({variant})" if variant else "")
    lower = TITLES.get(backbone, backbone)
    if split != "test":
        shifted = split.removeprefix("ood/")
        lower += f" vs {TITLES.get(shifted, shifted)}" if split.startswith("ood/") else f" {split}"
    return upper, lower


def _marked(
    texts: "pd.Series[str]", direction: str, marks: dict[int, str], at_chance: "pd.Series[bool]"
) -> "pd.Series[str]":
    """Texts with the marks of the best and the second, which are none of those at chance."""
    may_win = ~at_chance.loc[texts.index]
    best = places(texts[may_win], direction)
    found = texts.map(lambda text: marks[best.get(text, 0)].format(text))
    return found.where(may_win, texts.map(marks[0].format))


def _rows(frame: pd.DataFrame) -> tuple[list[list[str]], list[tuple[str, str]]]:
    """Rows of cells, the method's name first, and the heads of the other columns."""
    heads: list[Any] = frame.columns.to_list()
    return [[str(row[0]), *map(str, row[1:])] for row in frame.itertuples()], heads


def plain(table: RankTable) -> str:
    """The table for a terminal; ``*`` is the best, ``'`` the second."""
    rows, heads = _rows(cells(table, "plain"))
    names = ["method", *("\n".join(head) for head in heads)]
    align = ["left", *["right"] * len(heads)]
    body = tabulate(rows, names, disable_numparse=True, colalign=align)
    lines = [body, f"{_meaning(table)} * best, ' second.", *table.notes]
    return "\n".join(lines)


def markdown(table: RankTable) -> str:
    """The table in Markdown, best bold, second underlined."""
    rows, heads = _rows(cells(table, "markdown"))
    names = ["method", *(" ".join(head).strip() for head in heads)]
    body = tabulate(rows, names, tablefmt="github", disable_numparse=True)
    return f"{body}\n\n{reading(table)} Best bold, second underlined."


def latex(table: RankTable, caption: str | None = None, label: str | None = None) -> str:
    """The table in LaTeX (booktabs), backbones under a head for their data set."""
    rows, heads = _rows(cells(table, "latex"))
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
    frame = cells(table, "html")
    rows, heads = _rows(frame)
    frame.index = pd.Index([html.escape(row[0]) for row in rows])
    escaped = [tuple(map(html.escape, head)) for head in heads]
    frame.columns = pd.MultiIndex.from_tuples(escaped, names=["", "method"])
    text = f"{reading(table)} Best bold, second underlined."
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
