"""ECE and accuracy against the severity of image corruptions (as MaC-Cal, Fig. 5)."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.figure import Figure
from analysis.ladder.results import LadderResults
from analysis.load import Sweep
from tune_calib.registry import LADDER_FIGURES
from tune_calib.results import read_table

PANELS = {"ece": "test ECE (%)", "accuracy": "test accuracy (%)"}


def corruption_table(sweep: Sweep) -> pd.DataFrame:
    """Metrics of one trial of each rung by severity; 0 are the images as they are.

    Returns:
        Columns rung, kind, severity, accuracy, ece; fractions. Empty where nothing was evaluated
        on corrupted images (``tune-calib pictures``).

    Raises:
        DamagedFileError: a file is half-written or foreign.
    """
    shifted: pd.DataFrame = read_table(sweep.out, "corruptions").to_pandas()
    rows = sweep.trials.set_index("spec_hash")
    # Of the first trial of each rung: pictures made anew may have taken another one.
    kept = rows.index[rows.index.isin(shifted["spec_hash"])]
    first = rows.loc[kept].drop_duplicates("rung").index
    shifted = shifted[shifted["spec_hash"].isin(first)]
    if shifted.empty:
        return pd.DataFrame(columns=["rung", "kind", "severity", "accuracy", "ece"])
    # The corruptions of a published set are one kind: their mean, as the field gives it.
    kinds = shifted["kind"].str.partition("/")[0]
    shifted = (
        shifted.assign(kind=kinds)
        .groupby(["spec_hash", "kind", "severity"], as_index=False, sort=False)[list(PANELS)]
        .mean()
    )
    clean = shifted[["spec_hash", "kind"]].drop_duplicates().assign(severity=0)
    for metric in PANELS:
        clean[metric] = clean["spec_hash"].map(rows[f"test/{metric}"])
    table: pd.DataFrame = pd.concat([clean, shifted])
    table["rung"] = table["spec_hash"].map(rows["rung"])
    columns = ["rung", "kind", "severity"]
    return table.sort_values(columns)[[*columns, "accuracy", "ece"]].reset_index(drop=True)


def draw_corruption(results: LadderResults) -> Drawing | None:
    """A column of panels a kind of corruption, ECE above accuracy, a line a rung.

    Returns:
        None if nothing was evaluated on corrupted images.
    """
    sweep = results.sweep
    table = corruption_table(sweep)
    if table.empty:
        return None
    kinds = list(table["kind"].unique())
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
                _line(axis, table[is_own], metric, rung.index, rung.label)
    for axis, kind in zip(axes[0], kinds, strict=True):
        axis.set_title(kind, fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("severity (0: clean)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=7)
    figure.suptitle("n = 1 trial of each rung, that of the smallest seeds", fontsize=7)
    return figure


def _line(axis: Axes, rows: pd.DataFrame, metric: str, index: int, label: str) -> None:
    axis.plot(
        rows["severity"], 100 * rows[metric], color=style.color(index), linewidth=1.1,
        marker=style.marker(index), markersize=3.5, label=label,
    )  # fmt: skip


LADDER_FIGURES.register(
    Figure(
        name="corruption",
        title="ECE and accuracy on corrupted test images",
        reading=(
            "Noise, blur and loss of contrast of five severities, made here from the test split, "
            "and, where it was asked for, the mean over the corruptions of CIFAR-10-C or "
            "CIFAR-100-C. One trial of each rung, that of the smallest seeds."
        ),
        draw=draw_corruption,
        position=80,
    )
)
