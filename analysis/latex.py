r"""Tables in LaTeX that stand in a two-column paper as they are: floats that fit, ASCII alone.

A table that is too wide for the page is split: blocks of columns under each other, each with the
names of the rows. Heads are broken into lines, long texts stand in ragged paragraphs, and a
statement in a column of numbers becomes a note under the table.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from textwrap import wrap

from analysis.latex_text import escape
from analysis.text import Cell, Record

_NEEDS = r"% needs \usepackage{array,booktabs}; set for a two-column paper in 10 pt"
_COLUMN_PT, _PAGE_PT = 218.0, 450.0  # of article on A4, a little narrower than on letter
_SEP_PT = 3.0  # on both sides of a column
_TEXT_PT = 130.0  # a longer text is broken
_NOTE_FROM = 18  # letters of a statement in a column of numbers
_HEAD = 14  # letters of a line of a head, where the cells are not wider
_LINES = 48  # of a float

_NUMBER = re.compile(r"(?:\$?[<+-]?\$? ?)?\d")


@dataclass(frozen=True)
class Table:
    """What a table says.

    Attributes:
        heads: of the columns, plain text; the first column names the rows.
        rows: cells in LaTeX (``escape`` makes them).
        caption: plain text.
        label: key of the reference.
        groups: head over each column, plain text; none where it is empty.
        rules: indices of rows that begin a block.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    label: str
    groups: Sequence[str] = ()
    rules: frozenset[int] = frozenset()


def of_records(records: Sequence[Record], caption: str, label: str) -> Table:
    """The table of rows that have equal heads."""
    rows = [[latex_cell(cell) for cell in record.values()] for record in records]
    return Table(list(records[0]), rows, caption, label)


def latex_cell(cell: Cell) -> str:
    """A cell in LaTeX, with the mark of its rank."""
    return replace(cell, text=escape(cell.text)).marked("latex")


def label_of(*parts: str) -> str:
    """A key for a reference, e.g. ``tab:mac-cal``."""
    words = re.findall("[a-z0-9]+", " ".join(parts).lower())
    return f"tab:{'-'.join(words)}"


def render(table: Table, needs: bool = True) -> str:
    """The table as one float, or as several where it is too long for a page.

    Args:
        table: what it says.
        needs: begin with a comment that names the packages.
    """
    if not table.groups:
        table = replace(table, groups=[""] * len(table.heads))
    notes, rows = _with_notes(table)
    table = replace(table, rows=rows)
    columns = [_Column.of(table, index) for index in range(len(table.heads))]
    blocks = _even_blocks(columns)
    widest = max(sum(columns[index].width for index in block) for block in blocks)
    kind = "table" if len(blocks) == 1 and widest <= _COLUMN_PT else "table*"
    floats = list(_floats(table, columns, blocks))
    lines = [_NEEDS] if needs else []
    for index, bodies in enumerate(floats):
        caption = escape(table.caption) if index == 0 else "Continued."
        lines += [rf"\begin{{{kind}}}[t]", r"\centering", r"\footnotesize"]
        # A float that goes on has the number of its table, and no label: it would be a second one.
        lines += [r"\addtocounter{table}{-1}"] * (index > 0)
        lines += [rf"\caption{{{caption}}}"]
        lines += [rf"\label{{{table.label}}}"] * (index == 0)
        lines += [r"\smallskip", rf"\setlength{{\tabcolsep}}{{{_SEP_PT:g}pt}}"]
        for body in bodies:
            lines += ["", r"\medskip", *body] if body is not bodies[0] else body
        if notes and index == len(floats) - 1:
            lines += ["", r"\medskip", r"\raggedright", *notes]
        lines += [rf"\end{{{kind}}}"]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Column:
    """How a column is set: lines of its head, LaTeX's alignment, and its width in points."""

    head: list[str]
    align: str
    width: float

    @classmethod
    def of(cls, table: Table, index: int) -> "_Column":
        cells = [row[index] for row in table.rows]
        told = [cell for cell in cells if cell not in ("", "-")]
        numbers = sum(_NUMBER.match(_bare(cell)) is not None for cell in told)
        is_number = index > 0 and 2 * numbers > len(told)
        widest = max((_points(cell) for cell in cells), default=0.0)
        letters = max(_HEAD, *(len(_bare(cell)) for cell in [*cells, ""]))
        lines = wrap(table.heads[index], min(letters, 24), break_long_words=False) or [""]
        head = [escape(line) for line in lines]
        of_head = max(map(_points, head))
        if widest > _TEXT_PT and not is_number:
            align = rf">{{\raggedright\arraybackslash}}p{{{_TEXT_PT:g}pt}}"
            return cls(head, align, max(_TEXT_PT, of_head) + 2 * _SEP_PT)
        return cls(head, "r" if is_number else "l", max(widest, of_head) + 2 * _SEP_PT)


def _with_notes(table: Table) -> tuple[list[str], list[list[str]]]:
    """Notes for the long statements in columns of numbers, and the rows that point to them."""
    rows = [list(row) for row in table.rows]
    marks: dict[str, str] = {}
    for index in range(1, len(table.heads)):
        is_number = _Column.of(table, index).align == "r"
        for row in rows:
            is_long = len(_bare(row[index])) >= _NOTE_FROM
            if is_number and is_long and not _NUMBER.match(_bare(row[index])):
                mark = marks.setdefault(row[index], _letters(len(marks)))
                row[index] = rf"--\textsuperscript{{{mark}}}"
    return [rf"\textsuperscript{{{mark}}} {text}.\quad" for text, mark in marks.items()], rows


def _letters(number: int) -> str:
    """``a`` to ``z``, then ``aa`` and so on: two notes never share a mark."""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + last)


def _even_blocks(columns: Sequence[_Column]) -> list[list[int]]:
    """As few blocks as the page takes, about equally wide."""
    # Blocks as wide as the page could leave a last one of a single column: the limit is lowered
    # as long as that takes no further block.
    found = list(_blocks(columns, _PAGE_PT))
    for limit in range(int(_PAGE_PT), 0, -10):
        tried = list(_blocks(columns, limit))
        if len(tried) > len(found):
            break
        found = tried
    return found


def _blocks(columns: Sequence[_Column], limit: float) -> Iterator[list[int]]:
    """Indices of the columns that stand beside each other; the first stands in every block."""
    block, width = [0], columns[0].width
    for index in range(1, len(columns)):
        if width + columns[index].width > limit and len(block) > 1:
            yield block
            block, width = [0], columns[0].width
        block.append(index)
        width += columns[index].width
    yield block


def _floats(
    table: Table, columns: Sequence[_Column], blocks: Sequence[list[int]]
) -> Iterator[list[list[str]]]:
    """The bodies of each float, as many blocks and rows as a page holds."""
    bodies: list[list[str]] = []
    left = _LINES - len(table.caption) // 100  # about so many letters stand in a line of it
    for block in blocks:
        for start, stop in _parts(table, columns, block):
            height = _height(table, columns, block, start, stop)
            if bodies and height > left:
                yield bodies
                bodies, left = [], _LINES
            bodies.append(_tabular(table, columns, block, start, stop))
            left -= height
    yield bodies


def _parts(table: Table, columns: Sequence[_Column], block: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges of rows, each no higher than a float."""
    start = 0
    for stop in range(1, len(table.rows) + 1):
        is_last = stop == len(table.rows)
        if is_last or _height(table, columns, block, start, stop + 1) > _LINES - 8:
            yield start, stop
            start = stop


def _height(
    table: Table, columns: Sequence[_Column], block: list[int], start: int, stop: int
) -> int:
    """Lines of a body, heads, rules and broken texts counted."""
    heads = max(len(columns[index].head) for index in block) + 3
    broken = [index for index in block if "p{" in columns[index].align]
    return heads + sum(_lines(row[index] for index in broken) for row in table.rows[start:stop])


def _lines(broken: Iterable[str]) -> int:
    """Lines of a row whose broken texts these are."""
    # Ragged lines end early, so a line holds less than its width.
    return max([1, *(1 + int(_points(text) / (0.85 * _TEXT_PT)) for text in broken)])


def _tabular(
    table: Table, columns: Sequence[_Column], block: list[int], start: int, stop: int
) -> list[str]:
    lines = [rf"\begin{{tabular}}{{{''.join(columns[p].align for p in block)}}}", r"\toprule"]
    lines += _groups([table.groups[index] for index in block])
    lines += _heads([columns[index] for index in block])
    lines.append(r"\midrule")
    for number in range(start, stop):
        if number in table.rules and number > start:
            lines.append(r"\midrule")
        lines.append(_row([table.rows[number][index] for index in block]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _row(cells: Sequence[str]) -> str:
    # LaTeX prints a hyphen shorter than a minus and than the dash of an empty cell.
    cells = [re.sub(r"(?<![\w.{-])-(?=\d)", "$-$", "--" if c == "-" else c) for c in cells]
    # A rule or the end of a row would take what stands here for its option.
    first = "{}" + cells[0] if cells[0].startswith(("[", "*")) else cells[0]
    return " & ".join([first, *cells[1:]]) + r" \\"


def _heads(columns: Sequence[_Column]) -> list[str]:
    """The heads, line by line, the last lines level; those of numbers at the right."""
    count = max(len(column.head) for column in columns)
    lines = [[""] * (count - len(column.head)) + column.head for column in columns]
    return [_row(cells) for cells in zip(*lines, strict=True)]


def _groups(names: Sequence[str]) -> list[str]:
    """Heads over several columns each, with their rules."""
    if not any(names):
        return []
    heads, rules, last = [], [], 0
    for name, columns in groupby(names):
        first, last = last + 1, last + len(list(columns))
        head = rf"\multicolumn{{{last - first + 1}}}{{c}}{{{escape(name)}}}"
        heads.append(head if name else " & ".join([""] * (last - first + 1)))
        rules.append(rf"\cmidrule(lr){{{first}-{last}}}" if name else "")
    return [" & ".join(heads) + r" \\", "".join(rules)]


def _bare(cell: str) -> str:
    """What a reader sees of a cell, about."""
    text = re.sub(r"\\(textbf|underline|textsuperscript|text\w+)", "", cell)
    text = re.sub(r"\\([a-zA-Z]+|.)", lambda found: found[1][-1], text)
    return re.sub(r"[${}]", "", text)


def _points(cell: str) -> float:
    """Width of a cell in footnotesize of Computer Modern (8 pt), rather too wide."""
    bold = 1.15 if "textbf" in cell else 1.0
    return bold * sum(map(_width, _bare(cell)))


def _width(mark: str) -> float:
    if mark in "mwMWQ%@&":
        return 7.4
    if mark in "iljtfrI.,:;'|()[]!- ":
        return 3.1
    return 6.3 if mark.isupper() or mark in "+=<>" else 4.4
