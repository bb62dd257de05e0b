r"""Tables in LaTeX (ASCII) as floats that fit a two-column paper.

A table that is too wide for the page is split into blocks of columns, one below the other, each
with the names of the rows. Heads and long texts are broken into lines, and text in a column of
numbers becomes a note below the table.
"""

import math
import re
import unicodedata
from collections.abc import Container, Iterator, Sequence
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
    "≈": "approx", "∈": "in", "∂": "partial", "∇": "nabla", "∑": "sum", "√": "surd", "…": "dots",
    "µ": "mu", "ℓ": "ell", "∆": "Delta",  # noqa: RUF001
}  # fmt: skip
_PLAIN = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}", "<": "$<$", ">": "$>$", "|": "$|$", "°": r"$^\circ$",
    "−": "$-$", "–": "--", "—": "---", "’": "'", "‘": "{`}", "“": "{``}",  # noqa: RUF001
    "”": "{''}", "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}", "æ": r"\ae{}", "Æ": r"\AE{}",
    "œ": r"\oe{}", "Œ": r"\OE{}", "ł": r"\l{}", "Ł": r"\L{}",
    "†": r"\dag{}", "‡": r"\ddag{}", "§": r"\S{}", "¶": r"\P{}",
}  # fmt: skip
_PLAIN |= {mark: rf"\{mark}" for mark in "&%_#${}"}
_PLAIN |= {mark: f"$\\{name}$" for mark, name in _MATH.items()}
_PLAIN |= {mark: f"$^{n}$" for n, mark in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_PLAIN |= {mark: f"$_{n}$" for n, mark in enumerate("₀₁₂₃₄₅₆₇₈₉")}
# Greek letters that have a command; the others look like Latin letters.
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau "
    "upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
_PLAIN |= {
    mark: f"$\\{name}$"
    for mark, name in zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ", _GREEK.split(), strict=True)
}
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
    floats = (_rendered(table) if table.records else f"% {escape(table.text)}" for table in tables)
    return f"{_NEEDS}\n" + "\n\n".join(floats)


def _rendered(table: Table) -> str:
    """Return a table as one float, or as several if it is too long for a page."""
    full = table
    table = table.without_blank() if table.is_one_tabular else table
    every = [_Column.of(table, head) for head in table.heads]
    widths = [column.width for column in every]
    chosen = fit_columns(table, widths, _PAGE_PT if table.is_one_tabular else math.inf)
    narrow = fit_columns(table, widths, _COLUMN_PT)
    if table.requested and {*table.requested} <= {table.heads[index] for index in narrow}:
        chosen = narrow
    columns: Block = [every[index] for index in chosen]
    shown = [table.heads[index] for index in chosen]
    left_out = ", ".join(head for head in table.heads if head not in shown)
    if left_out and len({column.group for column in columns} - {""}) == 1:
        columns = [replace(column, group="") for column in columns]  # the other group is left out
    columns, notes = _with_notes(columns)
    notes += [rf"{escape(note)}\par" for note in full.notes_on(shown)]
    blocks = _blocks(columns)
    widest = max(sum(column.width for column in block) for block in blocks)
    kind = "table" if len(blocks) == 1 and widest <= _COLUMN_PT else "table*"
    # A line of the caption has about 100 letters.
    floats = list(_floats(blocks, table.rules, _LINES - len(table.full_caption) // 100))
    lines = [f"% columns that do not fit: {escape(left_out)}"] * bool(left_out)
    if table.is_one_tabular and kind == "table*":
        lines += ["% a single metric may fit one column: tune-calib report OUT --metric ece"]
    for index, bodies in enumerate(floats):
        is_first, is_last = index == 0, index == len(floats) - 1
        lines += [rf"\begin{{{kind}}}[t]", r"\centering", r"\footnotesize"]
        # A continued float keeps the number of its table; a second label would be a duplicate.
        lines += [r"\addtocounter{table}{-1}"] * (not is_first)
        lines += [rf"\caption{{{escape(table.text) if is_first else 'Continued.'}}}"]
        lines += [rf"\label{{{table.label}}}"] * is_first
        lines += [r"\smallskip", rf"\setlength{{\tabcolsep}}{{{_SEP_PT:g}pt}}", *bodies[0]]
        for body in bodies[1:]:
            lines += ["", r"\medskip", *body]
        lines += ["", r"\medskip", r"\raggedright", *notes] * bool(notes and is_last)
        lines += [rf"\end{{{kind}}}"]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Column:
    """A column with its head, the head of its group, and its cells in LaTeX."""

    group: str
    title: str
    cells: Sequence[str]
    is_first: bool

    @classmethod
    def of(cls, table: Table, head: str) -> "_Column":
        cells = [record[head] for record in table.records]
        texts = [replace(cell, text=escape(cell.text)).marked("latex") for cell in cells]
        return cls(*table.groups.get(head, ("", head)), texts, head == table.heads[0])

    @cached_property
    def is_number(self) -> bool:
        known = [cell for cell in self.cells if cell not in ("", "-")]
        numbers = sum(_NUMBER.match(_bare(cell)) is not None for cell in known)
        return not self.is_first and 2 * numbers > len(known)

    @cached_property
    def head(self) -> list[str]:
        letters = max(_HEAD, *(len(_bare(cell)) for cell in [*self.cells, ""]))
        lines = wrap(self.title, min(letters, 24), break_long_words=False) or [""]
        return [escape(line) for line in lines]

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
        cells = [_TEXT_PT] if self.is_broken else [0.0, *map(_points, self.cells)]
        return max([*cells, *map(_points, self.head)]) + 2 * _SEP_PT


Block = Sequence[_Column]  # adjacent columns


def _with_notes(columns: Block) -> tuple[Block, list[str]]:
    """Replace long texts in columns of numbers by marks that notes explain."""
    marks: dict[str, str] = {}

    def short(cell: str) -> str:
        if len(_bare(cell)) < _NOTE_FROM or _NUMBER.match(_bare(cell)):
            return cell
        return rf"--\textsuperscript{{{marks.setdefault(cell, _letters(len(marks)))}}}"

    found = [
        replace(own, cells=[*map(short, own.cells)]) if own.is_number else own for own in columns
    ]
    return found, [rf"\textsuperscript{{{mark}}} {text}.\quad" for text, mark in marks.items()]


def _letters(number: int) -> str:
    """Return ``a`` to ``z``, then ``aa`` and so on."""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("a") + last)


def _blocks(columns: Block) -> Sequence[Block]:
    """Split columns into few blocks that fit the page, each with the first column."""

    def split(limit: float) -> list[list[_Column]]:
        blocks = [[columns[0]]]
        for column in columns[1:]:
            if len(blocks[-1]) > 1 and sum(c.width for c in [*blocks[-1], column]) > limit:
                blocks.append([columns[0]])
            blocks[-1].append(column)
        return blocks

    # With the full width as the limit, the last block might have a single column; the lowest limit
    # with the same number of blocks makes them similarly wide.
    splits = [split(limit) for limit in range(int(_PAGE_PT), 0, -10)]
    return [blocks for blocks in splits if len(blocks) == len(splits[0])][-1]


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
        lines += max([1, *(1 + int(_points(cells[row]) / (0.85 * _TEXT_PT)) for cells in broken)])
    return lines


def _tabular(block: Block, rules: Container[int], start: int, stop: int) -> list[str]:
    lines = [rf"\begin{{tabular}}{{{''.join(column.align for column in block)}}}", r"\toprule"]
    if any(column.group for column in block):
        heads_of_groups, rules_below, last = [], [], 0
        for name, columns in groupby(column.group for column in block):
            first, last = last + 1, last + len(list(columns))
            head = rf"\multicolumn{{{last - first + 1}}}{{c}}{{{escape(name)}}}"
            heads_of_groups.append(head if name else " & ".join([""] * (last - first + 1)))
            rules_below += [rf"\cmidrule(lr){{{first}-{last}}}"] * bool(name)
        lines += [" & ".join(heads_of_groups) + r" \\", "".join(rules_below)]
    # The heads are aligned at their last lines.
    count = max(len(column.head) for column in block)
    heads = [[""] * (count - len(column.head)) + column.head for column in block]
    lines += [*map(_row, zip(*heads, strict=True)), r"\midrule"]
    for number in range(start, stop):
        lines += [r"\midrule"] * (number in rules and number > start)
        lines.append(_row([column.cells[number] for column in block]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _row(cells: Sequence[str]) -> str:
    # A hyphen is shorter in print than a minus or the dash of an empty cell.
    cells = [re.sub(r"(?<![\w.{-])-(?=\d)", "$-$", "--" if c == "-" else c) for c in cells]
    # Otherwise, the preceding rule or row end would read it as its option.
    first = "{}" + cells[0] if cells[0].startswith(("[", "*")) else cells[0]
    return " & ".join([first, *cells[1:]]) + r" \\"


def _bare(cell: str) -> str:
    """Return approximately the visible text of a cell."""
    text = re.sub(r"\\(textbf|underline|textsuperscript|text\w+)", "", cell)
    text = re.sub(r"\\([a-zA-Z]+|.)", lambda found: found[1][-1], text)
    return re.sub(r"[${}]", "", text)


def _points(cell: str) -> float:
    """Estimate the width of a cell in footnotesize Computer Modern (8 pt), rather too wide."""
    bold = 1.15 if "textbf" in cell else 1.0
    return bold * sum(map(_width, _bare(cell)))


def _width(mark: str) -> float:
    if mark in "mwMWQ%@&":
        return 7.4
    if mark in "iljtfrI.,:;'|()[]!- ":
        return 3.1
    return 6.3 if mark.isupper() or mark in "+=<>" else 4.4


def escape(text: str) -> str:
    """Escape a text for pdflatex; a character without a command becomes ``[U+4E2D]``."""
    # NFC joins a letter and its combining accent, so that they become one command.
    whole = unicodedata.normalize("NFC", text)
    return "".join(map(_escape_letter, whole, " " + whole))


def _escape_letter(mark: str, before: str) -> str:
    if mark == before == "-":
        return "{}-"  # two hyphens would be a dash
    if mark in _PLAIN:
        return _PLAIN[mark]
    if mark.isascii():
        return mark if mark.isprintable() else " "
    if mark.isspace():
        return "~"
    parts = list(unicodedata.normalize("NFD", mark))
    base, accents = parts[0], parts[1:]
    if base.isascii() and all(accent in _ACCENTS for accent in accents):
        for accent in accents:
            base = rf"\{_ACCENTS[accent]}{{{base}}}"
        return base
    return f"[U+{ord(mark):04X}]"
