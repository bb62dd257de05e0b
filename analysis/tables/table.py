"""A table of the program, whatever format it is rendered in, and its layout on a screen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from analysis.tables.terminal import layout
from analysis.text import Cell, Record, cell
from tune_calib.console import WIDE, Prose, Screen

MAX_COLUMNS = 6  # of a table that a page shows unasked, with the names of its rows
MAX_ROWS = 2000  # more would make a page that no browser sorts at once
BEST = "Best bold, second underlined."
"""The sentence of a caption that explains the marks; a terminal shows its own one."""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        key: its id in a page and name in files.
        caption: sentences. At a line break a terminal begins a new line; other formats do not.
        records: a row each, cells by head; the first column names the row. All rows have the same
            heads.
        chosen_by: heads of the columns of which a page offers the values in a list.
        rules: indices of rows that begin a block, with the name of the block or none.
        links: page that the name of a row leads to, by its text; relative to the page.
        first: heads of the columns that matter most where a screen is narrow, the most important
            one first; the others follow as they stand.
        groups: head over a column, and its own head below that, by the full head; LaTeX and HTML
            show both lines.
        label: words of the key by which LaTeX refers to it.
        is_main: whether ``--columns`` chooses columns of this table.
        notes: sentences below the caption, a line each, e.g. what is missing.
        is_one_tabular: LaTeX leaves columns out where a page is too narrow, those of ``first``
            last, instead of splitting the table.
        total: how many rows there are, where ``records`` are the first ``MAX_ROWS`` alone.
    """

    key: str
    caption: str
    records: Sequence[Record]
    chosen_by: tuple[str, ...] = ()
    rules: Mapping[int, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    first: Sequence[str] = ()
    groups: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    label: str = ""
    is_main: bool = False
    notes: Sequence[str] = ()
    is_one_tabular: bool = False
    total: int = 0

    @property
    def heads(self) -> list[str]:
        """Return the heads of the columns."""
        return list(self.records[0]) if self.records else []

    @property
    def text(self) -> str:
        """Return the caption in one line."""
        return self.caption.replace("\n", " ")

    @property
    def told(self) -> str:
        """Return the caption with its notes, and a note if a page leaves rows out."""
        return " ".join(filter(None, [self.text, *self.notes, self.cut]))

    @property
    def cut(self) -> str:
        """Return a note if a page leaves rows out; else empty."""
        total = max(len(self.records), self.total)
        is_cut = total > MAX_ROWS
        return f"The first {MAX_ROWS} of {total}; the Parquet files hold all." if is_cut else ""

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
        lines = self.caption.replace(BEST, "* best, ' second.").splitlines()
        told = [Prose(line).on(screen) for line in [*lines, *self.notes]]
        if not self.records:
            return "\n".join(told)
        columns = [[record[head] for record in self.records] for head in self.heads]
        body = layout(
            self.heads,
            [_aligned(column) for column in columns],
            [self.is_number(index) for index in range(len(columns))],
            self.first,
            self.rules,
            screen if self.is_main else screen.without_choice(),
        )
        return "\n".join([body, *told])


def _aligned(column: Sequence[Cell]) -> list[str]:
    """Return marked texts of a column, in which digits stand below each other."""
    room = max((len(each.marked("plain")) - len(each.text) for each in column), default=0)
    return [
        each.marked("plain") + " " * (0 if each.rank or each.value is None else room)
        for each in column
    ]


def table_of(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Build the main table of a command from cells, texts and plain numbers."""
    records = [dict(zip(heads, map(cell, row), strict=True)) for row in rows]
    return Table("", "", records, is_main=True)
