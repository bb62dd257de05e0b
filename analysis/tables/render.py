"""Tables in Markdown, LaTeX, HTML, CSV and JSON, and for a terminal."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from analysis.tables.latex import latex
from analysis.tables.table import Table
from analysis.text import MARKS, Cell
from tune_calib.console import Part, Text, printable

if TYPE_CHECKING:
    import pandas as pd


def markdown(table: Table) -> str:
    return "\n\n".join(filter(None, [body(table), table.text, *table.notes]))


def body(table: Table) -> str:
    if not table.records:
        return ""
    lines = [table.heads]
    for index, record in enumerate(table.records):
        if name := table.rules.get(index):
            lines.append([f"*{name}*", *[""] * (len(record) - 1)])
        # A pipe would end the cell.
        lines.append([cell.marked("markdown").replace("|", "\\|") for cell in record.values()])
    widths = [max(map(len, texts)) for texts in zip(*lines, strict=True)]
    widths = list(map(max, widths, [len(head) + 2 for head in table.heads]))
    rows = [f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines]
    rule = "|".join("-" * (width + 2) for width in widths)
    return "\n".join([rows[0], f"|{rule}|", *rows[1:]])


def in_files(table: Table, frame: "pd.DataFrame | None" = None) -> dict[str, str]:
    if not table.records:
        return {}
    files = {f"{table.key}.md": f"{markdown(table)}\n", f"{table.key}.tex": f"{latex(table)}\n"}
    if frame is not None:
        files[f"{table.key}.csv"] = frame.to_csv(index=False)
    return files


def html(table: Table) -> str:
    groups = [table.groups.get(head, ("", head)) for head in table.heads]
    heads = _row("th", (head for _, head in groups))
    if table.groups:
        spans = Markup()
        for name, columns in groupby(groups, key=itemgetter(0)):
            spans += Markup('<th colspan="{}">{}</th>').format(len(list(columns)), name)
        heads = Markup("<tr>{}</tr>\n").format(spans) + heads
    rows = Markup().join(_row("td", map(marked, row)) for row in table.rows)
    element = Markup(
        '<table class="{}">\n<caption>{}</caption>\n<thead>\n{}</thead>\n'
        "<tbody>\n{}</tbody>\n</table>"
    )
    return printable(element.format(table.key, table.full_caption, heads, rows))


def marked(cell: Cell) -> Markup:
    return Markup(MARKS["html"][cell.rank]).format(cell.text)


def _row(tag: str, texts: Iterable[str]) -> Markup:
    cells = (Markup(f"<{tag}>{{}}</{tag}>").format(text) for text in texts)
    return Markup("<tr>{}</tr>\n").format(Markup().join(cells))


def with_none(frame: "pd.DataFrame") -> "pd.DataFrame":
    return frame.astype(object).where(frame.notna(), None)


def json_records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(frame.to_json(orient="records"))
    return records


@dataclass(frozen=True)
class View:
    """The output of a command: tables, with their content for JSON and as a frame for CSV."""

    tables: Sequence[Table]
    content: Any
    frame: "pd.DataFrame | None" = None
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        return self.render("plain")

    def render(self, form: str, caption: str | None = None, label: str | None = None) -> str:
        """Return the output in a form; ``caption`` and ``label`` replace those in LaTeX."""
        if form == "json":
            return json.dumps(self.content, indent=1)
        if form == "csv":
            assert self.frame is not None
            # pandas would use the line ends of the system.
            return self.frame.to_csv(index=False, lineterminator="\n").rstrip("\n")
        if form == "plain":
            parts: list[Part] = []
            for table in self.tables:
                parts += ["", table]
            return Text(parts[1:])
        if form == "latex":
            tables = []
            for table in self.tables:
                if table.is_main:
                    title, name = caption or table.caption, label or table.label
                    table = replace(table, caption=title, label=name)
                elif label:
                    table = replace(table, label=f"{label}-{table.key}")
                tables.append(table)
            return latex(*tables)
        return "\n\n".join(map({"markdown": markdown, "html": html}[form], self.tables))
