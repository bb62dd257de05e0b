"""Metrics of one classifier on bootstrap samples, many draws at once.

A draw is a count for each sample, so that sums over the drawn samples are products with these
weights. Every metric equals the result of ``summary.evaluate`` on the drawn samples, except that
two quantities are fixed: the temperatures of the folds, near which the loss is flat, and the
threshold of the conformal sets, which comes from other samples.

Distances (``Metric.is_distance``) are computed for each of ``SHARES``. The differences of
confidence and correctness are those of the drawn samples, minus those of the split, plus a share of
the latter. So share 0 is the contribution of chance to a distance, and share 1 is the plain draw.
``classwise_debiased`` is computed for ``FINE_SHARES``, since its bins have few samples.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from tune_calib.metrics import calibration, conformal, scoring
from tune_calib.metrics.binning import GRID, BinTable, adaptive_edges, neighbours
from tune_calib.metrics.ranked import Ranked, Ranking, pick
from tune_calib.metrics.refinement import scores
from tune_calib.metrics.samples import BinSums, CalibSplit, Samples, SampleValues
from tune_calib.metrics.selective import entropies
from tune_calib.metrics.summary import computed_metrics, measure
from tune_calib.metrics.ties import BINS, settled

Factors = tuple[SampleValues, ...]

_CHUNK = 2**18  # sums processed at once

SHARES = (0.0, 1.0, 2.0)
AS_DRAWN = SHARES.index(1.0)

FINE_SHARES = (*SHARES, 0.25, 0.5, 0.75)
"""More shares, after those of ``SHARES``. A debiased distance is flat near share 0, then rises."""


def shares_of(name: str) -> tuple[float, ...]:
    """Return the shares for which a distance is computed."""
    return FINE_SHARES if name == "classwise_debiased" else SHARES


class Resampled:
    """One classifier, logits (N, C) float64 and labels (N,), prepared for any number of draws."""

    def __init__(
        self,
        logits: Tensor,
        labels: Tensor,
        calib: CalibSplit | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        probs, confidence_for_ranks, _ = settled(logits, dtype)
        self.samples = Samples(probs, labels, logits=logits, calib=calib, bins=BINS)
        self.has_calib = calib is not None
        self.total = len(labels)
        self.ranking = Ranking(confidence_for_ranks)
        self.columns = _columns(self.samples, self.has_calib)
        self.stacked = torch.stack(list(self.columns.values()), -1)
        confidence, gaps = self.samples.top_label[0], scoring.gaps(self.samples)
        self.in_bin = in_bins(confidence)
        self.bin_gaps = self.in_bin * gaps[:, None]
        self._grid = _grid(confidence, gaps)
        self.cells = ClassCells(probs, labels, BINS)
        once = torch.ones_like(gaps)[None]
        self.bin_over_once, self.grid_over_once = once @ self.bin_gaps, self.grid_over(once)
        self.cells_once = self.cells.sums(once)

    def metrics(self, weights: Tensor) -> dict[str, Tensor]:
        """Compute every metric on draws (R, N) float64: (R,), or (S, R) for distances."""
        return measure(_Draws(self, weights), computed_metrics(has_calib=self.has_calib))

    def plug_in(self) -> dict[str, Tensor]:
        """Return the biased plug-in values of the split's own debiased distances."""
        once = torch.ones_like(self.ranking.scores)[None]
        # This includes bins of one sample, whose error cannot be debiased.
        errors = self.mean_gaps * with_zero(self.cells_once.over) / self.total
        return {
            "debiased_ece": calibration.plug_in_ece(_Draws(self, once))[AS_DRAWN, 0],
            "classwise_debiased": errors.sum(-1).mean(-1).sqrt()[0],
        }

    @property
    def mean_gaps(self) -> Tensor:
        """Return the mean differences of the split in the bins of each class, (1, C, B)."""
        return with_zero(self.cells_once.over) / self.cells_once.samples.clamp(min=1)

    def grid_over(self, weights: Tensor) -> Tensor:
        """Return the mean differences on the grid of the smooth ECE, (R, GRID + 1)."""
        sums: Tensor = torch.sparse.mm(self._grid, weights.T)
        return sums.T / self.total


class _Draws(Samples):
    """The samples of one classifier with weights (R, N); distances have an axis of ``SHARES``."""

    def __init__(self, classifier: Resampled, weights: Tensor) -> None:
        samples = classifier.samples
        super().__init__(samples.probs, samples.labels, bins=BINS)
        self._classifier, self._weights = classifier, weights

    @cached_property
    def table(self) -> BinTable:
        classifier = self._classifier
        over = _each(self._weights @ classifier.bin_gaps, classifier.bin_over_once)
        return table_of(self._weights @ classifier.in_bin, over)

    @cached_property
    def ranked(self) -> Ranked:
        classifier = self._classifier
        shift = 1 - self._weights.new_tensor(SHARES)
        return Ranked(classifier.ranking, classifier.samples.top_label[1], self._weights, shift)

    @property
    def grid(self) -> Tensor:
        return _each(self._classifier.grid_over(self._weights), self._classifier.grid_over_once)

    def adaptive_error(self) -> Tensor:
        ordered, after = self._classifier.ranking.scores, self.ranked.after

        def confidence_at(ranks: Tensor) -> Tensor:
            drawn_ranks = ranks.to(after.dtype).expand(len(after), -1).contiguous()
            return ordered[torch.searchsorted(after, drawn_ranks, right=True)]

        edges = adaptive_edges(confidence_at, self.total, BINS, device=ordered.device)
        cut = torch.searchsorted(ordered, edges, right=True)
        return pick(self.ranked.over, cut).diff(dim=-1).abs().sum(-1) / self.total

    @cached_property
    def _cells(self) -> "Cells":
        return self._classifier.cells.sums(self._weights)

    def class_gaps(self) -> Iterator[Tensor]:
        yield _each(self._cells.over, self._classifier.cells_once.over)[..., 1:]

    def class_sums(self) -> Iterator[BinSums]:
        # Subtract the mean difference of the bin for each drawn sample. Subtracting the sums of the
        # split would turn the varying size of a bin into an error.
        width = max(1, _CHUNK // (BINS * len(self._weights)))
        by_class = (*self._cells, self._classifier.mean_gaps)
        parts = zip(*(sums.split(width, 1) for sums in by_class), strict=True)
        for count, hits, over, mean_gaps in parts:
            drawn, expected = with_zero(over), count * mean_gaps
            over_of_shares = [drawn - (1 - share) * expected for share in FINE_SHARES]
            yield count, hits, torch.stack(over_of_shares)

    @cached_property
    def _means(self) -> dict[Factors, Tensor]:
        # One product of matrices for all columns takes less time than one for each.
        means = self._weights @ self._classifier.stacked / self.total
        return dict(zip(self._classifier.columns, means.unbind(-1), strict=True))

    def _mean(self, factors: Factors, values: Callable[[Samples], Tensor]) -> Tensor:
        """Return the means over the draws, also of values that no metric of ours needs."""
        if factors in self._means:
            return self._means[factors]
        return self._weights @ values(self._classifier.samples) / self.total

    def mean(self, values: SampleValues) -> Tensor:
        return self._mean((values,), values)

    def mean_difference(self, values: SampleValues, others: SampleValues) -> Tensor:
        return self._mean((values, others), lambda samples: values(samples) - others(samples))

    def mean_among(self, values: SampleValues, hits: bool) -> Tensor:
        kind = scoring.hits if hits else _misses
        among = self._mean((values, kind), lambda samples: values(samples) * kind(samples))
        accuracy = self.mean(scoring.hits)
        return among / (accuracy if hits else 1 - accuracy)

    def standard_error(self, values: SampleValues) -> Tensor:
        square = self._mean((values, values), lambda samples: values(samples).square())
        variance = square - self.mean(values).square()
        return (variance.clamp(min=0) / self.total).sqrt()


def _misses(samples: Samples) -> Tensor:
    return 1 - samples.top_label[1]


def _columns(samples: Samples, has_calib: bool) -> dict[Factors, Tensor]:
    """Return values (N,) by their function, or by two of a difference or a product."""
    nll, brier = scores(samples.logits, samples.labels)
    refined_nll, refined_brier = samples.refined
    correct = scoring.hits(samples)
    gaps, entropy = scoring.gaps(samples), entropies(samples)
    columns: dict[Factors, Tensor] = {
        (scoring.hits,): correct,
        (scoring.losses,): nll,
        (scoring.squared_distances,): brier,
        (scoring.gaps,): gaps,
        (scoring.losses, scoring.refined_losses): nll - refined_nll,
        (scoring.refined_losses,): refined_nll,
        (scoring.squared_distances, scoring.refined_squared_distances): brier - refined_brier,
        (scoring.refined_squared_distances,): refined_brier,
        (scoring.gaps, scoring.gaps): gaps.square(),
        (entropies, scoring.hits): entropy * correct,
        (entropies, _misses): entropy * (1 - correct),
    }
    if has_calib:
        columns[conformal.set_sizes,] = conformal.set_sizes(samples)
        columns[conformal.covered,] = conformal.covered(samples)
    return columns


def _each(drawn: Tensor, once: Tensor) -> Tensor:
    """Return sums of differences for each of ``SHARES``, from those of the draws and the split."""
    return torch.stack([drawn - (1 - share) * once for share in SHARES])


def in_bins(confidence: Tensor) -> Tensor:
    """Return the membership of samples in equal-width bins: (N,) to (N, ``BINS``) of 0 and 1."""
    edges = torch.linspace(0, 1, BINS + 1, dtype=confidence.dtype, device=confidence.device)
    numbers = torch.arange(BINS, device=confidence.device)
    place = torch.bucketize(confidence, edges) - 1
    return (place[:, None] == numbers).to(confidence.dtype)


def table_of(count: Tensor, over: Tensor) -> BinTable:
    """Build a table of which only counts and gaps are used."""
    gaps = over / count.clamp(min=1)
    return BinTable(count, gaps, torch.zeros_like(count), count, count)


def _grid(places: Tensor, values: Tensor) -> Tensor:
    """Build the matrix (GRID + 1, N) that sums values onto the grid of the smooth ECE."""
    below, share = neighbours(places)
    samples = torch.arange(len(places), device=places.device)
    index = torch.stack([torch.cat([below, below + 1]), samples.repeat(2)])
    parts = torch.cat([(1 - share) * values, share * values])
    size = GRID + 1, len(places)
    return torch.sparse_coo_tensor(index, parts, size, check_invariants=True).coalesce()


class Cells(NamedTuple):
    """Sums over the bins of p[:, k] for R draws; (R, C, B) with p = 0 in the lowest bin."""

    samples: Tensor  # (R, C, B), number of samples
    right: Tensor  # (R, C, B), number of samples of class k
    over: Tensor  # (R, C, B + 1), sum of p[k] - 1[y = k]; the first entry is that of p = 0


class ClassCells:
    """Equal-width bins of p[:, k] for every class, from probabilities (N, C) and labels (N,).

    Nearly all probabilities lie in the lowest bin. Its sums are the sums over all samples minus
    those of the other bins, so that a thousand classes cost little more than ten.
    """

    def __init__(self, probs: Tensor, labels: Tensor, bins: int) -> None:
        self._probs, self._labels, self._bins = probs, labels, bins
        edges = torch.linspace(0, 1, bins + 1, dtype=probs.dtype, device=probs.device)
        place = torch.bucketize(probs, edges)
        sample, label = (place != 1).nonzero(as_tuple=True)
        cell = label * (bins + 1) + place[sample, label]
        hit = (labels[sample] == label).to(probs.dtype)
        size = (probs.shape[-1] * (bins + 1), len(probs))
        self._matrices = []  # they sum the non-zero values of samples into cells
        for values in (torch.ones_like(hit), hit, probs[sample, label] - hit):
            is_nonzero = values != 0
            index = torch.stack([cell[is_nonzero], sample[is_nonzero]])
            matrix = torch.sparse_coo_tensor(index, values[is_nonzero], size, check_invariants=True)
            self._matrices.append(matrix.coalesce())

    def sums(self, weights: Tensor) -> Cells:
        """Return the bins of each draw for weights (R, N)."""
        sums = []
        for matrix in self._matrices:
            product = torch.sparse.mm(matrix, weights.T).T
            sums.append(product.reshape(len(weights), -1, self._bins + 1))
        count, right, over = sums
        of_class = weights.new_zeros(self._probs.shape[-1], len(weights))
        of_class = of_class.index_add(0, self._labels, weights.T).T
        over[..., 1] = weights @ self._probs - of_class - over.sum(-1)
        samples = _with_lowest(count, weights.sum(-1)[:, None])
        return Cells(samples, _with_lowest(right, of_class), over)


def with_zero(over: Tensor) -> Tensor:
    """Add the sums of p = 0 to the lowest bin: (..., B + 1) to (..., B)."""
    return torch.cat([over[..., :1] + over[..., 1:2], over[..., 2:]], -1)


def _with_lowest(sums: Tensor, total: Tensor) -> Tensor:
    above = sums[..., 2:]
    return torch.cat([(total - above.sum(-1))[..., None], above], -1)
