r"""Tables in LaTeX as floats of booktabs, each shrunk to the line if it is wider."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from analysis.tables.table import Table
from analysis.text import Cell

_NEEDS = r"% needs \usepackage{array,booktabs,graphicx}"
_SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
_FEW = 5  # columns that fit a column of a two-column paper
_MOST = 11  # columns of a table that is one tabular
_LONG = 60  # letters from which a text is broken into lines

_COMMANDS = {
    "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}", "<": "$<$", ">": "$>$", "|": "$|$", "°": r"$^\circ$",
    "²": "$^2$", "³": "$^3$", "−": "$-$", "–": r"\textendash{}", "—": r"\textemdash{}",  # noqa: RUF001
    "’": "'", "‘": "`", "“": "``", "”": "''", "§": r"\S{}", "…": r"\dots{}",  # noqa: RUF001
    "±": r"$\pm$", "×": r"$\times$",  # noqa: RUF001
    "·": r"$\cdot$", "µ": r"$\mu$", "∞": r"$\infty$", "≤": r"$\leq$", "≥": r"$\geq$",
    "≠": r"$\neq$", "≈": r"$\approx$", "↓": r"$\downarrow$", "↑": r"$\uparrow$",
    "→": r"$\rightarrow$", "←": r"$\leftarrow$", "∂": r"$\partial$", "∆": r"$\Delta$",
    "Δ": r"$\Delta$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "λ": r"$\lambda$",  # noqa: RUF001
    "σ": r"$\sigma$", "τ": r"$\tau$",  # noqa: RUF001
    "\N{NO-BREAK SPACE}": "~",
}  # fmt: skip


def label_of(*parts: str) -> str:
    """Return a label for references, e.g. ``tab:mac-cal``."""
    words = re.findall("[a-z0-9]+", " ".join(parts).lower())
    return f"tab:{'-'.join(words)}"


def latex(*tables: Table) -> str:
    return f"{_NEEDS}\n" + "\n\n".join(map(_render, tables))


def _render(table: Table) -> str:
    if not table.records:
        return f"% {escape(table.text)}"
    heads, lines = table.heads, []
    if table.is_one_tabular:
        table = table.without_blank()
        heads = table.heads
        if len(heads) > _MOST:
            chosen = [heads[0], *(head for head in table.first if head in heads)][:_MOST]
            left_out = ", ".join(head for head in heads if head not in chosen)
            lines.append(f"% left out, choose with report --metric: {escape(left_out)}")
            heads = [head for head in heads if head in chosen]
    kind = "table" if len(heads) <= _FEW else "table*"
    lines += [rf"\begin{{{kind}}}[t]", r"\centering", r"\footnotesize"]
    lines += [rf"\caption{{{escape(table.text)}}}", rf"\label{{{table.label}}}", r"\smallskip"]
    lines += [_SHRUNK, *_tabular(table, heads), "}"]
    if table.notes:
        lines += ["", r"\medskip", r"\raggedright"]
        lines += [rf"{escape(note)}\par" for note in table.notes]
    return "\n".join([*lines, rf"\end{{{kind}}}"])


def _tabular(table: Table, heads: Sequence[str]) -> list[str]:
    align = ""
    for head, is_number in zip(table.heads, table.are_numbers, strict=True):
        if head in heads and max(len(cell.text) for cell in table.column(head)) > _LONG:
            align += r">{\raggedright\arraybackslash}p{6cm}"
        elif head in heads:
            align += "r" if is_number else "l"
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule"]
    pairs = [table.groups.get(head, ("", head)) for head in heads]
    if len({name for name, _ in pairs}) > 1:
        # A line with the heads of groups, and one with the rules below them.
        names, rules, last = [], "", 0
        for name, columns in groupby(name for name, _ in pairs):
            first, last = last + 1, last + len(list(columns))
            names.append(rf"\multicolumn{{{last - first + 1}}}{{c}}{{{escape(name)}}}")
            rules += rf"\cmidrule(lr){{{first}-{last}}}" if name else ""
        lines += [_row(names), rules]
    lines += [_row([escape(title) for _, title in pairs]), r"\midrule"]
    for number, record in enumerate(table.records):
        if number in table.rules and number > 0:
            lines.append(r"\midrule")
        lines.append(_row([_cell(record[head]) for head in heads]))
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _cell(cell: Cell) -> str:
    # A hyphen is shorter in print than a minus or the dash of an empty cell.
    text = "--" if cell.text == "-" else re.sub(r"(?<![\w.{-])-(?=\d)", "$-$", escape(cell.text))
    return replace(cell, text=text).marked("latex")


def _row(cells: Sequence[str]) -> str:
    # The preceding rule or row end would read a bracket or a star as its option.
    guard = "{}" if cells[0].startswith(("[", "*")) else ""
    return guard + " & ".join(cells) + r" \\"


def escape(text: str) -> str:
    """Escape a text for pdflatex; a character without a command becomes ``[U+4E2D]``."""
    # NFC joins a letter and its combining accent, so that pdflatex knows it.
    escaped = "".join(map(_escape_letter, unicodedata.normalize("NFC", text)))
    # Two hyphens would be a dash.
    return escaped.replace("--", "-{}-").replace("--", "-{}-")


def _escape_letter(mark: str) -> str:
    if mark in _COMMANDS:
        return _COMMANDS[mark]
    if mark.isascii():
        return mark if mark.isprintable() else " "
    return mark if mark.isalpha() and ord(mark) < 256 else f"[U+{ord(mark):04X}]"
