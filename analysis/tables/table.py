"""A table in any format, and its layout on a screen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from analysis.tables.terminal import layout
from analysis.text import Cell, Record, cell
from tune_calib.console import WIDE, Prose, Screen

MAX_COLUMNS = 6  # of a table in a page, with the names of its rows; others behind a switch
MAX_ROWS = 2000  # more would make a page that no browser sorts at once
BEST = "Best bold, second underlined."
"""The sentence of a caption that explains the marks; a terminal replaces it."""


@dataclass(frozen=True)
class Table:
    """A table: its caption, a record per row with cells by head, and its layout.

    The first column names the rows, and all rows have the same heads.
    """

    key: str  # id in a page, and name of its files
    caption: str  # sentences; a terminal begins a new line at a line break
    records: Sequence[Record]
    chosen_by: tuple[str, ...] = ()  # columns whose values a page offers in a list
    rules: Mapping[int, str] = field(default_factory=dict)  # rows that begin a block, and its name
    links: Mapping[str, str] = field(default_factory=dict)  # page of a row by the text of its name
    first: Sequence[str] = ()  # columns for a narrow screen, the most important one first
    groups: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # two lines of a head
    label: str = ""  # key by which LaTeX refers to it
    is_main: bool = False  # whether ``--columns`` chooses its columns
    notes: Sequence[str] = ()  # sentences below the caption, a line each
    is_one_tabular: bool = False  # whether LaTeX leaves columns out instead of splitting it
    total: int = 0  # rows in all, where ``records`` are the first ``MAX_ROWS``

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
        """Return the columns that a page shows on demand, where the table is wide."""
        if not self.first or len(self.heads) <= MAX_COLUMNS:
            return []
        main = [self.heads[0], *(head for head in self.first if head in self.heads)]
        return [i for i, head in enumerate(self.heads) if head not in main[:MAX_COLUMNS]]

    @property
    def rows(self) -> list[list[Cell]]:
        """Return the cells of the rows that a page shows."""
        return [list(record.values()) for record in self.records[:MAX_ROWS]]

    @property
    def choices(self) -> list[int]:
        """Return the indices of the columns that a page filters by."""
        return [self.heads.index(head) for head in self.chosen_by]

    def options(self, index: int) -> list[str]:
        """Return the values of a column in the order in which they appear."""
        return list(dict.fromkeys(row[index].text for row in self.rows))

    def is_number(self, index: int) -> bool:
        """Return whether most cells of a column that have a value are numbers."""
        return index > 0 and self._numbers[index]

    # A page asks for each of its cells.
    @cached_property
    def _numbers(self) -> list[bool]:
        columns = zip(*(record.values() for record in self.records), strict=True)
        known = [[each.value is not None for each in own if not each.is_blank] for own in columns]
        return [2 * sum(own) > len(own) for own in known] or [False] * len(self.heads)

    @property
    def bare(self) -> "Table":
        """Return the table without its caption and notes."""
        return replace(self, caption="", notes=())

    def without_blank(self) -> "Table":
        """Return the table without columns that say nothing."""
        used = [h for h in self.heads if not all(record[h].is_blank for record in self.records)]
        return replace(self, records=[{h: record[h] for h in used} for record in self.records])

    def __str__(self) -> str:
        """Return the table in plain text, however wide."""
        return self.on(WIDE)

    def on(self, screen: Screen) -> str:
        """Lay the table out for a screen, its caption below."""
        sentences = [*self.caption.replace(BEST, "* best, + second.").splitlines(), *self.notes]
        caption = [Prose(line).on(screen) for line in sentences]
        if not self.records:
            return "\n".join(caption)
        body = layout(
            self.heads,
            [_aligned([record[head] for record in self.records]) for head in self.heads],
            [self.is_number(index) for index in range(len(self.heads))],
            self.first,
            self.rules,
            screen if self.is_main else screen.without_choice(),
        )
        return "\n".join([body, *caption])


def _aligned(column: Sequence[Cell]) -> list[str]:
    """Return marked texts of a column, in which digits stand below each other."""
    texts = [each.marked("plain") for each in column]
    room = max((len(text) - len(c.text) for text, c in zip(texts, column, strict=True)), default=0)
    return [
        text if each.rank or each.value is None else text + " " * room
        for text, each in zip(texts, column, strict=True)
    ]


def table_of(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Build the main table of a command from cells, texts and plain numbers."""
    records = [dict(zip(heads, map(cell, row), strict=True)) for row in rows]
    return Table("", "", records, is_main=True)
