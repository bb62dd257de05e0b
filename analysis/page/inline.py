"""Tables and figures as a notebook shows them: drawn where they are asked for, without files."""

import base64
import io
from typing import TypeVar

import matplotlib as mpl
import matplotlib.pyplot as plt
from markupsafe import Markup
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import Figure
from tune_calib.errors import UserError

R = TypeVar("R")


def drawn(figure: Figure[R], results: R) -> Drawing:
    """A figure of a report; the style and the backend of the notebook stay as they are.

    Args:
        figure: its record.
        results: what it is drawn from.

    Raises:
        UserError: there is nothing to draw.
    """
    with mpl.rc_context(), plt.ioff():
        style.theme()
        drawing = figure.draw(results)
    if drawing is None:
        why = figure.why_absent(results) or "these results have nothing to draw"
        raise UserError(f"{figure.name}: not drawn, {why}")
    # Else pyplot keeps it for ever, and a notebook shows it twice.
    plt.close(drawing)
    return drawing


def image(drawing: Drawing, alt: str, width: int) -> str:
    """A figure as an ``img`` that holds its PNG.

    Args:
        drawing: the figure.
        alt: what it is, for whom it cannot be shown.
        width: in CSS pixels.
    """
    content = io.BytesIO()
    drawing.savefig(content, format="png", dpi=150)
    data = base64.b64encode(content.getvalue()).decode()
    tag = Markup('<img alt="{}" width="{}" src="data:image/png;base64,{}">')
    return str(tag.format(alt, width, data))
