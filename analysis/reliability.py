"""A reliability diagram: bars of accuracy, and the range of a calibrated network by chance."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis import style
from analysis.svg import label_points
from tune_calib.spec.metrics import METRICS

RESAMPLES = 2000
LEVEL = 0.95
CHANCE = f"{100 * LEVEL:.0f} % of chance"
_SEED = 0


def consistency_band(bins: pd.DataFrame, seed: int = _SEED) -> pd.DataFrame:
    """Return the range of the accuracy of each full bin if calibrated, by consistency resampling.

    As many test samples as the split has are drawn with the shares of the bins, and each is right
    with the mean confidence of its bin; ``RESAMPLES`` times. Trials of a rung share the test split,
    so pooling them does not enlarge the sample. Unlike a bootstrap of the outcomes, the band is not
    0 wide in a bin of one sample.
    """
    shown = bins[bins["count"] > 0]
    chance = np.random.default_rng(seed)
    samples = round(shown["count"].sum() / shown["trials"].max())
    drawn = chance.multinomial(samples, shown["share"], size=RESAMPLES)
    drawn = np.maximum(drawn, 1)  # an empty bin would have no accuracy
    # Pooling may round a mean confidence past 1, which a binomial refuses.
    right = chance.binomial(drawn, shown["confidence"].clip(0, 1))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(right / drawn, [tail, 1 - tail], axis=0)
    return pd.DataFrame({"low": low, "high": high}, index=shown.index)


def describe_bins(bins: pd.DataFrame) -> list[str]:
    """Describe each non-empty bin in some lines; fractions in percent."""
    shown = bins[bins["count"] > 0]
    return [
        f"bin ({row['lower']:.3g}, {row['upper']:.3g}]\n"
        f"accuracy (%): {METRICS['accuracy'].format(row['accuracy'])}\n"
        f"mean confidence (%): {METRICS['accuracy'].format(row['confidence'])}\n"
        f"{row['count']:.0f} samples, {100 * row['share']:.3g} % of all"
        for row in shown.to_dict("records")
    ]


def diagram(axis: Axes, bins: pd.DataFrame) -> None:
    """Draw accuracy against confidence, and the range of a calibrated network by chance."""
    shown = bins[bins["count"] > 0]
    width = shown["upper"] - shown["lower"]
    reached = axis.bar(
        shown["lower"], shown["accuracy"], width, align="edge", color=style.color(9),
        edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    gap = axis.bar(
        shown["lower"], shown["confidence"] - shown["accuracy"], width, bottom=shown["accuracy"],
        align="edge", color="none", edgecolor=style.color(3), hatch="////", linewidth=0.5,
    )  # fmt: skip
    for bars in (reached, gap):
        label_points(bars, describe_bins(bins))
    band = consistency_band(bins)
    middle = (shown["lower"] + shown["upper"]) / 2
    axis.vlines(middle, band["low"], band["high"], color="0.1", linewidth=1)
    axis.plot([0, 1], [0, 1], color="0.1", linewidth=0.8, linestyle="--")
    axis.set(xlim=(0, 1), ylim=(0, 1), yticks=[0, 0.5, 1])
    axis.tick_params(labelbottom=False)


def histogram(axis: Axes, bins: pd.DataFrame, floor: float) -> None:
    """Draw the share of samples in each bin, on a logarithmic scale from ``floor``."""
    shown = bins[bins["count"] > 0]
    # Rare bins make the widest gaps above: on a linear scale nobody would see that they are rare.
    axis.set_yscale("log")
    width = shown["upper"] - shown["lower"]
    bars = axis.bar(
        shown["lower"], 100 * shown["share"], width, align="edge", color="0.45",
        edgecolor="white", linewidth=0.5,
    )  # fmt: skip
    label_points(bars, describe_bins(bins))
    decades = range(int(np.log10(floor)) + 3, 3, 2)
    axis.set(ylim=(100 * floor, 100), xticks=np.linspace(0, 1, 3))
    ticks = [10.0 ** (decade - 1) for decade in decades]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


def legend() -> list[Line2D | Patch]:
    """Return handles of their own, since a diagram may lack a kind of bar."""
    return [
        Line2D([], [], color="0.2", linewidth=0.8, linestyle="--", label="calibrated"),
        Patch(color=style.color(9), label="accuracy of the bin"),
        Patch(
            facecolor="none", edgecolor=style.color(3), hatch="////",
            label="gap to its mean confidence",
        ),
        Line2D(
            [], [], color="0.1", linestyle="none", marker="|", markersize=8, label=CHANCE
        ),
    ]  # fmt: skip


def lowest(shares: "pd.Series[float]") -> float:
    """Return where the scale of shares begins: low enough for the smallest to have a bar."""
    return float(10 ** np.floor(np.log10(shares[shares > 0].min() / 2)))
