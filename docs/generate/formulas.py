"""Formulas: LaTeX in the Markdown of a page, MathML on the built site."""

import re
from typing import Any

from latex2mathml.converter import convert

from tune_calib.spec.describe import clauses

_BEGIN, _END, _BREAK = r"\begin{gathered}", r"\end{gathered}", r" \\"


def fenced(formula: str) -> str:
    """Format a formula as a ``math`` block, which code hosts draw."""
    lines = clauses(formula)
    if len(lines) > 1:
        lines = [_BEGIN, *(f"{line}{_BREAK}" for line in lines[:-1]), lines[-1], _END]
    return "\n".join(["```math", *lines, "```"])


def draw_block(source: str, *_: Any, **__: Any) -> str:
    """Format a ``math`` block as HTML; mkdocs calls this."""
    lines = (line.removesuffix(_BREAK) for line in source.splitlines())
    return _html([line for line in lines if line not in (_BEGIN, _END)])


def drawn(formula: str) -> str:
    """Format a formula as HTML, one line per clause.

    Raises:
        ValueError: a command is unknown and would be printed as it is.
    """
    return _html(clauses(formula))


def _html(parts: list[str]) -> str:
    # Browsers draw MathML themselves.
    lines = [convert(part, display="block") for part in parts]
    # Names of functions are set as such, not as operators with space on both sides.
    lines = [re.sub(r"<mo>([a-z]{2,})</mo>", r"<mi>\1</mi>", line) for line in lines]
    lines = [line.replace("<mi>log</mi>", '<mi>log</mi><mspace width="0.17em"/>') for line in lines]
    for part, line in zip(parts, lines, strict=True):
        if "\\" in line:
            raise ValueError(f"cannot draw {part!r}")
    return '<div class="formula">\n' + "\n".join(lines) + "\n</div>"
