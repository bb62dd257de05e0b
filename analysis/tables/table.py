"""Tables of cells, and their layout on a screen, which leaves out columns that do not fit."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

from analysis.text import Cell, Record, records_of
from tune_calib.console import WIDE, Prose, Screen, wrap
from tune_calib.errors import UserError
from tune_calib.text import nearest

MAX_COLUMNS = 7  # of a table in a page, with the names of its rows; a switch shows the others
MAX_ROWS = 2000  # browsers sort longer tables slowly
BEST = "Best bold, second underlined."
"""Explains the marks in a caption; replaced in a terminal."""
_BEST_PLAIN = "* best, ° second."

_GAP = 2  # spaces between two columns
_INDENT = "  "  # of the second line of a cell
_PROSE = 20  # a column with a longer cell contains words, which may be wrapped


@dataclass(frozen=True)
class Table:
    """A table: its caption, a record per row with cells by head, and its layout."""

    key: str  # id in a page, and name of its files
    caption: str  # sentences; a terminal begins a new line at a line break
    records: Sequence[Record]  # with the same heads, the first of which names the rows
    chosen_by: tuple[str, ...] = ()  # columns with a list of values to filter by in a page
    rules: Mapping[int, str] = field(default_factory=dict)  # rows that begin a block, and its name
    first: Sequence[str] = ()  # columns for a narrow screen, most important first
    groups: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # two lines of a head
    label: str = ""  # for references in LaTeX
    is_main: bool = False  # whether ``--columns`` selects its columns
    notes: Sequence[str] = ()  # sentences below the caption, one per line
    is_one_tabular: bool = False  # whether LaTeX leaves out columns of a wide table
    on_request: Mapping[str, Sequence[Cell]] = field(default_factory=dict)  # for ``--columns``
    total: int = 0  # number of all rows, if ``records`` are the first ``MAX_ROWS``

    @property
    def heads(self) -> list[str]:
        return list(self.records[0]) if self.records else []

    @property
    def text(self) -> str:
        return self.caption.replace("\n", " ")

    @property
    def full_caption(self) -> str:
        return " ".join(filter(None, [self.text, *self.notes, self.cut]))

    @property
    def cut(self) -> str:
        total = max(len(self.records), self.total)
        note = f"The first {MAX_ROWS} of {total}; the Parquet files hold all."
        return note if total > MAX_ROWS else ""

    @property
    def extra(self) -> list[int]:
        if not self.first or len(self.heads) <= MAX_COLUMNS:
            return []
        main = [self.heads[0], *(head for head in self.first if head in self.heads)][:MAX_COLUMNS]
        return [index for index, head in enumerate(self.heads) if head not in main]

    @property
    def rows(self) -> list[list[Cell]]:
        return [list(record.values()) for record in self.records[:MAX_ROWS]]

    def column(self, head: str) -> list[Cell]:
        return [record[head] for record in self.records]

    def options(self, head: str) -> list[str]:
        return list(dict.fromkeys(cell.text for cell in self.column(head)[:MAX_ROWS]))

    # Cached, since a page reads it for each cell.
    @cached_property
    def are_numbers(self) -> list[bool]:
        flags: list[bool] = []
        for head in self.heads:
            values = [cell.value for cell in self.column(head) if not cell.is_blank]
            flags.append(head != self.heads[0] and 2 * values.count(None) < len(values))
        return flags

    def without_blank(self) -> "Table":
        columns = {}
        for head in self.heads:
            if not all(cell.is_blank for cell in self.column(head)):
                columns[head] = self.column(head)
        return replace(self, records=records_of(columns))

    def with_requested(self) -> "Table":
        columns = {head: self.column(head) for head in self.heads}
        return replace(self, records=records_of({**columns, **self.on_request}))

    def __str__(self) -> str:
        return self.on(WIDE)

    def on(self, screen: Screen) -> str:
        # On a narrow screen, each column takes the place of another.
        table = self.without_blank() if screen.width and not screen.columns else self
        if self.is_main and screen.columns:
            table = self.with_requested()
        body, shown = "", self.heads
        if self.records:
            of_main = screen if self.is_main else replace(screen, columns=(), some="")
            body, shown = _layout(table, of_main)
        is_marked = any(cell.rank for head in shown for cell in table.column(head))
        caption = self.caption.replace(BEST, _BEST_PLAIN if is_marked else "")
        lines = [body] if body else []
        for line in (*caption.splitlines(), *self.notes):
            lines.append(Prose(line.strip()).on(screen))
        return "\n".join(lines)


def table_of(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    records = [dict(zip(heads, map(Cell.of, row), strict=True)) for row in rows]
    return Table("", "", records, is_main=True)


def _layout(table: Table, screen: Screen) -> tuple[str, list[str]]:
    texts = {head: _mark(table.column(head)) for head in table.heads}
    least = {head: _narrowest(head, cells) + _GAP for head, cells in texts.items()}
    most = {head: max(map(len, [head, *cells])) + _GAP for head, cells in texts.items()}
    heads, widths = table.heads, most
    missing: list[str] = []
    if screen.columns:
        heads = _requested(heads, screen.columns)
    elif screen.width:
        heads = fit_columns(table.first, least, screen.width + _GAP)
        keys = zip(texts, column_keys(table.heads), strict=True)
        missing = [key for head, key in keys if head not in heads]
    if screen.width is not None:
        room = screen.width + _GAP - sum(least[head] for head in heads)
        widths = {}
        for head in heads:
            widths[head] = least[head] + max(min(most[head] - least[head], room), 0)
            room -= widths[head] - least[head]
    are_numbers = dict(zip(table.heads, table.are_numbers, strict=True))

    def join(cells: Iterable[Sequence[str]]) -> Iterator[str]:
        for parts in zip_longest(*cells, fillvalue=""):
            line = ""
            for head, part in zip(heads, parts, strict=True):
                width = widths[head] - _GAP
                line += (part.rjust(width) if are_numbers[head] else part.ljust(width)) + _GAP * " "
            yield line.rstrip()

    rule = (_GAP * " ").join("-" * (widths[head] - _GAP) for head in heads)
    lines = [*join(wrap(head, widths[head] - _GAP) for head in heads), rule]
    for number in range(len(table.records)):
        if number in table.rules:
            lines.append(rule)
        lines += join(wrap(texts[head][number], widths[head] - _GAP, _INDENT) for head in heads)
    if missing:
        note = Prose(f"Not shown: {', '.join(missing)}; {screen.more}{screen.some}.")
        lines.append(note.on(screen))
    return "\n".join(lines), heads


def _mark(cells: Sequence[Cell]) -> list[str]:
    """Return texts with marks; numbers without one get spaces, which align their digits."""
    texts = [cell.marked("plain") for cell in cells]
    space = " " * max(len(text) - len(cell.text) for text, cell in zip(texts, cells, strict=True))
    for index, cell in enumerate(cells):
        if not cell.rank and cell.value is not None:
            texts[index] += space
    return texts


def _narrowest(head: str, cells: Sequence[str]) -> int:
    """Return the width of a column whose head and long texts are wrapped."""
    width = max(map(len, cells), default=0)
    if width > _PROSE:
        words = max(len(word) for cell in cells for word in cell.split()) + len(_INDENT)
        width = max(words, _PROSE, width // 2 + len(_INDENT))
    return max(width, len(head) // 3, *map(len, head.split()), 1)


def column_key(head: str) -> str:
    words = re.sub(r"\([^)]*\)", "", head.casefold()).replace("δ", "delta ")
    return re.sub(r"[^\w%]+", "-", words).strip("-").replace("_", "-")


def column_keys(heads: Sequence[str]) -> list[str]:
    """Return the keys of columns; a repeated key includes the parentheses, e.g. ``p-holm``."""
    keys: list[str] = []
    for head in heads:
        key = column_key(head)
        keys.append(column_key(re.sub("[()]", "", head)) if key in keys else key)
    return keys


def _requested(heads: Sequence[str], names: Sequence[str]) -> list[str]:
    keys = column_keys(heads)
    requested = [heads[0]]
    for name in names:
        key = column_key(name)
        if key not in keys:
            raise UserError(f"no column {name!r}{nearest(key, keys)}")
        requested.append(heads[keys.index(key)])
    return list(dict.fromkeys(requested))


def fit_columns(first: Sequence[str], widths: Mapping[str, float], room: float) -> list[str]:
    """Return the heads that fit: always that of the rows, and those in ``first`` before others."""
    heads, ranks = list(widths), {head: rank for rank, head in enumerate(first)}
    shown: set[str] = set()
    for head in sorted(heads, key=lambda head: (head != heads[0], ranks.get(head, len(ranks)))):
        if not shown or widths[head] <= room:
            shown.add(head)
            room -= widths[head]
    return [head for head in heads if head in shown]
