"""Tables in Markdown, LaTeX, HTML, CSV and JSON, and for a terminal."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from markupsafe import Markup
from pydantic import TypeAdapter, ValidationError

from analysis.tables.latex import latex
from analysis.tables.table import Table
from analysis.text import MARKS, Cell
from tune_calib.console import Prose, Text, printable

if TYPE_CHECKING:
    import pandas as pd

_PARTS: TypeAdapter[list[Any]] = TypeAdapter(list[Table | Prose | str])


def markdown(table: Table) -> str:
    """Return the table in Markdown, its caption and notes below."""
    return "\n\n".join(filter(None, [body(table), table.text, *table.notes]))


def body(table: Table) -> str:
    """Return the rows in Markdown; the name of a block has a separate row."""
    if not table.records:
        return ""
    lines = []
    for index, record in enumerate(table.records):
        if name := table.rules.get(index):
            lines.append([f"*{name}*", *[""] * (len(record) - 1)])
        # A pipe would end the cell.
        lines.append([each.marked("markdown").replace("|", "\\|") for each in record.values()])
    widths = [
        max(len(head) + 2, *(len(line[index]) for line in lines))
        for index, head in enumerate(table.heads)
    ]
    rule = "|".join("-" * (width + 2) for width in widths)
    rows = [
        " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        for line in (table.heads, *lines)
    ]
    return "\n".join([f"| {rows[0]} |", f"|{rule}|", *(f"| {row} |" for row in rows[1:])])


def in_files(table: Table, frame: "pd.DataFrame | None" = None) -> dict[str, str]:
    """Return the files of a table by name, with a CSV file of a frame with its numbers."""
    if not table.records:
        return {}
    files = {f"{table.key}.md": f"{markdown(table)}\n", f"{table.key}.tex": f"{latex(table)}\n"}
    return files if frame is None else files | {f"{table.key}.csv": frame.to_csv(index=False)}


def html(table: Table) -> str:
    """Return the table as a ``table`` element without styles and scripts."""
    groups = [table.groups.get(head, ("", head)) for head in table.heads]
    heads = _row("th", [own for _, own in groups])
    if table.groups:
        over = [(name, len(list(own))) for name, own in groupby(name for name, _ in groups)]
        cells = (Markup('<th colspan="{}">{}</th>').format(span, name) for name, span in over)
        heads = Markup("<tr>{}</tr>\n").format(Markup().join(cells)) + heads
    rows = Markup().join(_row("td", map(marked, row)) for row in table.rows)
    return printable(
        Markup(
            '<table class="{}">\n<caption>{}</caption>\n<thead>\n{}</thead>\n'
            "<tbody>\n{}</tbody>\n</table>"
        ).format(table.key, table.full_caption, heads, rows)
    )


def marked(cell: Cell) -> Markup:
    """Return the escaped text of a cell with the mark of its rank."""
    return Markup(MARKS["html"][cell.rank]).format(cell.text)


def _row(tag: str, texts: Iterable[str]) -> Markup:
    cells = (Markup(f"<{tag}>{{}}</{tag}>").format(text) for text in texts)
    return Markup("<tr>{}</tr>\n").format(Markup().join(cells))


@dataclass(frozen=True)
class View:
    """The output of a command: tables, with their content for JSON and as a frame for CSV."""

    tables: Sequence[Table]
    content: Any
    frame: "pd.DataFrame | None" = None
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        """Return the text for a terminal."""
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
            return Text([*self.tables[:1], *(p for own in self.tables[1:] for p in ("", own))])
        if form == "latex":
            named = [
                replace(table, caption=caption or table.caption, label=label or table.label)
                if table.is_main
                else replace(table, label=f"{label}-{table.key}" if label else table.label)
                for table in self.tables
            ]
            return latex(*named)
        return "\n\n".join({"markdown": markdown, "html": html}[form](each) for each in self.tables)


def to_plain(text: Text) -> list[Any]:
    """Return the parts of a text as JSON values, so that it can be shown on any screen later."""
    return cast("list[Any]", _PARTS.dump_python(list(text.parts), mode="json"))


def from_plain(plain: Any) -> Text | None:
    """Return the text of values that ``to_plain`` returned; None if they are invalid."""
    try:
        return Text(_PARTS.validate_python(plain))
    except ValidationError:
        return None
