"""Feature norm of single samples against their softmax confidence (FeDLaS, ECCV 2026, Fig. 1c)."""

from textwrap import wrap

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D

from analysis import style
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder.results import LadderResults
from analysis.ladder.samples import correlations
from analysis.load import Sweep
from analysis.settings import settings
from analysis.text import decimal_cell
from tune_calib.results.manifests import RungRecord
from tune_calib.results.tables import read_files

COLUMNS = 4
# FeDLaS takes these as they are even where its setting says otherwise.
_NEVER_NORMALISED = ("constant", "random")
SPLIT = "select"  # after the epoch, by one pair of moments: the indicator is the norm but for units


def last_records(sweep: Sweep) -> pd.DataFrame:
    """Return single samples at the last epoch of the trial of smallest seeds of each rung."""
    done = sweep.trials[sweep.trials["status"] == "done"]
    first = done.drop_duplicates("rung")
    known = first.assign(name=_names(first)).set_index("spec_hash")[["rung", "name"]]
    parts = []
    for table in read_files(sweep.out, "samples"):
        rows = table.to_pandas()
        rows = rows[rows["spec_hash"].isin(known.index) & (rows["split"] == SPLIT)]
        if "confidence" in rows and len(rows):
            last = rows[rows["epoch"] == rows["epoch"].max()].dropna(subset="confidence")
            told = last[["spec_hash", "indicator", "confidence", "correct"]]
            parts.append(told.astype({"spec_hash": str}).join(known, on="spec_hash"))
    columns = ["rung", "name", "indicator", "confidence", "correct"]
    if not parts:
        return pd.DataFrame(columns=columns)
    found: pd.DataFrame = pd.concat(parts).sort_values("rung", kind="stable")
    return found[columns].reset_index(drop=True)


def _names(rows: pd.DataFrame) -> "pd.Series[str]":
    given = settings(rows).reindex(columns=["network.indicator", "network.normalise"])
    names = [
        f"{name} (raw)"
        if name in _NEVER_NORMALISED or str(is_on) == "False"
        else f"{name} (normalised)"
        for name, is_on in given.itertuples(index=False)
    ]
    return pd.Series(names, index=rows.index, dtype=object)


def draw_norm_confidence(results: LadderResults) -> Drawing | None:
    """Draw a panel for each rung, a dot for each sample, both correlations above."""
    records = last_records(results.sweep)
    rungs = [rung for rung in results.sweep.rungs if rung.index in set(records["rung"])]
    if not rungs:
        return None
    rows = -(-len(rungs) // COLUMNS)
    figure, axes = plt.subplots(
        rows, COLUMNS, figsize=(style.TEXT_IN, 2.1 * rows + 0.5), sharey=True, squeeze=False
    )
    for index, axis in enumerate(axes.flat):
        if index < len(rungs):
            rung = rungs[index]
            _dots(axis, rung, records[records["rung"] == rung.index])
            axis.set_ylabel("softmax confidence" if index % COLUMNS == 0 else "", fontsize=7)
        else:
            axis.set_axis_off()
    figure.legend(
        handles=[_key(style.color(9), "right"), _key(style.color(3), "wrong")],
        loc="outside lower center", ncols=2, frameon=False, fontsize=7,
    )  # fmt: skip
    return figure


def _dots(axis: Axes, rung: RungRecord, rows: pd.DataFrame) -> None:
    colors = rows["correct"].map({True: style.color(9), False: style.color(3)}).tolist()
    # As pixels: thousands of marks would make the vector files slow.
    axis.scatter(
        rows["indicator"], rows["confidence"], s=3, c=colors, alpha=0.5, linewidths=0,
        rasterized=True,
    )  # fmt: skip
    found = correlations(rows["indicator"], rows["confidence"])
    r, rho = (decimal_cell(found[name], 2).text for name in ("pearson", "spearman"))
    told = f"r = {r}, rho = {rho}, n = {len(rows)}"
    label = "\n".join(wrap(rung.label, 28))
    axis.set_title(f"{label}\n{told}", fontsize=6.5)
    axis.set_xlabel(rows["name"].iloc[0], fontsize=7)
    axis.tick_params(labelsize=6.5)
    axis.set_ylim(0, 1.02)


def _key(color: tuple[float, float, float], label: str) -> Line2D:
    return Line2D([], [], linestyle="none", marker="o", markersize=3, color=color, label=label)


def _absent(results: LadderResults) -> str:
    if results.statistics.empty:
        return ""  # no method judges single samples: nobody waits for it
    return "these records of single samples are older than that of their confidence"


LADDER_FIGURES.register(
    Figure(
        name="norm_confidence",
        title="Feature norm against softmax confidence",
        reading=(
            "A dot a sample of select after the last epoch, with Pearson's r and Spearman's rho; "
            "the indicator as the loss uses it. "
            "One trial of each rung, that of the smallest seeds."
        ),
        draw=draw_norm_confidence,
        absent=_absent,
        position=60,
    )
)
