"""One-versus-rest bins of every class, summed for many bootstrap draws."""

from typing import NamedTuple

import torch
from torch import Tensor


class Cells(NamedTuple):
    """Sums over the bins of p[:, k] for R draws of the samples.

    Attributes:
        samples: (R, C, B), number of samples. The lowest bin includes p = 0.
        right: (R, C, B), number of samples of class k. The lowest bin includes p = 0.
        over: (R, C, B + 1), sum of p[k] - 1[y = k]. The first entry is that of p = 0.
    """

    samples: Tensor
    right: Tensor
    over: Tensor


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
        self._count, self._right, self._over = (
            self._matrix(cell, sample, values)
            for values in (torch.ones_like(hit), hit, probs[sample, label] - hit)
        )

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

    def _matrix(self, cell: Tensor, sample: Tensor, values: Tensor) -> Tensor:
        """Build the sparse matrix that sums the non-zero values of samples into cells."""
        kept = values != 0
        size = (self._probs.shape[-1] * (self._bins + 1), len(self._probs))
        index = torch.stack([cell[kept], sample[kept]])
        matrix = torch.sparse_coo_tensor(index, values[kept], size, check_invariants=True)
        return matrix.coalesce()


def classwise_error(cells: Cells, over: Tensor) -> Tensor:
    """Return the classwise ECE of each draw, over the classes up to the largest drawn label.

    ``over`` is (..., R, C, B + 1), like ``cells.over``.
    """
    of_class = cells.right.sum(-1)
    numbers = torch.arange(of_class.shape[-1], device=over.device)
    largest = torch.where(of_class > 0, numbers, 0).amax(-1, keepdim=True)
    errors = over[..., 1:].abs().sum(-1) * (numbers <= largest)
    return errors.sum(-1) / (largest[:, 0] + 1) / cells.samples[:, 0].sum(-1)


def with_zero(over: Tensor) -> Tensor:
    """Add the sums of p = 0 to the lowest bin: (..., B + 1) to (..., B)."""
    return torch.cat([over[..., :1] + over[..., 1:2], over[..., 2:]], -1)


def _with_lowest(sums: Tensor, whole: Tensor) -> Tensor:
    above = sums[..., 2:]
    return torch.cat([(whole - above.sum(-1))[..., None], above], -1)
