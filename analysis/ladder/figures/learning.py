"""The figure of methods against the number of samples of calib."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import LADDER_FIGURES, report_figure
from analysis.ladder.learning import SHOWN, curve
from analysis.ladder.means import spread_over
from analysis.ladder.results import LadderResults
from analysis.load import Run
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS, Metric, column

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
    run, rows = results.run, curve(results.run)
    if rows.empty:
        return None
    figure, axes = style.panels(len(SHOWN), len(SHOWN), 2.9)
    for axis, name in zip(axes, SHOWN, strict=True):
        metric, points = METRICS[name], rows[rows["metric"] == name]
        for rung in run.rungs_in(run.done):
            _draw_method(axis, run, rung, points[points["rung"] == rung.index], metric)
        axis.set(xscale="log", yscale="log", xlabel="samples of calib")
        unit = "%" if metric.scale == 100 else "nats"
        axis.set_ylabel(f"test {metric.title} ({unit})")
        # Far above the others, a method would leave no room for their differences.
        highest = MOST * metric.scale * float(points["mean"].min())
        axis.set_ylim(top=min(axis.get_ylim()[1], highest))
        style.plain_ticks(axis.xaxis)
        style.plain_ticks(axis.yaxis)
    handles, _ = axes[0].get_legend_handles_labels()
    style.legend_below(figure, handles, min(4, len(handles)))
    return figure


def _draw_method(
    axis: Axes, run: Run, rung: RungRecord, points: pd.DataFrame, metric: Metric
) -> None:
    """Draw the means of a method and its band; without points, its constant mean."""
    color, label, scale = style.color(rung.index), run.label(rung), metric.scale
    if points.empty:
        mean = scale * run.of_rung(rung.index)[column("test", metric.name)].mean()
        axis.axhline(mean, color=color, linestyle="--", linewidth=1, label=label)
        return
    marker, samples = style.marker(rung.index), points["samples"]
    axis.plot(
        samples, scale * points["mean"], color=color, marker=marker, markersize=4, linewidth=1.2,
        label=label,
    )  # fmt: skip
    low, high = scale * points["low"], scale * points["high"]
    axis.fill_between(samples, low, high, color=color, alpha=0.12, lw=0)
