"""Weighted samples sorted by a score, with sums up to any rank.

Rank-based metrics are written once, for a split (each sample counts once) and for its bootstrap
samples (each sample counts as often as it was drawn). Samples of equal score have no order among
themselves: a cut that falls between them takes the same share of each, or all of them, so that no
metric depends on the order of the samples.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor


class Ranking:
    """The order of scores (..., N), with attributes of the same shape."""

    def __init__(self, scores: Tensor) -> None:
        # The scores in increasing order, and the positions of their samples.
        self.scores, self.order = scores.sort(dim=-1, stable=True)
        rises = self.scores[..., 1:] != self.scores[..., :-1]
        edge = torch.ones_like(self.scores[..., :1], dtype=torch.bool)
        self.is_end = torch.cat([rises, edge], -1)  # whether the next rank has another score
        ranks = torch.arange(scores.shape[-1], device=scores.device)
        # The rank of the first sample with the score of each rank, and the rank after the last.
        self.first = torch.where(torch.cat([edge, rises], -1), ranks, 0).cummax(-1).values
        ends = torch.where(self.is_end, ranks + 1, len(ranks))
        self.end = ends.flip(-1).cummin(-1).values.flip(-1)


class Ranked:
    """Samples by increasing score, with weights.

    They are either the scores of many classifiers, or many weightings of the samples of one
    classifier.

    ``hits`` in {0, 1} have the shape of the scores, (..., N), or (N,) with weights (R, N), which
    are integers with equal row sums. The values of ``shift`` (S,) are subtracted from every weight
    and give S versions of the differences.
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
        self.samples = once.shape[-1]

    @cached_property
    def count(self) -> Tensor:
        """Return the sum of the weights below each rank, (..., N + 1)."""
        return cumulated(self._weights)

    @cached_property
    def after(self) -> Tensor:
        """Return the sum of the weights up to each rank, (..., N), contiguous for the search."""
        return self.count[..., 1:].contiguous()

    @cached_property
    def right(self) -> Tensor:
        """Return the sum of the hits below each rank, (..., N + 1)."""
        return cumulated(self._weights * self._hits)

    @cached_property
    def over(self) -> Tensor:
        """Return the sum of score minus hit below each rank, ([S,] ..., N + 1)."""
        weights = self._weights
        if self._shift is not None:
            weights = weights - self._shift[:, None, None]
        return cumulated(weights * (self.ranking.scores - self._hits))

    @cached_property
    def with_errors(self) -> Tensor:
        """Return ranks that include the last rank of each group of equal scores with an error."""
        # Classifiers differ in these ranks. All ranks are used then, so that one classifier alone
        # gives the same digits as among others. Many weightings share their ranks, and their sums
        # are long, so only the ranks that matter are used.
        if self.ranking.order.ndim > 1 or self._weights.ndim == 1:
            return torch.arange(self.samples, device=self._hits.device)
        wrong = cumulated(1 - self._hits)
        is_wrong = wrong[self.ranking.end] > wrong[self.ranking.first]
        return (self.ranking.is_end & is_wrong).nonzero().flatten()

    def between(self, ranks: Tensor, is_divided: bool = True) -> Callable[[Tensor], Tensor]:
        """Return a function from cumulative sums (..., N + 1) to sums between cuts (..., B - 1).

        The cuts are at ranks (B,), each in [0, N], among the weighted samples. Unless equal scores
        may be divided (``is_divided``), a cut among them moves behind the last of them.
        """
        edges = ranks.to(self.count.dtype).expand(*self.count.shape[:-1], -1).contiguous()
        place = torch.searchsorted(self.after, edges)
        first, end = pick(self.ranking.first, place), pick(self.ranking.end, place)
        below, above = pick(self.count, first), pick(self.count, end)
        share = (edges - below) / (above - below).clamp(min=1)  # of the equal scores at each cut
        if not is_divided:
            share = share.ceil()

        def sums(cumulative: Tensor) -> Tensor:
            low, high = pick(cumulative, first), pick(cumulative, end)
            return (low + share * (high - low)).diff(dim=-1)

        return sums


def cumulated(values: Tensor) -> Tensor:
    """Return cumulative sums that start at 0: (..., N) to (..., N + 1)."""
    sums = values.new_zeros(*values.shape[:-1], values.shape[-1] + 1)
    torch.cumsum(values, -1, out=sums[..., 1:])
    return sums


def pick(table: Tensor, index: Tensor) -> Tensor:
    """Return entries along the last axis; a one-dimensional table serves all leading axes."""
    if table.ndim == 1:
        return table[index]
    return table.gather(-1, index.expand(*table.shape[:-1], -1))
