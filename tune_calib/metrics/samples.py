"""The samples of a split, from which every metric is computed.

A metric is a function of ``Samples``, which its record refers to. It returns a number for each
classifier, (...), and ``SampleValues`` return one for each sample, (..., N). It is written once:
the samples of a split count once, and those of bootstrap draws (``resampled``) as often as they
were drawn, which only changes how ``Samples`` sums over them.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tune_calib.metrics import binning
from tune_calib.metrics.ranked import Ranked, Ranking
from tune_calib.metrics.refinement import cross_fitted

BinSums = tuple[Tensor, Tensor, Tensor]
"""Sums over bins: number of samples, number of hits, and the sum of score minus hit."""

_CHUNK = 2**21  # probabilities processed at once


class CalibSplit(NamedTuple):
    """Predictions for ``calib``."""

    probs: Tensor  # probabilities (..., M, C)
    labels: Tensor  # labels (M,), int64
    error: Tensor | None = None
    """Error of the log-odds of the top class, (..., M) (``ties.settled``)."""


class Samples:
    """The samples of a split and the predictions of any number of classifiers for them.

    Probabilities ``probs`` and ``logits`` are (..., N, C), and labels (N,) int64. The logits are
    needed only for NLL, refinement and calibration parts, and ``calib`` for conformal sets.
    ``confidence`` (..., N) is that for ranks, the largest probability by default.
    """

    def __init__(
        self,
        probs: Tensor,
        labels: Tensor,
        logits: Tensor | None = None,
        confidence: Tensor | None = None,
        calib: CalibSplit | None = None,
        bins: int = 15,
    ) -> None:
        self.probs, self.labels, self.bins = probs, labels, bins
        # Only metrics that need them read these.
        self.logits: Any = logits
        self.calib: Any = calib
        self._confidence_for_ranks = confidence
        self.total = len(labels)
        self._values: dict[Callable[[Samples], Tensor], Tensor] = {}

    def value(self, metric: "Callable[[Samples], Tensor]") -> Tensor:
        """Return the value of a metric (...), or of each sample, which is computed once."""
        if metric not in self._values:
            self._values[metric] = metric(self)
        return self._values[metric]

    @cached_property
    def top_label(self) -> tuple[Tensor, Tensor]:
        """Return the confidence (..., N) and the correctness (..., N) in {0, 1}."""
        return binning.top_label(self.probs, self.labels)

    @cached_property
    def refined(self) -> tuple[Tensor, Tensor]:
        """Return NLL and Brier score of each sample after the best temperature, each (..., N)."""
        return cross_fitted(self.logits.double(), self.labels)

    @cached_property
    def table(self) -> binning.BinTable:
        """Return the equal-width bins of confidence."""
        return binning.bin_table(self.probs, self.labels, self.bins)

    @cached_property
    def ranked(self) -> Ranked:
        """Return the samples sorted by confidence, in float64."""
        confidence, hits = self.top_label
        if self._confidence_for_ranks is not None:
            confidence = self._confidence_for_ranks
        return Ranked(Ranking(confidence.double()), hits.double())

    @property
    def grid(self) -> Tensor:
        """Return the mean differences on the grid of the smooth ECE."""
        confidence, hits = (values.double() for values in self.top_label)
        return binning.on_grid(confidence, confidence - hits) / self.total

    def adaptive_error(self) -> Tensor:
        """Return the sum of n_b/N |gap_b| over the bins of ``binning.adaptive_table``."""
        confidence = self._confidence_for_ranks
        table = binning.adaptive_table(self.probs, self.labels, self.bins, confidence)
        return table.expected_gap(self.total)

    def class_gaps(self) -> Iterator[Tensor]:
        """Yield the sums of p[:, k] - 1[y = k] in its bins (lo, hi], (..., c, B), in parts."""
        for scores, is_class, place in self._by_class():
            yield binning.summed(place, scores - is_class, self.bins)

    def class_sums(self) -> Iterator[BinSums]:
        """Yield all sums over the same bins, with the samples of p = 0 in the lowest bin."""
        for scores, is_class, place in self._by_class():
            place = place.clamp(min=1)
            yield (
                binning.summed(place, torch.ones_like(scores), self.bins),
                binning.summed(place, is_class.expand_as(scores), self.bins),
                binning.summed(place, scores - is_class, self.bins),
            )

    def _by_class(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield p[:, k], 1[y = k] and bins (1 to B, 0 where p = 0) of a few classes at a time."""
        probs, labels = self.probs, self.labels
        edges = torch.linspace(0, 1, self.bins + 1, dtype=probs.dtype, device=probs.device)
        numbers = torch.arange(probs.shape[-1], device=labels.device)
        # A thousand classes at once would take several times the memory of the probabilities.
        width = max(1, _CHUNK // self.total)
        for part, classes in zip(probs.split(width, -1), numbers.split(width), strict=True):
            scores = part.transpose(-1, -2).contiguous()
            is_class = (labels == classes[:, None]).to(probs.dtype)
            yield scores, is_class, torch.bucketize(scores, edges)

    def mean(self, values: "SampleValues") -> Tensor:
        """Return the mean of values of the samples."""
        return values(self).mean(-1)

    def mean_difference(self, values: "SampleValues", others: "SampleValues") -> Tensor:
        """Return the difference of the means of two values of the samples."""
        return self.mean(values) - self.mean(others)

    def mean_among(self, values: "SampleValues", hits: bool) -> Tensor:
        """Return the mean among the hits, or the misses; NaN where there are none."""
        correct = self.top_label[1]
        weights = correct if hits else 1 - correct
        return (values(self) * weights).sum(-1) / weights.sum(-1)

    def standard_error(self, values: "SampleValues") -> Tensor:
        """Return the bootstrap standard error of the mean in closed form."""
        error: Tensor = values(self).std(-1, correction=0) / self.total**0.5
        return error


SampleValues = Callable[[Samples], Tensor]
"""A function that returns a value of each sample, (..., N)."""
