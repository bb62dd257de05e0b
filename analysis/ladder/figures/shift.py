"""Figures of shifted images: metrics over the severity of corruptions, and foreign images.

As MaC-Cal, Fig. 5 and table 2.
"""

from collections.abc import Iterable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.means import mean_over, trials_behind
from analysis.ladder.results import LadderResults
from analysis.ladder.shift_tables import ShiftTable, means, shift_tables
from analysis.load import Sweep
from analysis.shifts import FAMILIES, FOREIGN_MEAN, MEAN, TITLES, kind_title
from analysis.svg import label_points
from analysis.text import number_cell
from tune_calib.results.manifests import RungRecord
from tune_calib.results.tables import read_table
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import CORRUPTION_KINDS
from tune_calib.text import format_count

PANELS = {"ece": "test ECE (%)", "accuracy": "test accuracy (%)"}
_COLUMNS = ["spec_hash", "kind", "severity", *PANELS]

FEW = 4
"""Up to so many kinds have a panel each; more are summarised by boxes."""

EARLIER = "earlier"
_WHOSE = {**TITLES, EARLIER: "corruptions of an earlier version, one trial of each rung"}


def corruption_table(sweep: Sweep) -> tuple[str, pd.DataFrame]:
    """Return the family of corruptions, and the metrics of rungs by kind and severity (0: clean).

    Means over the trials, whose hashes are joined by blanks; published corruptions come before
    generated and ``earlier`` ones.
    """
    family, rows = next(
        ((family, rows) for family in FAMILIES if len(rows := _evaluated(sweep, family))),
        (EARLIER, _earlier(sweep)),
    )
    if rows.empty:
        return family, pd.DataFrame(columns=["rung", "kind", "severity", *PANELS, "hashes"])
    trials = sweep.trials.set_index("spec_hash")
    clean = rows[["spec_hash", "kind"]].drop_duplicates().assign(severity=0)
    for metric in PANELS:
        clean[metric] = clean["spec_hash"].map(trials[f"test/{metric}"])
    rows = pd.concat([clean, rows])
    rows["rung"] = rows["spec_hash"].map(trials["rung"])
    groups = rows.sort_values(["rung", "kind", "severity"]).groupby(["rung", "kind", "severity"])
    table = groups[list(PANELS)].mean()
    return family, table.assign(hashes=groups["spec_hash"].agg(" ".join)).reset_index()


def _evaluated(sweep: Sweep, family: str) -> pd.DataFrame:
    """Return a row for each (trial, kind, severity), of the columns of shifted images."""
    done = sweep.trials[sweep.trials["status"] == "done"]
    rows = []
    for name in map(str, done):
        parts = name.split("/")
        if len(parts) == 4 and parts[0] == family and parts[3] == "ece":
            kind, severity = parts[1:3]
            if MEAN not in (kind, severity):
                names = {f"{family}/{kind}/{severity}/{m}": m for m in PANELS}
                # Some columns may be absent.
                found = done.reindex(columns=list(names)).rename(columns=names)
                key: dict[str, Any] = {
                    "spec_hash": done["spec_hash"],
                    "kind": kind,
                    "severity": int(severity),
                }
                rows.append(found.assign(**key).dropna(subset=list(PANELS)))
    return pd.concat(rows) if rows else pd.DataFrame(columns=_COLUMNS)


def _earlier(sweep: Sweep) -> pd.DataFrame:
    """Return the same from the table ``corruptions``, which earlier versions wrote."""
    rows: pd.DataFrame = read_table(sweep.out, "corruptions").to_pandas()
    trials = sweep.trials.set_index("spec_hash")
    # Only the first trial of each rung: a later drawing may have taken another one.
    known = trials.index[trials.index.isin(rows["spec_hash"])]
    rows = rows[rows["spec_hash"].isin(trials.loc[known].drop_duplicates("rung").index)]
    # The corruptions of a published set are one kind: their mean, as the field gives it.
    kinds = rows["kind"].str.partition("/")[0] if len(rows) else rows["kind"]
    groups = rows.assign(kind=kinds).groupby(["spec_hash", "kind", "severity"], as_index=False)
    return groups[list(PANELS)].mean()


def draw_corruption(results: LadderResults) -> Drawing | None:
    """Draw ECE above accuracy: boxes over kinds at each severity, or of few kinds a panel each."""
    sweep = results.sweep
    _, table = corruption_table(sweep)
    if table.empty:
        return None
    found = set(table["kind"])
    kinds = [kind for kind in CORRUPTION_KINDS if kind in found]
    kinds += sorted(found - set(kinds))
    figure = _kind_panels(sweep, table, kinds) if len(kinds) <= FEW else _boxes(sweep, table)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=7)
    return figure


def _kind_panels(sweep: Sweep, table: pd.DataFrame, kinds: list[str]) -> Drawing:
    """Draw a column of panels for each kind, a line for each rung."""
    rungs = [rung for rung in sweep.rungs if rung.index in set(table["rung"])]
    figure, axes = plt.subplots(
        len(PANELS), len(kinds), figsize=(style.TEXT_IN, 4.2 + 0.14 * (len(rungs) // 3)),
        sharex=True, sharey="row", squeeze=False,
    )  # fmt: skip
    for row, (metric, label) in enumerate(PANELS.items()):
        axes[row, 0].set_ylabel(label)
        for axis, kind in zip(axes[row], kinds, strict=True):
            for rung in rungs:
                is_own = (table["kind"] == kind) & (table["rung"] == rung.index)
                rows = table[is_own]
                (line,) = axis.plot(
                    rows["severity"], 100 * rows[metric], color=style.color(rung.index),
                    linewidth=1.1, marker=style.marker(rung.index), markersize=3.5,
                    label=rung.label,
                )  # fmt: skip
                cells = zip(rows["severity"], rows[metric], strict=True)
                _label(line, rung, metric, cells)
    for axis, kind in zip(axes[0], kinds, strict=True):
        axis.set_title(kind_title(kind), fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("severity (0: clean)")
        style.whole_ticks(axis.xaxis)
    return figure


def _label(line: Line2D, rung: RungRecord, metric: str, cells: Iterable[tuple[int, float]]) -> None:
    texts = (
        f"severity {s}\n{METRICS[metric].head}: {METRICS[metric].format(value)}"
        for s, value in cells
    )
    label_points(line, [f"{rung.label}\n{text}" for text in texts])


def _boxes(sweep: Sweep, table: pd.DataFrame) -> Drawing:
    """Draw a box for each rung at every severity; without corruption there is one value."""
    rungs = [rung for rung in sweep.rungs if rung.index in set(table["rung"])]
    figure, axes = plt.subplots(
        len(PANELS), 1, sharex=True, figsize=(style.TEXT_IN, 5.0 + 0.14 * (len(rungs) // 3))
    )
    width = 0.82 / len(rungs)
    for axis, (metric, label) in zip(axes, PANELS.items(), strict=True):
        for place, rung in enumerate(rungs):
            own = table[table["rung"] == rung.index]
            shift = (place - (len(rungs) - 1) / 2) * width
            _rung_boxes(axis, own, metric, shift, 0.86 * width, rung)
        axis.set_ylabel(label)
        severities = sorted(table["severity"].unique())
        axis.set_xlim(severities[0] - 0.5, severities[-1] + 0.5)
        for severity in severities[1:]:
            axis.axvline(severity - 0.5, color="0.85", linewidth=0.6, zorder=0)
        axis.set_xticks(severities)
    axes[0].set_ylim(bottom=0)
    axes[-1].set_xlabel("severity (0: clean)")
    return figure


def _rung_boxes(
    axis: Axes, rows: pd.DataFrame, metric: str, shift: float, width: float, rung: RungRecord
) -> None:
    """Draw quartiles and range, and the mark of the rung at the median for print in grey."""
    color = style.color(rung.index)
    severities = sorted(rows["severity"].astype(int).unique())
    values = {s: 100 * rows.loc[rows["severity"] == s, metric].to_numpy() for s in severities}
    shifted = {severity: own for severity, own in values.items() if severity > 0}
    thin = {"color": color, "linewidth": 0.7}
    axis.boxplot(
        list(shifted.values()), positions=[s + shift for s in shifted], widths=width,
        whis=(0, 100), manage_ticks=False, patch_artist=True,
        boxprops={"facecolor": (*color, 0.4), "edgecolor": color, "linewidth": 0.7},
        whiskerprops=thin, capprops=thin, medianprops=thin,
    )  # fmt: skip
    medians = [np.median(own) for own in values.values()]
    (line,) = axis.plot(
        [s + shift for s in values], medians, color=color,
        marker=style.marker(rung.index), markersize=4, markeredgecolor="black",
        markeredgewidth=0.4, linestyle="none", label=rung.label,
    )  # fmt: skip
    _label(line, rung, metric, ((s, float(m) / 100) for s, m in zip(values, medians, strict=True)))


def _corruption_caption(results: LadderResults) -> str:
    family, table = corruption_table(results.sweep)
    if table.empty:
        return ""
    hashes = {name for cell in table["hashes"] for name in cell.split()}
    kinds = table["kind"].nunique()
    over = f"; boxes over {kinds} kinds" if kinds > FEW else ""
    return f"Shown: {_WHOSE[family]}{over}; {trials_behind(results.sweep, hashes)}."


LADDER_FIGURES.register(
    Figure(
        name="corruption",
        title="ECE and accuracy on corrupted test images",
        reading=(
            "A box per rung at every severity: quartiles, median and range over the kinds of "
            "corruption, each the mean over the trials; few kinds have a column of panels each. "
            "Published corruptions are those of CIFAR-10-C and CIFAR-100-C; generated ones have "
            "their kinds and strengths but other noise, and compare only with each other."
        ),
        draw=draw_corruption,
        caption=_corruption_caption,
        position=80,
    )
)


_OOD_METRICS = ("auroc", "fpr95")


def draw_ood(results: LadderResults) -> Drawing | None:
    """Draw a row of panels for each set of foreign images, a mark per rung."""
    sweep = results.sweep
    table = next((each for each in shift_tables(sweep) if each.key == "ood"), None)
    if table is None:
        return None
    own = [each for each in table.columns if each.split != FOREIGN_MEAN]
    groups = list(dict.fromkeys(each.group for each in own))
    size = 0.9 + len(groups) * (0.5 + 0.17 * len(sweep.rungs))
    figure, axes = plt.subplots(
        len(groups), len(_OOD_METRICS), figsize=(style.TEXT_IN, size), sharey=True, squeeze=False,
    )  # fmt: skip
    for row, group in zip(axes, groups, strict=True):
        for axis, metric in zip(row, _OOD_METRICS, strict=True):
            _ood_panel(axis, sweep, table, group, metric)
            axis.set_title(group, fontsize=8)
            axis.set_xlabel(METRICS[metric].head)
    return figure


def _ood_panel(axis: Axes, sweep: Sweep, table: ShiftTable, group: str, metric: str) -> None:
    column = next(c for c in table.columns if (c.group, c.metric) == (group, metric))
    found = means(sweep, table)
    found = found[(found["set"] == column.split) & (found["metric"] == metric)]
    heights = np.arange(len(sweep.rungs))
    for height, (_, row) in zip(heights, found.iterrows(), strict=True):
        if row["n"]:
            spread = None if np.isnan(row["sd"]) else 100 * row["sd"]
            mark = axis.errorbar(
                100 * row["mean"], height, xerr=spread, color=style.color(int(row["rung"])),
                marker=style.marker(int(row["rung"])), markersize=5, linestyle="none",
                elinewidth=0.8,
            )  # fmt: skip
            value = number_cell(metric, row["mean"], row["sd"]).text
            text = f"{sweep.labels[int(row['rung'])]}\n{group}\n{METRICS[metric].head}: {value}"
            label_points(mark.lines[0], [f"{text}\n{format_count(row['n'], 'trial')}"])
    axis.set_yticks(heights, [rung.label for rung in sweep.rungs], fontsize=7)
    axis.set_ylim(len(heights) - 0.5, -0.5)
    axis.grid(axis="y", color="0.9", linewidth=0.6)


LADDER_FIGURES.register(
    Figure(
        name="ood",
        title="Detection of foreign images against the test split",
        reading=(
            "A mark per rung, its spread as a bar. AUROC: the probability that a test image has a "
            "larger confidence than a foreign one (50 % is chance). FPR95: the share of "
            "foreign images that pass as test images at the confidence that 95 % of the test "
            "images reach."
        ),
        draw=draw_ood,
        caption=lambda results: (
            f"The score is the largest probability; {mean_over(results.sweep)}."
        ),
        position=85,
    )
)
