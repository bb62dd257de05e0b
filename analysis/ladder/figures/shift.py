"""Figures of corruptions, foreign images (MaC-Cal, Fig. 5 and table 2), and samples of calib."""

from itertools import compress
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import LADDER_FIGURES, report_figure
from analysis.ladder.means import mean_over, spread_over, trials_behind
from analysis.ladder.results import LadderResults
from analysis.ladder.shift_tables import CURVE_METRICS, curve, means, shift_tables
from analysis.load import Run
from analysis.shifts import FAMILIES, FOREIGN_MEAN, MEAN, TITLES, kind_title
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS, Metric, column
from tune_calib.spec.names import CORRUPTION_KINDS

PANELS = {"ece": "test ECE (%)", "accuracy": "test accuracy (%)"}
FEW = 4  # up to this number of kinds, each has a panel; more are summarised by boxes


def corruption_rows(run: Run) -> tuple[str, pd.DataFrame]:
    """Return the family of corruptions, and a row per trial, kind and severity (0: clean)."""
    for family in FAMILIES:
        rows = _evaluated(run, family)
        if len(rows):
            break
    trials = run.trials.set_index("spec_hash")
    clean = rows.reindex(columns=["spec_hash", "kind"]).drop_duplicates().assign(severity=0)
    numbers = trials.reindex(columns=[f"test/{metric}" for metric in PANELS])
    clean = clean.join(numbers.set_axis(list(PANELS), axis="columns"), on="spec_hash")
    rows = pd.concat([clean, rows]) if len(rows) else clean
    rows = rows.assign(rung=rows["spec_hash"].map(trials["rung"]))
    return family, rows.sort_values(["rung", "kind", "severity"], ignore_index=True)


def _evaluated(run: Run, family: str) -> pd.DataFrame:
    pattern = rf"^{family}/(?!{MEAN}/)[^/]+/\d/({'|'.join(PANELS)})$"
    values = run.done.set_index("spec_hash").filter(regex=pattern)
    if values.empty:
        return pd.DataFrame()
    parts = [tuple(str(name).split("/")[1:]) for name in values]
    values.columns = pd.MultiIndex.from_tuples(parts, names=["kind", "severity", "metric"])
    rows: Any = values.stack(["kind", "severity"], future_stack=True)
    evaluated: pd.DataFrame = rows.reindex(columns=list(PANELS)).dropna().reset_index()
    return evaluated.astype({"severity": int})


def _corruption_caption(results: LadderResults) -> str:
    family, rows = corruption_rows(results.run)
    if rows.empty:
        return ""
    kinds = rows["kind"].nunique()
    over = f"; boxes over {kinds} kinds" if kinds > FEW else ""
    return f"Shown: {TITLES[family]}{over}; {trials_behind(results.run, rows['spec_hash'])}."


@LADDER_FIGURES.register
@report_figure(
    name="corruption",
    title="ECE and accuracy on corrupted test images",
    reading=(
        "Boxes show quartiles, median and range over the kinds of corruption at a severity, of "
        "means over the trials; a few kinds have a panel each instead. Published corruptions "
        "are those of CIFAR-10-C and CIFAR-100-C; generated ones have the same kinds and "
        "strengths but other noise, and are comparable only with each other."
    ),
    caption=_corruption_caption,
    position=80,
)
def draw_corruption(results: LadderResults) -> Drawing | None:
    _, rows = corruption_rows(results.run)
    if rows.empty:
        return None
    table = rows.groupby(["rung", "kind", "severity"])[list(PANELS)].mean().reset_index()
    rungs = results.run.rungs_in(table)
    present = set(table["kind"])
    kinds = [kind for kind in CORRUPTION_KINDS if kind in present]
    kinds += sorted(present.difference(CORRUPTION_KINDS))
    panels, height = kinds, 4.2
    if len(kinds) > FEW:
        panels, height = [""], 5.0
    height += 0.14 * (len(rungs) // 3)
    figure, axes = style.subplots(
        len(PANELS), len(panels), figsize=(style.TEXT_IN, height), sharex=True, sharey="row",
        squeeze=False,
    )  # fmt: skip
    for row, (metric, label) in zip(axes, PANELS.items(), strict=True):
        row[0].set_ylabel(label)
        for axis, kind in zip(row, panels, strict=True):
            if kind:
                _draw_lines(axis, table[table["kind"] == kind], metric, rungs)
            else:
                _draw_boxes(axis, table, metric, rungs)
    for (upper, lower), kind in zip(axes.T, panels, strict=True):
        upper.set_title(kind_title(kind), fontsize=8)
        lower.set_xlabel("severity (0: clean)")
    style.legend_below(figure, axes[0, 0].get_legend_handles_labels()[0], 3)
    return figure


def _draw_lines(axis: Axes, table: pd.DataFrame, metric: str, rungs: list[RungRecord]) -> None:
    for rung in rungs:
        rows = table[table["rung"] == rung.index]
        look = {**style.look(rung.index), "linewidth": 1.1, "markersize": 3.5}
        axis.plot(rows["severity"], 100 * rows[metric], **look, label=rung.label)
    style.whole_ticks(axis.xaxis)


def _draw_boxes(axis: Axes, table: pd.DataFrame, metric: str, rungs: list[RungRecord]) -> None:
    width = 0.82 / len(rungs)
    for order, rung in enumerate(rungs):
        rows, color = table[table["rung"] == rung.index], style.color(rung.index)
        shift = (order - (len(rungs) - 1) / 2) * width
        groups: Any = rows.groupby("severity")[metric]
        values = {severity: 100 * group.to_numpy() for severity, group in groups}
        medians = list(map(np.median, values.values()))
        positions = np.array(list(values)) + shift
        is_box = np.array(list(values)) > 0  # not the clean images, which are one point
        thin = {"color": color, "linewidth": 0.7}
        axis.boxplot(
            list(compress(values.values(), is_box)), positions=positions[is_box],
            widths=0.86 * width, whis=(0, 100), manage_ticks=False, patch_artist=True,
            boxprops={"facecolor": (*color, 0.4), "edgecolor": color, "linewidth": 0.7},
            whiskerprops=thin, capprops=thin, medianprops=thin,
        )  # fmt: skip
        axis.plot(
            positions, medians, **style.look(rung.index), markersize=4, markeredgecolor="black",
            markeredgewidth=0.4, linestyle="none", label=rung.label,
        )  # fmt: skip
    severities = sorted(table["severity"].unique())
    axis.set(xlim=(severities[0] - 0.5, severities[-1] + 0.5), xticks=severities)
    for severity in severities[1:]:
        axis.axvline(severity - 0.5, color="0.85", linewidth=0.6, zorder=0)
    if metric == "ece":
        axis.set_ylim(bottom=0)


_OOD_METRICS = ("auroc", "fpr95")


@LADDER_FIGURES.register
@report_figure(
    name="ood",
    title="Detection of foreign images against the test split",
    reading=(
        "AUROC: the probability that a test image has a larger confidence than a foreign one "
        "(50 % is chance). FPR95: the share of foreign images that pass as test images at the "
        "confidence that 95 % of the test images reach."
    ),
    caption=lambda results: f"The score is the largest probability; {mean_over(results.run)}.",
    position=85,
)
def draw_ood(results: LadderResults) -> Drawing | None:
    run = results.run
    tables = {table.key: table for table in shift_tables(run)}
    if "ood" not in tables:
        return None
    columns = [shown for shown in tables["ood"].columns if shown.metric in _OOD_METRICS]
    columns = [shown for shown in columns if shown.split != FOREIGN_MEAN]
    count, numbers = len({shown.group for shown in columns}), means(run, tables["ood"])
    size = 0.9 + count * (0.5 + 0.17 * len(run.rungs))
    figure, axes = style.subplots(
        count, len(_OOD_METRICS), figsize=(style.TEXT_IN, size), sharey=True, squeeze=False
    )
    for axis, shown in zip(axes.flat, columns, strict=True):
        is_shown = (numbers["set"] == shown.split) & (numbers["metric"] == shown.metric)
        rows = numbers[is_shown]
        for height, row in enumerate(rows.to_dict("records")):
            if not row["n"]:
                continue
            spread = None if np.isnan(row["sd"]) else 100 * row["sd"]
            look = {**style.look(row["rung"]), "markersize": 5, "linestyle": "none"}
            axis.errorbar(100 * row["mean"], height, xerr=spread, elinewidth=0.8, **look)
        axis.set_title(shown.group, fontsize=8)
        axis.set_xlabel(METRICS[shown.metric].head)
        axis.set_yticks(range(len(rows)), rows["label"], fontsize=7)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.grid(axis="y", color="0.9", linewidth=0.6)
    return figure


MOST = 10  # times the smallest mean, above which values are not shown


def _learning_caption(results: LadderResults) -> str:
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
    caption=_learning_caption,
    position=15,
)
def draw_learning_curve(results: LadderResults) -> Drawing | None:
    run, rows = results.run, curve(results.run)
    if rows.empty:
        return None
    figure, axes = style.panels(len(CURVE_METRICS), len(CURVE_METRICS), 2.9)
    for axis, name in zip(axes, CURVE_METRICS, strict=True):
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
    color, label, scale = style.color(rung.index), run.label(rung), metric.scale
    if points.empty:
        mean = scale * run.of_rung(rung.index)[column("test", metric.name)].mean()
        axis.axhline(mean, color=color, linestyle="--", linewidth=1, label=label)
        return
    samples, look = points["samples"], {**style.look(rung.index), "markersize": 4, "lw": 1.2}
    axis.plot(samples, scale * points["mean"], label=label, **look)
    low, high = scale * points["low"], scale * points["high"]
    axis.fill_between(samples, low, high, color=color, alpha=0.12, lw=0)
