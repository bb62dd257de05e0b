"""A drawn figure for the page: as one of Plotly, which tells what its points are.

There is one drawing of each figure. This one is read off it, so that it cannot show other numbers;
where something in it has no counterpart, the page shows the picture alone.
"""

import json
import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator
from matplotlib.transforms import Bbox

from analysis.interactive.legend import Entry, entries
from analysis.interactive.traces import UnknownArtistError, css, lines_of, numbers, traces

_MAX_BYTES = 1_000_000  # a larger one would make the page slow: the picture stands for it
_FONT = {"size": 13, "color": "rgb(26,26,26)", "family": "system-ui, sans-serif"}
_PAPER = {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)"}


def interactive(figure: Figure) -> dict[str, Any] | None:
    """A figure as the JSON of one of Plotly.

    Its ``layout.meta`` holds what stands beside it on the page: ``told`` (the heading of the
    figure), ``legend`` (as of ``legend.entries``), ``aspect`` (height over width) and ``panels``.

    Args:
        figure: drawn, so that everything in it has its place.

    Returns:
        Without traces where something in it has no counterpart; None if there is no legend either.
    """
    shown = [axes for axes in figure.axes if axes.get_visible() and axes.axison]
    legend = entries(figure)
    try:
        found = _plot(figure, shown, legend)
    except UnknownArtistError:
        found = None
    if found is not None and len(json.dumps(found)) <= _MAX_BYTES:
        return found
    return {"data": [], "layout": {"meta": {"legend": legend}}} if legend else None


def _plot(figure: Figure, shown: list[Axes], legend: list[Entry]) -> dict[str, Any]:
    heading = figure.get_suptitle()
    if not shown or [text for text in figure.texts if text.get_text() != heading]:
        raise UnknownArtistError("nothing, or texts beside the axes")
    is_alone = len(shown) == 1
    boxes = [axes.get_tightbbox() for axes in shown]
    frame = Bbox.union([box for box in boxes if box is not None])
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {
        **_PAPER, "font": _FONT, "showlegend": False,
        "barmode": "overlay", "bargap": 0, "hovermode": "closest",
        "margin": dict.fromkeys("lrtb", 8), "annotations": [],
    }  # fmt: skip
    for index, axes in enumerate(shown):
        number = "" if index == 0 else str(index + 1)
        for trace in traces(axes):
            data.append({**trace, "xaxis": f"x{number}", "yaxis": f"y{number}"})
        spans = None if is_alone else _spans(axes, frame)
        for side, place in (("x", 0), ("y", 1)):
            axis = _axis(axes, side, None if spans is None else spans[place])
            axis |= {"anchor": f"{'y' if side == 'x' else 'x'}{number}"}
            layout[f"{side}axis{number}"] = axis | _matched(axes, side, shown[:index])
        layout["annotations"] += [*_texts(axes, number), *_title(axes, number, is_alone)]
    told = [heading, *([shown[0].get_title()] if is_alone else [])]
    layout["meta"] = {
        "told": _one_line(told),
        "legend": legend,
        "aspect": round(frame.height / frame.width, 3),
        "panels": len(shown),
    }
    return {"data": data, "layout": layout}


def _one_line(texts: Iterable[str]) -> str:
    """Headings as one text, their lines parted where no stop parts them."""
    lines = [line for text in texts for line in text.split("\n") if line]
    return " ".join(f"{line};" if line[-1] not in ".;:," else line for line in lines).rstrip(";")


def _spans(axes: Axes, frame: Bbox) -> tuple[list[float | None], list[float | None]]:
    """Where axes stand, as shares of what all axes with their labels take."""
    box = axes.get_window_extent()
    across = ((x - frame.x0) / frame.width for x in (box.x0, box.x1))
    up = ((y - frame.y0) / frame.height for y in (box.y0, box.y1))
    # Rounding may take a share past the ends, which Plotly refuses.
    return numbers(min(max(v, 0), 1) for v in across), numbers(min(max(v, 0), 1) for v in up)


def _axis(axes: Axes, side: str, span: list[float | None] | None) -> dict[str, Any]:
    axis: Axis = axes.xaxis if side == "x" else axes.yaxis
    low, high = axis.get_view_interval()  # of an inverted axis the larger comes first
    is_log = axis.get_scale() == "log"
    ends = [math.log10(low), math.log10(high)] if is_log else [low, high]
    has_labels = axis.get_tick_params().get("labelbottom" if side == "x" else "labelleft", True)
    spine = axes.spines["top" if side == "x" else "right"].get_visible()
    found: dict[str, Any] = {
        "type": "log" if is_log else "linear",
        "range": numbers(ends),
        "title": {"text": lines_of(axis.get_label_text()), "standoff": 4},
        "showticklabels": bool(has_labels),
        "showline": True, "mirror": bool(spine), "linecolor": "rgb(26,26,26)", "showgrid": False,
        "zeroline": False, "ticks": "outside", "automargin": span is None,
    }  # fmt: skip
    return found | _ticks(axis) | ({} if span is None else {"domain": span})


def _ticks(axis: Axis) -> dict[str, Any]:
    locations = [float(v) for v in axis.get_majorticklocs()]
    formatter, locator = axis.get_major_formatter(), axis.get_major_locator()
    if isinstance(formatter, FixedFormatter) or (
        isinstance(locator, FixedLocator) and any(t.get_text() for t in axis.get_ticklabels())
    ):
        texts = [label.get_text() for label in axis.get_ticklabels()]
        if len(texts) == len(locations):
            return {"tickvals": numbers(locations), "ticktext": [lines_of(text) for text in texts]}
    if isinstance(locator, FixedLocator):
        return {"tickvals": numbers(locations)}
    if isinstance(locator, MaxNLocator) and getattr(locator, "_integer", False):
        steps = [b - a for a, b in pairwise(locations)] or [1.0]
        return {"tick0": 0, "dtick": max(1, round(min(steps)))}
    return {"nticks": max(2, len(locations))}


def _matched(axes: Axes, side: str, before: list[Axes]) -> dict[str, Any]:
    """The axes whose view these share, so that both move together."""
    shared = axes.get_shared_x_axes() if side == "x" else axes.get_shared_y_axes()
    for index, other in enumerate(before):
        if shared.joined(axes, other):
            return {"matches": side if index == 0 else f"{side}{index + 1}"}
    return {}


def _title(axes: Axes, number: str, is_alone: bool) -> list[dict[str, Any]]:
    """Of the only axes it stands in the text above, which a narrow screen can break."""
    if is_alone or not axes.get_title():
        return []
    place = {"xref": f"x{number} domain", "yref": f"y{number} domain", "x": 0.5, "y": 1}
    look = {"showarrow": False, "xanchor": "center", "yanchor": "bottom"}
    return [{**place, **look, "text": lines_of(axes.get_title())}]


def _texts(axes: Axes, number: str) -> list[dict[str, Any]]:
    return [_note(axes, text, number) for text in axes.texts if text.get_visible()]


def _note(axes: Axes, text: Text, number: str) -> dict[str, Any]:
    """A text where it was drawn, or an arrow."""
    refs: dict[str, Any] = {"xref": f"x{number}", "yref": f"y{number}"}
    if isinstance(text, Annotation) and text.arrow_patch is not None and not text.get_text():
        (x, y), (ax, ay) = (_place(axes, *map(float, at)) for at in (text.xy, text.xyann))
        arrow: dict[str, Any] = {"x": x, "y": y, "ax": ax, "ay": ay}
        arrow |= {"axref": refs["xref"], "ayref": refs["yref"], "text": "", "showarrow": True}
        color = css(text.arrow_patch.get_edgecolor())
        look = {"arrowhead": 2, "arrowwidth": 1, "arrowcolor": color}
        return {**refs, **arrow, **look, "standoff": 6, "startstandoff": 6}
    box, across, up = (
        text.get_window_extent(),
        text.get_horizontalalignment(),
        text.get_verticalalignment(),
    )
    x = {"left": box.x0, "right": box.x1}.get(across, (box.x0 + box.x1) / 2)
    y = {"top": box.y1, "bottom": box.y0, "baseline": box.y0}.get(up, (box.y0 + box.y1) / 2)
    (place,) = axes.transData.inverted().transform([(x, y)])
    x, y = _place(axes, *map(float, place))
    anchors = {"xanchor": across, "yanchor": {"top": "top", "bottom": "bottom"}.get(up, "middle")}
    return {
        **refs, **anchors, "x": x, "y": y, "showarrow": False, "text": lines_of(text.get_text()),
        "font": {"color": css(text.get_color())},
    }  # fmt: skip


def _place(axes: Axes, x: float, y: float) -> list[float | None]:
    """A place as Plotly's notes take it: by its logarithm where an axis has one."""
    scales = axes.get_xscale(), axes.get_yscale()
    return numbers(
        math.log10(v) if scale == "log" else v for v, scale in zip((x, y), scales, strict=True)
    )
