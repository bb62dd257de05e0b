"""Tables of cells, and their layout on a screen, which leaves out columns that do not fit."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

from analysis.text import Cell, Record
from tune_calib.console import WIDE, Prose, Screen, wrap
from tune_calib.errors import UserError
from tune_calib.text import nearest

MAX_COLUMNS = 6  # of a table in a page, with the names of its rows; a switch shows the others
MAX_ROWS = 2000  # browsers sort longer tables slowly
BEST = "Best bold, second underlined."
"""Explains the marks in a caption; replaced in a terminal."""
_BEST_PLAIN = "* best, ° second."

_GAP = 2  # spaces between two columns
_LINES = 2  # maximum of a cell of words; the column of a longer cell is wider
_HEAD_LINES = 3
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
    links: Mapping[str, str] = field(default_factory=dict)  # page of a row by the text of its name
    first: Sequence[str] = ()  # columns for a narrow screen, most important first
    groups: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # two lines of a head
    label: str = ""  # for references in LaTeX
    is_main: bool = False  # whether ``--columns`` selects its columns
    notes: Sequence[str] = ()  # sentences below the caption, one per line
    is_one_tabular: bool = False  # whether LaTeX leaves out columns instead of splitting
    requested: Sequence[str] = ()  # columns that the user asked for
    total: int = 0  # number of all rows, if ``records`` are the first ``MAX_ROWS``

    @property
    def heads(self) -> list[str]:
        """Return the heads of the columns."""
        return list(self.records[0]) if self.records else []

    @property
    def text(self) -> str:
        """Return the caption in one line."""
        return self.caption.replace("\n", " ")

    @property
    def full_caption(self) -> str:
        """Return the caption with its notes, and a note if a page leaves rows out."""
        return " ".join(filter(None, [self.text, *self.notes, self.cut]))

    @property
    def cut(self) -> str:
        """Return a note if a page leaves rows out; else empty."""
        total = max(len(self.records), self.total)
        note = f"The first {MAX_ROWS} of {total}; the Parquet files hold all."
        return note if total > MAX_ROWS else ""

    @property
    def extra(self) -> list[int]:
        """Return the columns of a wide table that a page shows on demand."""
        if not self.first or len(self.heads) <= MAX_COLUMNS:
            return []
        main = [self.heads[0], *(head for head in self.first if head in self.heads)]
        return [i for i, head in enumerate(self.heads) if head not in main[:MAX_COLUMNS]]

    @property
    def rows(self) -> list[list[Cell]]:
        """Return the cells of the rows that a page shows."""
        return [list(record.values()) for record in self.records[:MAX_ROWS]]

    def options(self, head: str) -> list[str]:
        """Return the values of a column in the order in which they appear."""
        return list(dict.fromkeys(record[head].text for record in self.records[:MAX_ROWS]))

    # Cached, since a page reads it for each cell.
    @cached_property
    def are_numbers(self) -> list[bool]:
        """Return for each column whether most of its non-empty cells are numbers."""
        columns = zip(*(record.values() for record in self.records), strict=True)
        known = [[each.value is not None for each in own if not each.is_blank] for own in columns]
        return [index > 0 and 2 * sum(own) > len(own) for index, own in enumerate(known)]

    def without_blank(self) -> "Table":
        """Return the table without blank columns."""
        used = [h for h in self.heads if not all(record[h].is_blank for record in self.records)]
        return replace(self, records=[{h: record[h] for h in used} for record in self.records])

    def __str__(self) -> str:
        """Return the table in plain text, however wide."""
        return self.on(WIDE)

    def on(self, screen: Screen) -> str:
        """Lay the table out for a screen, its caption below."""
        # On a narrow screen, each column takes the place of another.
        table = self.without_blank() if screen.width and not screen.columns else self
        body, shown = "", self.heads
        if self.records:
            of_main = screen if self.is_main else replace(screen, columns=(), some="")
            body, shown = _layout(table, of_main)
        is_marked = any(record[head].rank for record in self.records for head in shown)
        marks = _BEST_PLAIN if is_marked else ""
        sentences = [*self.caption.replace(BEST, marks).splitlines(), *self.notes_on(shown)]
        caption = [Prose(line.strip()).on(screen) for line in sentences]
        return "\n".join([*filter(None, [body]), *caption])

    def notes_on(self, shown: Container[str]) -> list[str]:
        """Return the notes without those that begin with the head of a column not shown."""
        notes = []
        for note in self.notes:
            subject = note.partition(":")[0].removeprefix("Columns '").removesuffix("'")
            heads = [head for head in self.heads if head.startswith(subject)]
            if not heads or any(head in shown for head in heads):
                notes.append(note)
        return notes


def table_of(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Build the main table of a command from cells, texts and plain numbers."""
    records = [dict(zip(heads, map(Cell.of, row), strict=True)) for row in rows]
    return Table("", "", records, is_main=True)


@dataclass(frozen=True)
class _Column:
    """A column, with its width if words and head are wrapped, and if they are not."""

    head: str
    cells: Sequence[str]
    is_number: bool

    @cached_property
    def least(self) -> int:
        most = max(map(len, self.cells), default=0)
        if most > _PROSE:
            most = max(_narrowest(text, _LINES, _INDENT) for text in self.cells)
        return max(most, _narrowest(self.head, _HEAD_LINES))

    @cached_property
    def most(self) -> int:
        return max(map(len, [self.head, *self.cells]))


def _layout(table: Table, screen: Screen) -> tuple[str, list[str]]:
    """Lay out the rows of a table for a screen, naming columns that do not fit; return heads."""
    every = []
    for head, is_number in zip(table.heads, table.are_numbers, strict=True):
        cells = [record[head] for record in table.records]
        texts = [cell.marked("plain") for cell in cells]
        # The digits of numbers with and without a mark are aligned.
        pairs = list(zip(texts, cells, strict=True))
        space = " " * max(len(text) - len(cell.text) for text, cell in pairs)
        texts = [text if c.rank or c.value is None else text + space for text, c in pairs]
        every.append(_Column(head, texts, is_number))
    chosen = _requested(table.heads, screen.columns)
    missing: list[str] = []
    if not screen.columns:
        chosen = list(range(len(every)))
        if screen.width:
            chosen = fit_columns(table, [own.least + _GAP for own in every], screen.width + _GAP)
        missing = [key for i, key in enumerate(column_keys(table.heads)) if i not in chosen]
    shown = [every[index] for index in chosen]
    widths = [column.most for column in shown]
    if screen.width is not None:
        # Spare room goes to the first columns.
        room = screen.width - sum(column.least for column in shown) - _GAP * (len(shown) - 1)
        for index, column in enumerate(shown):
            more = max(min(column.most - column.least, room), 0)
            widths[index] = column.least + more
            room -= more
    body = "\n".join(_rows(shown, widths, table.rules))
    note = Prose(f"Not shown: {', '.join(missing)}; {screen.more}{screen.some}.")
    heads = [column.head for column in shown]
    return f"{body}\n{note.on(screen)}" if missing else body, heads


def column_key(head: str) -> str:
    """Return the name for selecting a column, e.g. ``o-ece`` for ``O-ECE (%) ↓``."""
    words = re.sub(r"\([^)]*\)", "", head.casefold()).replace("δ", "delta ")
    return re.sub(r"[^\w%]+", "-", words).strip("-").replace("_", "-")


def column_keys(heads: Sequence[str]) -> list[str]:
    """Return the keys of columns; a repeated key includes the parentheses, e.g. ``p-holm``."""
    keys: list[str] = []
    for head in heads:
        key = column_key(head)
        keys.append(column_key(re.sub("[()]", "", head)) if key in keys else key)
    return keys


def _requested(heads: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the indices of the requested columns, after that of the names of the rows."""
    keys = column_keys(heads)
    for name in names:
        if column_key(name) not in keys:
            raise UserError(f"no column {name!r}{nearest(column_key(name), keys)}")
    return list(dict.fromkeys([0, *(keys.index(column_key(name)) for name in names)]))


def fit_columns(table: Table, widths: Sequence[float], room: float) -> list[int]:
    """Return the columns that fit: always the first, and those of ``first`` before the others."""
    ranks = {head: rank for rank, head in enumerate(table.first)}
    order = [ranks.get(head, len(ranks)) for head in table.heads]
    shown: list[int] = []
    for index in sorted(range(len(order)), key=lambda index: (index > 0, order[index])):
        if not shown or widths[index] <= room:
            shown.append(index)
            room -= widths[index]
    return sorted(shown)


def _rows(columns: Sequence[_Column], widths: Sequence[int], rules: Container[int]) -> list[str]:
    """Return the lines of the heads and rows."""
    gap, pairs = " " * _GAP, list(zip(columns, widths, strict=True))

    def lines(cells: Iterable[Sequence[str]]) -> list[str]:
        rows = [
            [
                text.rjust(width) if column.is_number else text.ljust(width)
                for text, (column, width) in zip(row, pairs, strict=True)
            ]
            for row in zip_longest(*cells, fillvalue="")
        ]
        return [gap.join(row).rstrip() for row in rows]

    rule = gap.join("-" * width for width in widths)
    found = [*lines(wrap(column.head, width) for column, width in pairs), rule]
    for number in range(len(columns[0].cells) if columns else 0):
        found += [rule] * (number in rules)
        found += lines(_folded(column.cells[number], width) for column, width in pairs)
    return found


def _folded(text: str, width: int) -> list[str]:
    """Return the lines of a cell, indented from the second line on."""
    if len(text) <= width:
        return [text]
    first, *others = wrap(text, width, _INDENT)
    return [first, *(f"{_INDENT}{line}" for line in others)]


def _narrowest(text: str, lines: int, indent: str = "") -> int:
    """Return the smallest width in which a text takes at most ``lines`` lines."""
    width = max(map(len, text.split()), default=0) + len(indent)
    while len(wrap(text, max(width, 1), indent)) > lines:
        width += 1
    return width
