"""Figures of corruptions by severity, and of foreign images (MaC-Cal, Fig. 5 and table 2)."""

from itertools import compress
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import LADDER_FIGURES, report_figure
from analysis.ladder.means import mean_over, trials_behind
from analysis.ladder.results import LadderResults
from analysis.ladder.shift_tables import means, shift_tables
from analysis.load import Run
from analysis.shifts import FAMILIES, FOREIGN_MEAN, MEAN, TITLES, kind_title
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS
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
    for metric in PANELS:
        name = f"test/{metric}"
        clean[metric] = clean["spec_hash"].map(trials.reindex(columns=[name])[name])
    rows = pd.concat([clean, rows]) if len(rows) else clean
    rows = rows.assign(rung=rows["spec_hash"].map(trials["rung"]))
    return family, rows.sort_values(["rung", "kind", "severity"], ignore_index=True)


def _evaluated(run: Run, family: str) -> pd.DataFrame:
    """Return a row for each (trial, kind, severity) with both metrics."""
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
    """Draw ECE above accuracy: boxes over many kinds at each severity, or a panel per kind."""
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
        axis.plot(
            rows["severity"], 100 * rows[metric], color=style.color(rung.index), linewidth=1.1,
            marker=style.marker(rung.index), markersize=3.5, label=rung.label,
        )  # fmt: skip
    style.whole_ticks(axis.xaxis)


def _draw_boxes(axis: Axes, table: pd.DataFrame, metric: str, rungs: list[RungRecord]) -> None:
    """Draw quartiles, range and, with the mark of the rung, the median over the kinds."""
    width = 0.82 / len(rungs)
    for order, rung in enumerate(rungs):
        rows, color = table[table["rung"] == rung.index], style.color(rung.index)
        shift = (order - (len(rungs) - 1) / 2) * width
        groups: Any = rows.groupby("severity")[metric]
        values = {severity: 100 * group.to_numpy() for severity, group in groups}
        medians = list(map(np.median, values.values()))
        positions = np.array(list(values)) + shift
        is_box = np.array(list(values)) > 0  # not the clean images, which are one point
        boxes = list(compress(values.values(), is_box))
        thin = {"color": color, "linewidth": 0.7}
        axis.boxplot(
            boxes, positions=positions[is_box], widths=0.86 * width,
            whis=(0, 100), manage_ticks=False, patch_artist=True,
            boxprops={"facecolor": (*color, 0.4), "edgecolor": color, "linewidth": 0.7},
            whiskerprops=thin, capprops=thin, medianprops=thin,
        )  # fmt: skip
        axis.plot(
            positions, medians, color=color,
            marker=style.marker(rung.index), markersize=4, markeredgecolor="black",
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
    """Draw a row of panels for each set of foreign images, with mean and spread of each rung."""
    run = results.run
    tables = {table.key: table for table in shift_tables(run)}
    if "ood" not in tables:
        return None
    columns = []
    for column in tables["ood"].columns:
        if column.split != FOREIGN_MEAN and column.metric in _OOD_METRICS:
            columns.append(column)
    count, numbers = len({column.group for column in columns}), means(run, tables["ood"])
    size = 0.9 + count * (0.5 + 0.17 * len(run.rungs))
    figure, axes = style.subplots(
        count, len(_OOD_METRICS), figsize=(style.TEXT_IN, size), sharey=True, squeeze=False
    )
    for axis, column in zip(axes.flat, columns, strict=True):
        is_shown = (numbers["set"] == column.split) & (numbers["metric"] == column.metric)
        rows = numbers[is_shown]
        metric = METRICS[column.metric]
        for height, row in enumerate(rows.to_dict("records")):
            if not row["n"]:
                continue
            spread = None if np.isnan(row["sd"]) else 100 * row["sd"]
            axis.errorbar(
                100 * row["mean"], height, xerr=spread, color=style.color(row["rung"]),
                marker=style.marker(row["rung"]), markersize=5, linestyle="none", elinewidth=0.8,
            )  # fmt: skip
        axis.set_title(column.group, fontsize=8)
        axis.set_xlabel(metric.head)
        axis.set_yticks(range(len(rows)), rows["label"], fontsize=7)
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.grid(axis="y", color="0.9", linewidth=0.6)
    return figure
