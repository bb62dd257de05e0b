"""The figure of methods against the number of samples of calib."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.figure import LADDER_FIGURES, report_figure
from analysis.ladder.learning import SHOWN, curve
from analysis.ladder.means import spread_over
from analysis.ladder.results import LadderResults
from analysis.load import Run
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS, column

MOST = 10  # times the smallest mean, above which values are not shown


def _caption(results: LadderResults) -> str:
    text = f"Lines: means, {spread_over(results.run)}."
    rows = curve(results.run)
    if rows["n"].max() > 1:
        text += " Bands: the middle 95 % of these trials."
    means = rows.groupby("metric")["mean"]
    if (means.max() > MOST * means.min()).any():
        text += f" Values above {MOST} times the smallest one are not shown."
    return text


@LADDER_FIGURES.register
@report_figure(
    name="learning_curve",
    title="ECE and NLL on test by the number of samples of calib",
    reading=(
        "Each post-hoc method is fitted to stratified subsets of calib; smaller ones are part of "
        "larger ones. Lower is better. Dashed lines need no samples of calib."
    ),
    caption=_caption,
    position=15,
)
def draw_learning_curve(results: LadderResults) -> Drawing | None:
    """Draw a panel for each metric, with a line for each method."""
    run = results.run
    rows = curve(run)
    if rows.empty:
        return None
    figure, axes = style.panels(len(SHOWN), len(SHOWN), 2.9)
    fitted = run.rungs_in(rows)
    constant = [rung for rung in run.rungs if rung not in fitted]
    for axis, metric in zip(axes, SHOWN, strict=True):
        of_metric = rows[rows["metric"] == metric]
        for rung in fitted:
            _draw_method(axis, of_metric[of_metric["rung"] == rung.index], rung)
        _draw_constant(axis, run, constant, metric)
        unit = "%" if METRICS[metric].scale == 100 else "nats"
        axis.set(xscale="log", yscale="log", xlabel="samples of calib")
        axis.set_ylabel(f"test {METRICS[metric].title} ({unit})")
        # Far above the others, a method would leave no room for their differences.
        axis.set_ylim(top=min(axis.get_ylim()[1], _highest(rows, metric)))
        style.plain_ticks(axis.xaxis)
        style.plain_ticks(axis.yaxis)
    handles = []
    for rung in run.rungs:
        if rung in fitted:
            handles.append(Line2D([], [], **_look(rung), label=run.label(rung)))
        elif len(run.of_rung(rung.index)):
            color, label = style.color(rung.index), run.label(rung)
            handles.append(Line2D([], [], color=color, linestyle="--", label=label))
    style.legend_below(figure, handles, min(4, len(handles)))
    return figure


def _highest(rows: pd.DataFrame, metric: str) -> float:
    """Return the upper end of the axis of a metric, as printed."""
    means = rows.loc[rows["metric"] == metric, "mean"]
    return MOST * METRICS[metric].scale * float(means.min())


def _look(rung: RungRecord) -> dict[str, Any]:
    mark = {"marker": style.marker(rung.index), "markersize": 4}
    return {"color": style.color(rung.index), "linewidth": 1.2, **mark}


def _draw_method(axis: Axes, rows: pd.DataFrame, rung: RungRecord) -> None:
    rows = rows.sort_values("samples")
    scale = METRICS[str(rows["metric"].iloc[0])].scale
    axis.plot(rows["samples"], scale * rows["mean"], **_look(rung))
    low, high = scale * rows["low"], scale * rows["high"]
    axis.fill_between(rows["samples"], low, high, color=style.color(rung.index), alpha=0.12, lw=0)


def _draw_constant(axis: Axes, run: Run, rungs: list[RungRecord], metric: str) -> None:
    for rung in rungs:
        mean = METRICS[metric].scale * run.of_rung(rung.index)[column("test", metric)].mean()
        axis.axhline(mean, color=style.color(rung.index), linestyle="--", linewidth=1)
