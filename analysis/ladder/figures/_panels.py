"""What figures of bins share: a panel a rung, where it stands, and the numbers over it."""

from textwrap import wrap
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from analysis.load import Sweep
from analysis.text import number_cell
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS

FEW = 12  # so many panels stand four in a row; more of them six, so that a page holds them


class Panel(NamedTuple):
    """A rung that has bins, and its pooled bins."""

    rung: RungRecord
    bins: pd.DataFrame


def panels(sweep: Sweep) -> list[Panel]:
    """Return the rungs that have bins."""
    found = [Panel(rung, pooled_bins(sweep, rung.index)) for rung in sweep.rungs]
    return [panel for panel in found if (panel.bins["count"] > 0).any()]


def shape(count: int) -> tuple[int, int]:
    """Return columns and rows of so many panels."""
    columns = 4 if count <= FEW else 6
    return columns, -(-count // columns)


def label_outer(axis: Axes, column: int, label: str) -> None:
    """Label the panels of the first column alone, since all share their axes."""
    axis.set_ylabel(label if column == 0 else "", fontsize=7)
    axis.tick_params(labelsize=6.5, labelleft=column == 0)


def title(axis: Axes, sweep: Sweep, rung: RungRecord, columns: int) -> None:
    """Write the name of a rung and its numbers over its panel."""
    name = "\n".join(wrap(rung.label, 116 // columns))
    axis.set_title(f"{name}\n{_numbers(sweep, rung.index)}", fontsize=6.5 if columns < 6 else 6)


def _numbers(sweep: Sweep, rung: int) -> str:
    rows = sweep.of_rung(rung)
    if not {"test/ece", "test/accuracy"} <= set(rows) or rows["test/ece"].isna().all():
        return f"{sweep.failures(rung) or 'no ECE recorded'}\n"
    values = rows["test/ece"].dropna()
    ece = number_cell("ece", values.mean(), values.std(ddof=1)).text
    accuracy = METRICS["accuracy"].format(rows["test/accuracy"].mean())
    # Statuses are longer than a panel is wide, so they have a line of their own.
    ended = sweep.ended(rung)
    separator = ", " if sweep.is_done(rung) else "\n"
    return f"ECE {ece} %\naccuracy {accuracy} %{separator}{ended}"


def pooled_bins(sweep: Sweep, rung: int, split: str = "test") -> pd.DataFrame:
    """Return the bins of a rung, its trials pooled by their counts.

    Returns:
        Columns lower, upper, count, confidence, accuracy (NaN in an empty bin), share, and
        trials, how many were pooled.
    """
    hashes = set(sweep.of_rung(rung)["spec_hash"])
    chosen = sweep.bins["spec_hash"].isin(hashes) & (sweep.bins["split"] == split)
    bins = sweep.bins[chosen]
    # By counts: in a plain mean of the trials a bin of one sample would weigh as one of hundreds.
    weighted = bins.assign(
        confidence=bins["confidence"] * bins["count"], accuracy=bins["accuracy"] * bins["count"]
    )
    pooled = weighted.groupby("bin")[["count", "confidence", "accuracy"]].sum()
    edges = bins.groupby("bin")[["lower", "upper"]].first()
    total = pooled["count"].where(pooled["count"] > 0)
    return edges.assign(
        count=pooled["count"],
        confidence=pooled["confidence"] / total,
        accuracy=pooled["accuracy"] / total,
        share=pooled["count"] / max(1, pooled["count"].sum()),
        trials=bins["spec_hash"].nunique(),
    )
