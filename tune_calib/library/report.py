"""A report on a classifier from logits and labels: every metric with its interval."""

import base64
import io
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tune_calib.library.arrays import find_classes, find_weights
from tune_calib.metrics.binning import bin_table
from tune_calib.metrics.bootstrap import bootstrap
from tune_calib.metrics.scoring import check_order
from tune_calib.metrics.summary import evaluate
from tune_calib.metrics.ties import settled
from tune_calib.metrics.validation import logits_of, number_labels, whole_number, whole_numbers
from tune_calib.spec.metrics import AT_VALUE, METRICS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST = ("accuracy", "nll", "brier", "ece")  # metrics with which a report begins
_REACHED, _GAP = (0.34, 0.71, 0.91), (0.84, 0.37, 0.0)  # safe for colour-blind readers
_LEVEL = 0.95


def calibration_report(
    logits: Any,
    labels: Any,
    *,
    resamples: int = 1000,
    seed: int = 0,
    outputs: str | None = None,
    classes: Any = None,
    sample_weight: Any = None,
) -> "CalibrationReport":
    """Return every metric of a classifier with its bootstrap interval over the samples.

    Args:
        logits: (N, C), an array, a data frame or a tensor: unnormalised, or log-probabilities;
            finite. For two classes also scores (N,) or (N, 1), as in ``fit`` of an estimator.
        labels: (N,), integers in [0, C), or of ``classes``.
        resamples: number of draws of the samples, at least 2.
        seed: seed of the draws.
        outputs: "logits" or "probs" (probabilities), where their values leave it open.
        classes: the classes (C,) in the order of the columns; 0 to C - 1 by default.
        sample_weight: (N,), whole numbers, not negative: how often each sample occurs.

    Returns:
        A report with ``values`` (metrics without intervals, by name), ``metrics`` (a data frame),
        ``table()`` (every metric in Markdown, LaTeX or JSON) and ``figure()`` (matplotlib). It
        prints as a table. Intervals are computed when they are first used, which may take a
        minute.

    Raises:
        ValueError: an argument is invalid, or the logits may be probabilities.
    """
    rows = logits_of(logits, outputs)
    width = rows.shape[1]
    order = find_classes(labels, width, np.arange(width) if classes is None else classes, logits)
    numbers = number_labels(labels, len(rows), order).to(rows.device)
    if (weights := find_weights(sample_weight, rows)) is not None:
        counts = whole_numbers(weights, "a report")
        rows, numbers = rows.repeat_interleave(counts, 0), numbers.repeat_interleave(counts)
    check_order(rows.argmax(1), numbers, order, classes is not None)
    resamples, seed = whole_number(resamples, "resamples", 2), whole_number(seed, "seed", 0)
    return CalibrationReport(rows.double(), numbers, resamples, seed, rows.dtype)


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """Metrics of one classifier on logits (N, C), float64, and labels (N,), int64.

    Made by ``calibration_report``.
    """

    logits: Tensor
    labels: Tensor
    resamples: int
    seed: int
    dtype: torch.dtype | None = None  # in which the logits were given

    @cached_property
    def values(self) -> dict[str, float]:
        """Return every metric by name, without intervals: fractions, NLL in nats."""
        with torch.no_grad():
            values = evaluate(self.logits, self.labels, dtype=self.dtype)
        names = dict.fromkeys((*FIRST, *METRICS))
        return {name: float(values[name]) for name in names if name in values}

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Return one row per metric: metric, value, lower, upper (95 %); fractions, NLL in nats.

        Accuracy, NLL, Brier score and ECE come first. Intervals are those of ``metrics.bootstrap``.
        A metric that is not defined is NaN, e.g. the entropy of misclassified samples if there are
        none. Conformal sets are left out, since their calibration needs additional samples.
        """
        values = self.values  # the metrics first, since the intervals take longer
        with torch.no_grad():
            ends = bootstrap(
                self.logits[None], self.labels, self.resamples, self.seed, dtype=self.dtype
            )
        rows = []
        for name, value in values.items():
            rows.append((name, value, float(ends[name].lower), float(ends[name].upper)))
        return pd.DataFrame(rows, columns=["metric", "value", "lower", "upper"])

    def table(self, form: Literal["markdown", "latex", "json"] = "markdown") -> str:
        """Return all metrics as text, with notes on the intervals in Markdown and LaTeX.

        Args:
            form: ``markdown`` or ``latex`` (a booktabs tabular), with fractions in percent; or
                ``json``, with the numbers of ``metrics``, null for NaN.

        Raises:
            ValueError: the form is unknown.
        """
        if form == "json":
            rows = self.metrics.astype(object).where(self.metrics.notna(), None)
            return json.dumps(rows.to_dict("records"), indent=1)
        if form == "markdown":
            table = "\n".join(f"| {' | '.join(row)} |" for row in _align(self._cells()))
            return "\n\n".join([table, *self._notes()])
        if form != "latex":
            raise ValueError(f"form must be markdown, latex or json, got {form!r}")
        table = self._cells().to_latex(index=False, escape=True)
        table = table.replace("↓", r"$\downarrow$").replace("↑", r"$\uparrow$")
        return "\n".join([*(f"% {note}" for note in self._notes()), table])

    def figure(self) -> "Figure":
        """Draw the reliability diagram, and below it the share of samples in each bin.

        Its vertical lines show how far the accuracies of a calibrated classifier vary by chance
        alone.
        """
        rows = self._cells().loc[["accuracy", "ece"]]
        heading = "\n".join(f"{head} {value} [{ends}]" for head, value, ends in rows.to_numpy())
        table = bin_table(settled(self.logits, self.dtype).probs, self.labels)
        names = ("lower", "upper", "count", "confidence", "accuracy")
        bins = pd.DataFrame({name: getattr(table, name).cpu().numpy() for name in names})
        return _draw_diagram(bins, heading)

    def _notes(self) -> list[str]:
        samples = len(self.labels)
        notes = [
            f"95 %: bootstrap interval: how much a value varies between sets of {samples} samples."
        ]
        for name, row in self._cells().iterrows():
            lower, upper = row["95 %"].split(", ")
            if METRICS[str(name)].is_distance and lower != upper == row["value"]:
                return [*notes, f"{AT_VALUE}."]
        return notes

    def _cells(self) -> pd.DataFrame:
        cells = {}
        for name, *numbers in self.metrics.itertuples(index=False):
            value, lower, upper = map(METRICS[name].format, numbers)
            cells[name] = [METRICS[name].head, value, f"{lower}, {upper}"]
        return pd.DataFrame.from_dict(cells, "index", columns=["metric", "value", "95 %"])

    def _repr_html_(self) -> str:
        picture = io.BytesIO()
        self.figure().savefig(picture, format="png", dpi=150)
        data = base64.b64encode(picture.getvalue()).decode()
        shown = f'<img alt="reliability diagram" width="340" src="data:image/png;base64,{data}">'
        notes = "".join(f"<p>{note}</p>" for note in self._notes())
        return f"{shown}\n{self._cells().to_html(index=False)}{notes}"

    def __str__(self) -> str:
        """Return all metrics with their intervals as aligned columns."""
        table = "\n".join("  ".join(row).rstrip() for row in _align(self._cells()))
        return "\n\n".join([table, *self._notes()])


def _align(cells: pd.DataFrame) -> list[list[str]]:
    rows = [list(cells), *cells.to_numpy().tolist()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return [list(map(str.ljust, row, widths)) for row in rows]


def _draw_diagram(bins: pd.DataFrame, heading: str) -> "Figure":
    # Here, since most reports need no drawing.
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from scipy.stats import binom

    filled = bins[bins["count"] > 0]
    left, width, accuracy = filled["lower"], filled["upper"] - filled["lower"], filled["accuracy"]
    share = 100 * filled["count"] / filled["count"].sum()
    figure = Figure(figsize=(3.4, 4.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.1])
    box = {"align": "edge", "linewidth": 0.5}
    upper.bar(left, accuracy, width, color=_REACHED, edgecolor="white", **box)
    hatched = {"color": "none", "edgecolor": _GAP, "hatch": "////", **box}
    upper.bar(left, filled["confidence"] - accuracy, width, accuracy, **hatched)
    # Rounding may take a mean confidence past 1.
    chance = binom(filled["count"], filled["confidence"].clip(0, 1))  # of a calibrated classifier
    ends = [chance.ppf(level) / filled["count"] for level in ((1 - _LEVEL) / 2, (1 + _LEVEL) / 2)]
    upper.vlines(left + width / 2, *ends, color="0.1", linewidth=1)
    upper.plot([0, 1], [0, 1], color="0.1", linewidth=0.8, linestyle="--")
    upper.set(xlim=(0, 1), ylim=(0, 1), yticks=[0, 0.5, 1])
    upper.set_title(heading, fontsize=7)
    upper.set_ylabel("accuracy", fontsize=7)
    # Rare bins have the widest gaps above: a linear scale would not show that they are rare.
    lower.bar(left, share, width, color="0.45", edgecolor="white", **box)
    lower.set_yscale("log")
    lower.set(ylim=(10 ** np.floor(np.log10(share.min() / 2)), 100), xticks=[0, 0.5, 1])
    lower.yaxis.set_major_formatter("{x:g}")
    lower.minorticks_off()
    lower.set_xlabel("confidence", fontsize=7)
    lower.set_ylabel("samples\n(%, log)", fontsize=7)
    for axis in (upper, lower):
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    handles = [
        Line2D([], [], color="0.1", linewidth=0.8, linestyle="--", label="calibrated"),
        Patch(color=_REACHED, label="accuracy of the bin"),
        Patch(facecolor="none", edgecolor=_GAP, hatch="////", label="gap to its mean confidence"),
        Line2D([], [], color="0.1", linestyle="none", marker="|", markersize=8,
               label=f"{100 * _LEVEL:.0f} % of chance"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=6)
    return figure
