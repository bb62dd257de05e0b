"""Metrics of one classifier on bootstrap samples, many draws at once.

A draw is a count for each sample, so that sums over the drawn samples are products with these
weights. Every metric equals the result of ``summary.evaluate`` on the drawn samples, except that
two quantities are fixed: the temperatures of the folds, near which the loss is flat, and the
threshold of the conformal sets, which comes from other samples.

Distances (``DISTANCES``) are computed for each of ``SHARES``. The differences of confidence and
correctness are those of the drawn samples, minus those of the split, plus a share of the latter. So
share 0 is the contribution of chance to a distance, and share 1 is the plain draw.
``classwise_debiased`` is computed for ``FINE_SHARES``, since its bins have few samples.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from tune_calib.metrics import conformal
from tune_calib.metrics.binning import BinTable, top_label
from tune_calib.metrics.calibration import errors_of
from tune_calib.metrics.equal_mass import debiased, debiased_ece, ks_error, sweep_ece
from tune_calib.metrics.ood import entropy
from tune_calib.metrics.ranked import Ranked, Ranking, pick
from tune_calib.metrics.refinement import cross_fitted, scores
from tune_calib.metrics.selective import aurc, e_aurc, error_auroc
from tune_calib.metrics.smooth import GRID, neighbours, smooth_ece
from tune_calib.metrics.ties import BINS, settled
from tune_calib.metrics.validation import check

DISTANCES = (
    "ece", "mce", "ace", "rmsce", "o_ece", "u_ece", "aece", "cece", "debiased_ece", "sweep_ece",
    "ks_error", "smooth_ece", "classwise_debiased",
)  # fmt: skip
"""Metrics that chance can only increase, even for a perfectly calibrated classifier."""

SHARES = (0.0, 1.0, 2.0)
AS_DRAWN = SHARES.index(1.0)

FINE_SHARES = (*SHARES, 0.25, 0.5, 0.75)
"""More shares, after those of ``SHARES``. A debiased distance is flat near share 0, then rises."""


def shares_of(name: str) -> tuple[float, ...]:
    """Return the shares for which a distance is computed."""
    return FINE_SHARES if name == "classwise_debiased" else SHARES


class Resampled:
    """One classifier, prepared for any number of draws; raises ValueError for invalid inputs.

    Logits are (N, C), float64, finite; labels (N,), int64. Without ``limit``, the threshold of the
    conformal sets, the conformal metrics are left out. ``dtype`` is that of ``ties.settled``.
    """

    def __init__(
        self,
        logits: Tensor,
        labels: Tensor,
        limit: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        probs, confidence_for_ranks, _ = settled(logits, dtype)
        check(probs, labels)
        self._samples = len(labels)
        confidence, self._correct = top_label(probs, labels)
        self._over = confidence - self._correct
        self._ranking = Ranking(confidence_for_ranks)
        self._statistics = self._per_sample(logits, probs, labels, limit)
        self._in_bin = in_bins(confidence)
        self._grid = _grid(confidence, self._over)
        self._cells = ClassCells(probs, labels, BINS)
        once = torch.ones_like(confidence)[None]
        self._over_once = [sums(once) for sums in (self._bin_over, self._grid_over)]
        self._cells_once = self._cells.sums(once)

    def metrics(self, weights: Tensor) -> dict[str, Tensor]:
        """Compute every metric on draws (R, N) float64, whose rows sum to N.

        Returns:
            A tensor for each metric: (R,), or (S, R) for ``DISTANCES``, with the S shares of
            ``shares_of``. NaN where a metric is not defined.
        """
        ranked = self._ranked(weights)
        area = aurc(ranked)
        count, over = weights @ self._in_bin, _each(self._bin_over(weights), self._over_once[0])
        return {
            **self._means(weights),
            **errors_of(table_of(count, over), self._samples),
            **self._classwise(weights),
            "aece": self._adaptive(ranked),
            "debiased_ece": debiased_ece(ranked, BINS),
            "sweep_ece": sweep_ece(ranked),
            "ks_error": ks_error(ranked),
            "smooth_ece": smooth_ece(_each(self._grid_over(weights), self._over_once[1])),
            "aurc": area,
            "e_aurc": e_aurc(ranked, area),
            "error_auroc": error_auroc(ranked),
        }

    def plug_in(self) -> dict[str, Tensor]:
        """Return the biased plug-in values of the split's own debiased distances."""
        once = torch.ones_like(self._correct)[None]
        ranked = self._ranked(once)
        # This includes bins of one sample, whose error cannot be debiased.
        errors = self._gaps_once * with_zero(self._cells_once.over) / self._samples
        return {
            "debiased_ece": debiased_ece(ranked, BINS, is_plain=True)[AS_DRAWN, 0],
            "classwise_debiased": errors.sum(-1).mean(-1).sqrt()[0],
        }

    @property
    def _gaps_once(self) -> Tensor:
        """Return the mean differences of the split in the bins of each class, (1, C, B)."""
        cells = self._cells_once
        return with_zero(cells.over) / cells.samples.clamp(min=1)

    def _ranked(self, weights: Tensor) -> Ranked:
        return Ranked(self._ranking, self._correct, weights, 1 - weights.new_tensor(SHARES))

    def _per_sample(
        self, logits: Tensor, probs: Tensor, labels: Tensor, limit: Tensor | None
    ) -> dict[str, Tensor]:
        """Return the per-sample values whose means are metrics, each (N,)."""
        (nll, brier), left = scores(logits, labels), cross_fitted(logits, labels)
        entropies = entropy(probs)
        found = {
            "accuracy": self._correct,
            "nll": nll,
            "brier": brier,
            "confidence_gap": self._over,
            "nll_calibration": nll - left[0],
            "nll_refinement": left[0],
            "brier_calibration": brier - left[1],
            "brier_refinement": left[1],
            "squares": self._over.square(),
            "entropy_right": entropies * self._correct,
            "entropy_wrong": entropies * (1 - self._correct),
        }
        if limit is not None:
            found["conformal_size"] = conformal.set_sizes(probs, limit)
            found["conformal_coverage"] = conformal.covered(probs, labels, limit)
        return found

    def _means(self, weights: Tensor) -> dict[str, Tensor]:
        table = weights @ torch.stack(list(self._statistics.values()), -1) / self._samples
        found = dict(zip(self._statistics, table.unbind(-1), strict=True))
        variance = found.pop("squares") - found["confidence_gap"].square()
        found["confidence_gap_se"] = (variance.clamp(min=0) / self._samples).sqrt()
        found["entropy_right"] = found["entropy_right"] / found["accuracy"]
        found["entropy_wrong"] = found["entropy_wrong"] / (1 - found["accuracy"])
        return found

    def _bin_over(self, weights: Tensor) -> Tensor:
        return weights @ (self._in_bin * self._over[:, None])

    def _grid_over(self, weights: Tensor) -> Tensor:
        sums: Tensor = torch.sparse.mm(self._grid, weights.T)
        return sums.T / self._samples

    def _classwise(self, weights: Tensor) -> dict[str, Tensor]:
        cells = self._cells.sums(weights)
        over = _each(cells.over, self._cells_once.over)  # (S, R, C, B + 1)
        # Subtract the mean difference of the bin for each drawn sample. Subtracting the sums of the
        # split would turn the varying size of a bin into an error.
        own, usual = with_zero(cells.over), cells.samples * self._gaps_once
        squares = torch.stack(
            [
                debiased(cells.samples, cells.right, own - (1 - share) * usual)
                for share in shares_of("classwise_debiased")
            ]
        )
        return {
            "cece": over[..., 1:].abs().sum(-1).mean(-1) / self._samples,
            "classwise_debiased": squares.mean(-1).sqrt(),
        }

    def _adaptive(self, ranked: Ranked) -> Tensor:
        """Compute the adaptive ECE, whose edges interpolate the drawn confidences."""
        ordered, total = self._ranking.scores, self._samples
        position = torch.linspace(0, total, BINS + 1, dtype=torch.float64, device=ordered.device)
        below = position.floor().clamp(max=total - 1)
        above = (below + 1).clamp(max=total - 1)
        low, high = (self._drawn(ranked, places) for places in (below, above))
        edges = low + (high - low) * (position - below).clamp(0, 1)
        cut = torch.searchsorted(ordered, edges, right=True)
        over = pick(ranked.over, cut).diff(dim=-1)
        return over.abs().sum(-1) / total

    def _drawn(self, ranked: Ranked, places: Tensor) -> Tensor:
        """Return the drawn confidences (R, B) at zero-based ranks (B,)."""
        wanted = places.expand(len(ranked.after), -1).contiguous()
        return self._ranking.scores[torch.searchsorted(ranked.after, wanted, right=True)]


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
        matrices = []  # they sum the non-zero values of samples into cells
        for values in (torch.ones_like(hit), hit, probs[sample, label] - hit):
            kept = values != 0
            index = torch.stack([cell[kept], sample[kept]])
            matrix = torch.sparse_coo_tensor(index, values[kept], size, check_invariants=True)
            matrices.append(matrix.coalesce())
        self._count, self._right, self._over = matrices

    def sums(self, weights: Tensor) -> Cells:
        """Return the bins of each draw for weights (R, N)."""
        count, right, over = (
            torch.sparse.mm(matrix, weights.T).T.reshape(len(weights), -1, self._bins + 1)
            for matrix in (self._count, self._right, self._over)
        )
        of_class = weights.new_zeros(self._probs.shape[-1], len(weights))
        of_class = of_class.index_add(0, self._labels, weights.T).T
        over[..., 1] = weights @ self._probs - of_class - over.sum(-1)
        return Cells(
            _with_lowest(count, weights.sum(-1)[:, None]), _with_lowest(right, of_class), over
        )


def with_zero(over: Tensor) -> Tensor:
    """Add the sums of p = 0 to the lowest bin: (..., B + 1) to (..., B)."""
    return torch.cat([over[..., :1] + over[..., 1:2], over[..., 2:]], -1)


def _with_lowest(sums: Tensor, whole: Tensor) -> Tensor:
    above = sums[..., 2:]
    return torch.cat([(whole - above.sum(-1))[..., None], above], -1)
