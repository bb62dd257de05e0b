"""What a sweep cost: seconds and memory of the trials of each rung."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis import style
from analysis.load import Sweep

_MIB = 2**20
PANELS = {"wall_s": "wall-clock time (s)", "memory_mib": "peak memory of the process (MiB)"}


def cost_table(sweep: Sweep) -> pd.DataFrame:
    """Seconds and memory of every rung.

    A network trial costs what its Ray trial took, a head the Ray trial's time over the heads that
    it trained together; the network under a head is not in it. Memory is the peak of the whole
    process (of the GPU where there is one), also of what else it held.

    Returns:
        One row a (rung with a measured trial, quantity of ``PANELS``): rung, label, quantity, n
        (trials), median, least, most.
    """
    done = sweep.trials[sweep.trials["status"] == "done"].reindex(
        columns=["rung", "head", "wall_s", "population", "peak_memory_bytes"]
    )
    heads = done["population"].where(done["head"].notna(), 1).astype(float)
    measured = done.assign(
        wall_s=done["wall_s"].astype(float) / heads,
        memory_mib=done["peak_memory_bytes"].astype(float) / _MIB,
    )
    rows = []
    for rung in sweep.rungs:
        own = measured[measured["rung"] == rung["index"]]
        for quantity in PANELS:
            values = own[quantity].dropna()
            place = {"rung": rung["index"], "label": rung["label"], "quantity": quantity}
            numbers = {"median": values.median(), "least": values.min(), "most": values.max()}
            rows.append({**place, "n": len(values), **numbers})
    table = pd.DataFrame(rows)
    return table[table["n"] > 0].reset_index(drop=True)


def draw_cost(sweep: Sweep) -> Figure | None:
    """Bars of the median seconds and memory of each rung, lines from the least to the most.

    Returns:
        None if no trial that is done was measured.
    """
    table = cost_table(sweep)
    if table.empty:
        return None
    count = table["rung"].nunique()
    figure, axes = plt.subplots(
        1, 2, figsize=(style.TEXT_IN, 0.19 * count + 1.0), width_ratios=[3, 2], sharey=True
    )
    for axis, quantity in zip(axes, PANELS, strict=True):
        _bars(axis, table[table["quantity"] == quantity])
        axis.set_xlabel(PANELS[quantity], fontsize=7.5)
    labels = [
        f"{row['label']} ({sweep.ended(int(row['rung']))})"
        for _, row in table.drop_duplicates("rung").iterrows()
    ]
    axes[0].set_yticks(range(count), labels, fontsize=7)
    axes[0].invert_yaxis()
    figure.suptitle("median of the trials that are done; line: least to most", fontsize=7)
    return figure


def _bars(axis: Axes, rows: pd.DataFrame) -> None:
    places = range(len(rows))
    colors = [style.color(int(rung)) for rung in rows["rung"]]
    axis.barh(places, rows["median"], height=0.7, color=colors)
    several = (rows["n"] > 1).to_numpy()
    axis.hlines(
        np.flatnonzero(several), rows["least"][several], rows["most"][several], color="0.1",
        linewidth=1,
    )  # fmt: skip
    for place, (_, row) in zip(places, rows.iterrows(), strict=True):
        axis.annotate(
            _number(row["median"]), (row["most"], place), xytext=(3, 0),
            textcoords="offset points", va="center", fontsize=6.5,
        )  # fmt: skip
    axis.set_xlim(0, 1.25 * rows["most"].max())
    axis.margins(y=0.02)
    axis.tick_params(labelsize=7)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
