"""A table of the report page: it can be filtered, and sorted by the numbers of its cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from analysis.text import MARKS, Cell, Record

MAX_ROWS = 2000  # more would make a page that no browser sorts at once


@dataclass(frozen=True)
class Table:
    """One table of the page.

    Attributes:
        key: its id in the page.
        caption: what stands in it.
        records: a row each, cells by head; the first column names the row. All rows have the same
            heads.
        chosen_by: heads of the columns that have a list to choose a value from.
        rules: indices of rows that begin a block.
        links: where the name of a row leads to, by its text; relative to the page.
    """

    key: str
    caption: str
    records: Sequence[Record]
    chosen_by: tuple[str, ...] = ()
    rules: frozenset[int] = frozenset()
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def heads(self) -> list[str]:
        """Heads of the columns."""
        return list(self.records[0])

    @property
    def told(self) -> str:
        """The caption, and that rows are left out, if some are."""
        cut = len(self.records) > MAX_ROWS
        more = f" The first {MAX_ROWS} of {len(self.records)}; the Parquet files hold all."
        return f"{self.caption}{more if cut else ''}"

    @property
    def rows(self) -> list[list[Cell]]:
        """Cells of the rows that the page shows."""
        return [list(record.values()) for record in self.records[:MAX_ROWS]]

    @property
    def choices(self) -> list[int]:
        """Indices of the columns that have a list to choose from."""
        return [self.heads.index(head) for head in self.chosen_by]

    def options(self, index: int) -> list[str]:
        """Values of a column in the order in which they appear."""
        return list(dict.fromkeys(row[index].text for row in self.rows))

    def is_number(self, index: int) -> bool:
        """Whether most cells of a column that have a value are numbers; a few say why not."""
        column = [row[index] for row in self.rows if not row[index].is_blank]
        return index > 0 and 2 * sum(cell.value is not None for cell in column) > len(column)


def marked(cell: Cell) -> Markup:
    """The text of a cell, escaped, with the mark of its rank."""
    return Markup(MARKS["html"][cell.rank]).format(cell.text)
