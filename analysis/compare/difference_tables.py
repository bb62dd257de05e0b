"""Renderers of a difference of two sweeps: plain text, Markdown, LaTeX, CSV and JSON."""

import json
from collections.abc import Callable
from typing import Any

from tabulate import tabulate

from analysis.compare.difference import Difference
from analysis.compare.paired import MIN_PAIRS
from analysis.latex import label_of, of_records, render
from analysis.text import Cell, Record, cell, full_stops, number_cell, span_cell, texts, title
from tune_calib.console import Part, Prose, Table, Text


def rows(found: Difference) -> list[Record]:
    """A row a (rung, metric)."""
    return [
        {
            "rung": Cell(row["rung"]),
            "metric": Cell(title(row["metric"])),
            "A": number_cell(row["metric"], row["first"]),
            "B": number_cell(row["metric"], row["second"]),
            "B - A": number_cell(row["metric"], row["difference"], signed=True),
            "95 % interval": span_cell(row["metric"], row["low"], row["high"], signed=True),
            "pairs": cell(row["pairs"]),
            "B better in": cell(row["better"]),
        }
        for row in found.table.to_dict("records")
    ]


def changed_rows(found: Difference) -> list[Record]:
    """A row a setting that is another one in the second sweep."""
    return [
        {"setting": Cell(setting), "A": Cell(first), "B": Cell(second)}
        for setting, first, second in found.changed.itertuples(index=False)
    ]


def sentences(found: Difference) -> list[str]:
    """What was compared and how, and what is missing."""
    same = [] if len(found.changed) else ["The rungs of both have the same settings."]
    lines = [
        f"A: {found.titles[0]}",
        f"B: {found.titles[1]}",
        f"A pair is a {found.unit}; means are over the pairs",
        f"Intervals: Student's over pairs, from {MIN_PAIRS} on, each for itself: of twenty that "
        "show nothing one leaves out 0",
        *same,
        *found.notes,
    ]
    return full_stops(lines)


def _tables(found: Difference) -> list[list[dict[str, str]]]:
    """The differences, and where there are some, the settings that changed."""
    return [texts(each) for each in (rows(found), changed_rows(found)) if each]


def plain(found: Difference) -> str:
    """The tables and sentences for a terminal."""
    parts: list[Part] = []
    for number, table in enumerate(_tables(found)):
        cells = [list(row.values()) for row in table]
        parts += [Table(list(table[0]), cells, is_main=number == 0), ""]
    return Text([*parts, *map(Prose, sentences(found))])


def markdown(found: Difference) -> str:
    """The tables and sentences in Markdown."""
    parts = [
        str(tabulate(table, headers="keys", tablefmt="github", disable_numparse=True))
        for table in _tables(found)
    ]
    return "\n\n".join([*parts, *sentences(found)])


def latex(found: Difference, caption: str | None = None, label: str | None = None) -> str:
    """The table of differences in LaTeX (booktabs)."""
    told = caption or " ".join(sentences(found))
    return render(of_records(rows(found), told, label or label_of("diff", *found.metrics)))


def csv(found: Difference) -> str:
    """A row a (rung, metric); fractions."""
    return found.table.to_csv(index=False, lineterminator="\n").rstrip("\n")


def json_object(found: Difference) -> str:
    """One object: ``differences``, ``settings`` and ``notes``; fractions."""
    # By way of pandas' JSON, which has null for NaN.
    content: dict[str, Any] = {
        "differences": json.loads(found.table.to_json(orient="records")),
        "settings": json.loads(found.changed.to_json(orient="records")),
        "notes": sentences(found),
    }
    return json.dumps(content, indent=1)


RENDERERS: dict[str, Callable[[Difference], str]] = {
    "plain": plain,
    "markdown": markdown,
    "latex": latex,
    "csv": csv,
    "json": json_object,
}
