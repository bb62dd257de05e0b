"""Weighted samples in the order of a score: sums up to any rank, equal scores shared out evenly.

Metrics of ranks are written once, for a split (each sample counts once) and for samples of it that
are drawn again (a sample counts as often as it was drawn). Samples of equal score have no order
among themselves: a rank that falls between them takes of each the same share, so that no metric
depends on the order of the samples.
"""

from functools import cached_property

import torch
from torch import Tensor

from tune_calib.metrics.binning import top_label
from tune_calib.metrics.validation import check


class Ranking:
    """The order of a score.

    Attributes:
        order: (..., N), positions of the samples by rising score.
        first: (..., N), rank of the first sample with the score of each rank.
        end: (..., N), one more than the rank of the last such sample.
        is_end: (..., N), whether the next rank has another score.

    Args:
        scores: (..., N).
    """

    def __init__(self, scores: Tensor) -> None:
        self.scores, self.order = scores.sort(dim=-1, stable=True)
        rises = self.scores[..., 1:] != self.scores[..., :-1]
        edge = torch.ones_like(self.scores[..., :1], dtype=torch.bool)
        self.is_end = torch.cat([rises, edge], -1)
        ranks = torch.arange(scores.shape[-1], device=scores.device)
        self.first = torch.where(torch.cat([edge, rises], -1), ranks, 0).cummax(-1).values
        ends = torch.where(self.is_end, ranks + 1, len(ranks))
        self.end = ends.flip(-1).cummin(-1).values.flip(-1)


class Ranked:
    """Samples by rising score, each as often as it counts.

    Either one score of many classifiers, or many weights of the samples of one classifier.

    Args:
        ranking: of the scores: (..., N), or (N,) with weights.
        hits: as the scores, in {0, 1}: what a calibrated score is the mean of.
        weights: (R, N), whole numbers of equal sums; each sample counts once unless given.
        shift: (S,), what is taken off every weight in S versions of the differences; 0 unless
            given, without an axis.
    """

    def __init__(
        self,
        ranking: Ranking,
        hits: Tensor,
        weights: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> None:
        self.ranking = ranking
        self._hits = hits.gather(-1, ranking.order)
        once = torch.ones_like(ranking.scores) if weights is None else weights[:, ranking.order]
        self._weights, self._shift = once, shift

    @property
    def samples(self) -> int:
        """N."""
        return self._weights.shape[-1]

    @cached_property
    def count(self) -> Tensor:
        """(..., N + 1), sum of the weights below each rank."""
        return cumulated(self._weights)

    @cached_property
    def after(self) -> Tensor:
        """(..., N), sum of the weights up to each rank, as it is searched."""
        return self.count[..., 1:].contiguous()

    @cached_property
    def right(self) -> Tensor:
        """(..., N + 1), sum of the hits below each rank."""
        return cumulated(self._weights * self._hits)

    @cached_property
    def over(self) -> Tensor:
        """([S,] ..., N + 1), sum of score minus hit below each rank: rises if over-confident."""
        weights = self._weights
        if self._shift is not None:
            weights = weights - self._shift[:, None, None]
        return cumulated(weights * (self.ranking.scores - self._hits))

    @cached_property
    def with_errors(self) -> Tensor:
        """Ranks of the last of equal scores, of those at least with which not all are hits."""
        # Of each classifier others, and one alone is summed as among them, to the last digit; of
        # thousands of weights the sums are long, and their order is alike.
        if self.ranking.order.ndim > 1 or self._weights.ndim == 1:
            return torch.arange(self.samples, device=self._hits.device)
        wrong = cumulated(1 - self._hits)
        is_wrong = wrong[self.ranking.end] > wrong[self.ranking.first]
        return (self.ranking.is_end & is_wrong).nonzero().flatten()

    def at(self, ranks: Tensor) -> "Cuts":
        """Return the positions, each in [0, N], of ranks (B,) among the samples that count."""
        edges = ranks.to(self.count.dtype).expand(*self.count.shape[:-1], -1).contiguous()
        place = torch.searchsorted(self.after, edges)
        first, end = pick(self.ranking.first, place), pick(self.ranking.end, place)
        below, above = pick(self.count, first), pick(self.count, end)
        return Cuts(first, end, (edges - below) / (above - below).clamp(min=1))


class Cuts:
    """Ranks at which samples are cut, and how much of the equal scores there lies below.

    Args:
        first: (..., B), rank of the first sample with the score at the cut.
        end: (..., B), one more than the last.
        share: (..., B), of these samples that lies below the cut.
    """

    def __init__(self, first: Tensor, end: Tensor, share: Tensor) -> None:
        self._first, self._end, self._share = first, end, share

    def between(self, cumulative: Tensor) -> Tensor:
        """Sums between neighbouring cuts: (..., N + 1) to (..., B - 1)."""
        low, high = pick(cumulative, self._first), pick(cumulative, self._end)
        return (low + self._share * (high - low)).diff(dim=-1)


def top_ranked(probs: Tensor, labels: Tensor) -> Ranked:
    """Check (..., N, C) and (N,), and rank samples by confidence; a hit is a right prediction."""
    check(probs, labels)
    # Sums over thousands of ranks in float32 would lose digits.
    confidence, correct = top_label(probs.double(), labels)
    return Ranked(Ranking(confidence), correct)


def cumulated(values: Tensor) -> Tensor:
    """Sums of what lies before: (..., N) to (..., N + 1)."""
    sums = values.new_zeros(*values.shape[:-1], values.shape[-1] + 1)
    torch.cumsum(values, -1, out=sums[..., 1:])
    return sums


def pick(table: Tensor, index: Tensor) -> Tensor:
    """Entries of the last axis; a table of fewer axes serves all."""
    if table.ndim == 1:
        return table[index]
    return table.gather(-1, index.expand(*table.shape[:-1], -1))
