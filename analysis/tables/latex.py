r"""Tables in LaTeX (ASCII) as floats that fit a two-column paper.

A table that is too wide for the page is split into blocks of columns, one below the other, each
with the names of the rows. Heads and long texts are broken into lines, and text in a column of
numbers becomes a note below the table.
"""

import math
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from textwrap import wrap

from analysis.tables.table import Table, fit_columns

_NEEDS = r"% needs \usepackage{array,booktabs}; set for a two-column paper in 10 pt"
_COLUMN_PT, _PAGE_PT = 218.0, 450.0  # of article on A4, slightly narrower than on letter paper
_SEP_PT = 3.0  # on both sides of a column
_TEXT_PT = 130.0  # a longer text is broken
_NOTE_FROM = 18  # letters from which text in a column of numbers becomes a note
_HEAD = 14  # letters in a line of a head, unless the cells are wider
_LINES = 48  # lines in a float

_NUMBER = re.compile(r"(?:\$?[<+-]?\$? ?)?\d")

_MATH = {
    "±": "pm", "∞": "infty", "↓": "downarrow", "↑": "uparrow", "→": "rightarrow",
    "←": "leftarrow", "×": "times", "·": "cdot", "≤": "leq", "≥": "geq", "≠": "neq",  # noqa: RUF001
    "∅": "emptyset", "≈": "approx", "∈": "in", "∂": "partial", "∇": "nabla", "∑": "sum",
    "√": "surd", "…": "dots", "µ": "mu", "ℓ": "ell", "∆": "Delta",  # noqa: RUF001
}  # fmt: skip
_PLAIN = {
    "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}", "<": "$<$", ">": "$>$", "|": "$|$", "°": r"$^\circ$",
    "−": "$-$", "–": "--", "—": "---", "’": "'", "‘": "{`}", "“": "{``}",  # noqa: RUF001
    "”": "{''}", "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}",
    "œ": r"\oe{}", "Œ": r"\OE{}", "ł": r"\l{}", "Ł": r"\L{}",
    "†": r"\dag{}", "‡": r"\ddag{}", "§": r"\S{}", "¶": r"\P{}",
}  # fmt: skip
for _number, (_upper, _lower) in enumerate(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "₀₁₂₃₄₅₆₇₈₉", strict=True)):
    _PLAIN |= {_upper: f"$^{_number}$", _lower: f"$_{_number}$"}
# Greek letters that have a command; the others look like Latin letters.
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_MATH |= zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ", _GREEK.split(), strict=True)
_PLAIN |= {mark: f"$\\{name}$" for mark, name in _MATH.items()}
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u",
    "\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip


def label_of(*parts: str) -> str:
    """Return a label for references, e.g. ``tab:mac-cal``."""
    words = re.findall("[a-z0-9]+", " ".join(parts).lower())
    return f"tab:{'-'.join(words)}"


def latex(*tables: Table) -> str:
    """Return tables as floats, below a comment that names the required packages."""
    return f"{_NEEDS}\n" + "\n\n".join(map(_render, tables))


def _render(table: Table) -> str:
    """Return a table as one float, or as several if it is too long for a page."""
    if not table.records:
        return f"% {escape(table.text)}"
    printed = table
    if table.is_one_tabular:
        printed = table.without_blank()
    shown = _choose_columns(printed)
    columns, notes = _with_notes(list(shown.values()))
    notes += [rf"{escape(note)}\par" for note in table.notes_on(shown.keys())]
    blocks = _blocks(columns)
    is_narrow = len(blocks) == 1 and _width(blocks[0]) <= _COLUMN_PT
    kind = "table" if is_narrow else "table*"
    lines = []
    if left_out := [head for head in printed.heads if head not in shown]:
        lines.append(f"% columns that do not fit: {escape(', '.join(left_out))}")
    if table.is_one_tabular and not is_narrow:
        lines.append("% a single metric may fit one column: tune-calib report OUT --metric ece")
    # A line of the caption has about 100 letters.
    floats = list(_floats(blocks, table.rules, _LINES - len(table.full_caption) // 100))
    for index, bodies in enumerate(floats):
        lines += [rf"\begin{{{kind}}}[t]", r"\centering", r"\footnotesize"]
        if index == 0:
            lines += [rf"\caption{{{escape(table.text)}}}", rf"\label{{{table.label}}}"]
        else:
            # A continued float keeps the number of its table; a second label would be a duplicate.
            lines += [r"\addtocounter{table}{-1}", r"\caption{Continued.}"]
        lines += [r"\smallskip", rf"\setlength{{\tabcolsep}}{{{_SEP_PT:g}pt}}", *bodies[0]]
        for body in bodies[1:]:
            lines += ["", r"\medskip", *body]
        if notes and index == len(floats) - 1:
            lines += ["", r"\medskip", r"\raggedright", *notes]
        lines.append(rf"\end{{{kind}}}")
    return "\n".join(lines)


def _choose_columns(table: Table) -> "dict[str, _Column]":
    """Return the columns to print: all, unless the table must not be split into blocks."""
    room = _PAGE_PT if table.is_one_tabular else math.inf
    columns = {head: _Column.of(table, head) for head in table.heads}
    widths = {head: column.width for head, column in columns.items()}
    shown = fit_columns(table.first, widths, room)
    narrow = fit_columns(table.first, widths, _COLUMN_PT)
    if table.requested and set(table.requested).issubset(narrow):
        shown = narrow
    groups = {columns[head].group for head in shown}
    if len(shown) < len(columns) and len(groups - {""}) == 1:  # the other group is left out
        columns = {head: replace(columns[head], group="") for head in shown}
    return {head: columns[head] for head in shown}


@dataclass(frozen=True)
class _Column:
    """A column with its head, the head of its group, and its cells in LaTeX."""

    group: str
    title: str
    cells: Sequence[str]
    is_first: bool

    @classmethod
    def of(cls, table: Table, head: str) -> "_Column":
        cells = [replace(cell, text=escape(cell.text)) for cell in table.column(head)]
        texts = [cell.marked("latex") for cell in cells]
        return cls(*table.groups.get(head, ("", head)), texts, head == table.heads[0])

    @cached_property
    def is_number(self) -> bool:
        texts = [_bare(cell) for cell in self.cells if cell not in ("", "-")]
        numbers = list(filter(_NUMBER.match, texts))
        return not self.is_first and 2 * len(numbers) > len(texts)

    @cached_property
    def head(self) -> list[str]:
        letters = max([_HEAD, *map(len, map(_bare, self.cells))])
        lines = wrap(self.title, min(letters, 24), break_long_words=False) or [""]
        return list(map(escape, lines))

    @cached_property
    def is_broken(self) -> bool:
        return not self.is_number and max(map(_points, self.cells), default=0.0) > _TEXT_PT

    @property
    def align(self) -> str:
        if self.is_broken:
            return rf">{{\raggedright\arraybackslash}}p{{{_TEXT_PT:g}pt}}"
        return "r" if self.is_number else "l"

    @cached_property
    def width(self) -> float:
        cells: Iterable[float] = map(_points, self.cells)
        if self.is_broken:
            cells = [_TEXT_PT]
        return max([0.0, *cells, *map(_points, self.head)]) + 2 * _SEP_PT


Block = Sequence[_Column]  # adjacent columns


def _width(block: Block) -> float:
    return sum(column.width for column in block)


def _with_notes(columns: Block) -> tuple[Block, list[str]]:
    """Replace long texts in columns of numbers by marks that notes explain."""
    marks: dict[str, str] = {}

    def shorten(cell: str) -> str:
        if len(_bare(cell)) < _NOTE_FROM or _NUMBER.match(_bare(cell)):
            return cell
        return rf"--\textsuperscript{{{marks.setdefault(cell, _letters(len(marks)))}}}"

    shortened = list(columns)
    for index, column in enumerate(columns):
        if column.is_number:
            shortened[index] = replace(column, cells=list(map(shorten, column.cells)))
    return shortened, [rf"\textsuperscript{{{mark}}} {text}.\quad" for text, mark in marks.items()]


def _letters(number: int) -> str:
    if number < 26:
        return chr(ord("a") + number)
    quotient, remainder = divmod(number, 26)
    return _letters(quotient - 1) + _letters(remainder)


def _blocks(columns: Block) -> Sequence[Block]:
    """Split columns into few blocks that fit the page, each with the first column."""

    def split(limit: float) -> list[list[_Column]]:
        blocks = [[columns[0]]]
        for column in columns[1:]:
            if len(blocks[-1]) > 1 and _width([*blocks[-1], column]) > limit:
                blocks.append([columns[0]])
            blocks[-1].append(column)
        return blocks

    # With the full width as the limit, the last block might have a single column; the lowest limit
    # with the same number of blocks makes them similarly wide.
    blocks = split(_PAGE_PT)
    for limit in range(int(_PAGE_PT) - 10, 0, -10):
        narrower = split(limit)
        if len(narrower) > len(blocks):
            break
        blocks = narrower
    return blocks


def _floats(blocks: Sequence[Block], rules: Container[int], left: int) -> Iterator[list[list[str]]]:
    """Yield the bodies of each float, with as many blocks and rows as fit on a page."""
    bodies: list[list[str]] = []
    for block in blocks:
        start, rows = 0, len(block[0].cells)
        for stop in range(1, rows + 1):
            if stop < rows and _height(block, start, stop + 1) <= _LINES - 8:
                continue
            height = _height(block, start, stop)
            if bodies and height > left:
                yield bodies
                bodies, left = [], _LINES
            bodies.append(_tabular(block, rules, start, stop))
            left -= height
            start = stop
    yield bodies


def _height(block: Block, start: int, stop: int) -> int:
    """Count the lines of a body, including heads, rules and broken texts."""
    broken = [column.cells for column in block if column.is_broken]
    lines = max(len(column.head) for column in block) + 3
    for row in range(start, stop):
        # Ragged lines end early, so text takes more lines than its width suggests.
        longest = max((_points(cells[row]) for cells in broken), default=0.0)
        lines += 1 + int(longest / (0.85 * _TEXT_PT))
    return lines


def _tabular(block: Block, rules: Container[int], start: int, stop: int) -> list[str]:
    align = "".join(column.align for column in block)
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    lines += _group_lines([column.group for column in block])
    # The heads are aligned at their last lines.
    heads = [column.head for column in block]
    count = max(map(len, heads))
    padded = [[""] * (count - len(head)) + head for head in heads]
    lines += [*map(_row, zip(*padded, strict=True)), r"\midrule"]
    rows = list(zip(*(column.cells for column in block), strict=True))
    for number in range(start, stop):
        if number in rules and number > start:
            lines.append(r"\midrule")
        lines.append(_row(rows[number]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _group_lines(groups: Sequence[str]) -> list[str]:
    """Return a line with the heads of groups, and one with the rules below them."""
    if not any(groups):
        return []
    heads, rules, last = [], [], 0
    for name, columns in groupby(groups):
        first, last = last + 1, last + len(list(columns))
        if name:
            heads.append(rf"\multicolumn{{{last - first + 1}}}{{c}}{{{escape(name)}}}")
            rules.append(rf"\cmidrule(lr){{{first}-{last}}}")
        else:
            heads += [""] * (last - first + 1)
    return [" & ".join(heads) + r" \\", "".join(rules)]


def _row(cells: Sequence[str]) -> str:
    first, *others = map(_with_dashes, cells)
    if first.startswith(("[", "*")):
        # Otherwise, the preceding rule or row end would read it as its option.
        first = "{}" + first
    return " & ".join([first, *others]) + r" \\"


def _with_dashes(cell: str) -> str:
    # A hyphen is shorter in print than a minus or the dash of an empty cell.
    return "--" if cell == "-" else re.sub(r"(?<![\w.{-])-(?=\d)", "$-$", cell)


def _bare(cell: str) -> str:
    """Return approximately the visible text of a cell."""
    text = re.sub(r"\\(textbf|underline|textsuperscript|text\w+)", "", cell)
    text = re.sub(r"\\([a-zA-Z]+|.)", lambda match: match[1][-1], text)
    return re.sub(r"[${}]", "", text)


def _points(cell: str) -> float:
    """Estimate the width of a cell in footnotesize Computer Modern (8 pt), rather too wide."""
    bold = 1.15 if "textbf" in cell else 1.0
    return bold * sum(map(_letter_points, _bare(cell)))


def _letter_points(letter: str) -> float:
    if letter in "mwMWQ%@&":
        return 7.4
    if letter in "iljtfrI.,:;'|()[]!- ":
        return 3.1
    return 6.3 if letter.isupper() or letter in "+=<>" else 4.4


def escape(text: str) -> str:
    """Escape a text for pdflatex; a character without a command becomes ``[U+4E2D]``."""
    # NFC joins a letter and its combining accent, so that they become one command.
    composed = unicodedata.normalize("NFC", text)
    return "".join(map(_escape_letter, composed, " " + composed))


def _escape_letter(mark: str, previous: str) -> str:
    if mark == previous == "-":
        return "{}-"  # two hyphens would be a dash
    if mark in _PLAIN:
        return _PLAIN[mark]
    if mark.isascii():
        return mark if mark.isprintable() else " "
    if mark.isspace():
        return "~"
    base, *accents = list(unicodedata.normalize("NFD", mark))
    if base.isascii() and set(accents) <= _ACCENTS.keys():
        for accent in accents:
            base = rf"\{_ACCENTS[accent]}{{{base}}}"
        return base
    return f"[U+{ord(mark):04X}]"
