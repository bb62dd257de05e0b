"""LaTeX as MathML, which browsers draw themselves."""

import re

from latex2mathml.converter import convert

from tune_calib.spec.describe import clauses


def drawn(formula: str) -> str:
    """A formula as HTML, a line a clause: each but the first begins a line with a quad.

    Raises:
        ValueError: a command is not known, so that it would be printed as it is.
    """
    lines = [convert(clause, display="block") for clause in clauses(formula)]
    # Names of functions are set as such, not as operators with space on both sides.
    lines = [re.sub(r"<mo>([a-z]{2,})</mo>", r"<mi>\1</mi>", line) for line in lines]
    lines = [line.replace("<mi>log</mi>", '<mi>log</mi><mspace width="0.17em"/>') for line in lines]
    for line in lines:
        if "\\" in line:
            raise ValueError(f"cannot draw {formula!r}")
    return '<div class="formula" markdown="0">\n' + "\n".join(lines) + "\n</div>"
