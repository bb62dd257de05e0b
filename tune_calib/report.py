"""What logits and labels say of a classifier: every metric with its interval, and a diagram."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor

from analysis.text import AT_VALUE, number, title
from tune_calib.library.arrays import labels_of, logits_of
from tune_calib.metrics.binning import bin_table
from tune_calib.metrics.bootstrap import bootstrap
from tune_calib.metrics.resampled import DISTANCES
from tune_calib.metrics.summary import evaluate
from tune_calib.names import METRICS

if TYPE_CHECKING:  # drawing loads what most reports do not need
    from matplotlib.figure import Figure


def calibration_report(
    logits: Any, labels: Any, *, resamples: int = 1000, seed: int = 0
) -> "CalibrationReport":
    """Every metric of a classifier with its bootstrap interval over the samples.

    Args:
        logits: (N, C), an array or a tensor: unnormalised, or log-probabilities; finite.
        labels: (N,), integers in [0, C).
        resamples: draws of the samples, from 2 on.
        seed: of the draws.

    Returns:
        The report: ``metrics`` (a frame), ``table()`` (Markdown), ``figure()`` (matplotlib).

    Raises:
        ValueError: an argument is something else; probabilities are refused as such.
    """
    rows = logits_of(logits).double()
    told = labels_of(labels, len(rows), rows.shape[1]).to(rows.device)
    if isinstance(resamples, bool) or not isinstance(resamples, int) or resamples < 2:
        raise ValueError(f"resamples must be a whole number of at least 2, got {resamples!r}")
    return CalibrationReport(rows, told, resamples, seed)


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """Metrics of one classifier on one set of samples; made by ``calibration_report``.

    Attributes:
        logits: (N, C), float64.
        labels: (N,), int64.
        resamples: draws of the samples.
        seed: of the draws.
    """

    logits: Tensor
    labels: Tensor
    resamples: int
    seed: int

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row a metric: metric, value, lower, upper (95 %); fractions, NLL in nats.

        Intervals are as of ``metrics.bootstrap``. NaN where a metric is not defined, e.g. the
        entropy of wrong samples where all are right. Conformal sets, which need samples of their
        own to be calibrated on, are not in it.
        """
        with torch.no_grad():
            values = evaluate(self.logits, self.labels)
            ends = bootstrap(self.logits[None], self.labels, self.resamples, self.seed)
        rows = [
            (name, float(values[name]), float(ends[name].lower), float(ends[name].upper))
            for name in METRICS
            if name in values
        ]
        return pd.DataFrame(rows, columns=["metric", "value", "lower", "upper"])

    def table(self) -> str:
        """The metrics in Markdown, fractions in percent, and what is peculiar about intervals."""
        table = self._cells().to_markdown(index=False, disable_numparse=True)
        return "\n\n".join([table, *self._notes()])

    def figure(self) -> "Figure":
        """Reliability diagram above, share of samples in each bin below.

        The lines in it show how far chance alone takes the accuracies of a calibrated classifier.
        """
        # Not pyplot's, which keeps every figure until it is closed.
        from matplotlib.figure import Figure

        from analysis.reliability import diagram, histogram, legend, lowest

        bins = self._bins()
        figure = Figure(figsize=(3.4, 4.4), layout="constrained")
        grid = figure.add_gridspec(2, 1, height_ratios=[3, 1.1])
        upper = figure.add_subplot(grid[0])
        lower = figure.add_subplot(grid[1], sharex=upper)
        diagram(upper, bins)
        histogram(lower, bins, lowest(bins["share"]))
        rows = {row["metric"]: row for row in self._rows()}
        shown = (rows[name] for name in ("accuracy", "ece"))
        told = (f"{title(row['metric'])} {row['value']} [{row['95 %']}]" for row in shown)
        upper.set_title("\n".join(told), fontsize=7)
        upper.set_ylabel("accuracy", fontsize=7)
        lower.set_xlabel("confidence", fontsize=7)
        lower.set_ylabel("samples\n(%, log)", fontsize=7)
        figure.legend(
            handles=legend(), loc="outside lower center", ncols=2, frameon=False, fontsize=6
        )
        return figure

    def _rows(self) -> list[dict[str, str]]:
        """The metrics as they are printed, under their names."""
        frame: Any = self.metrics
        return [
            {
                "metric": row.metric,
                "value": number(row.metric, row.value),
                "95 %": f"{number(row.metric, row.lower)}, {number(row.metric, row.upper)}",
            }
            for row in frame.itertuples()
        ]

    def _notes(self) -> list[str]:
        """Explain intervals that end at their value, if there are such, as they are printed."""
        for row in self._rows():
            lower, upper = row["95 %"].split(", ")
            if row["metric"] in DISTANCES and lower != upper == row["value"]:
                return [f"{AT_VALUE}."]
        return []

    def _cells(self) -> pd.DataFrame:
        rows = [{**row, "metric": title(row["metric"])} for row in self._rows()]
        return pd.DataFrame(rows)

    def _bins(self) -> pd.DataFrame:
        table = bin_table(self.logits.softmax(-1), self.labels)
        names = ("lower", "upper", "count", "confidence", "accuracy")
        bins = pd.DataFrame({name: getattr(table, name).cpu().numpy() for name in names})
        return bins.assign(share=bins["count"] / bins["count"].sum(), trials=1)

    def _repr_html_(self) -> str:
        """For notebooks: the figure and the table."""
        from analysis.page.inline import image

        shown = image(self.figure(), "reliability diagram", 340)
        notes = "".join(f"<p>{note}</p>" for note in self._notes())
        return f"{shown}\n{self._cells().to_html(index=False)}{notes}"

    def __str__(self) -> str:
        """The table."""
        return self.table()
