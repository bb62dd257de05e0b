"""Convex mixtures of a batch with a permutation of it, for the methods that mix inputs."""

from collections.abc import Callable

import torch
from torch import Tensor

from tune_calib.errors import UserError

SMALLEST_GAP = 1e-4
"""Two mixtures whose shares differ by less cannot be told apart: the quotients blow up."""

# Ends a search for shares that a margin and a small alpha make all but impossible.
_ATTEMPTS = 100_000


def draw_beta(alpha: float, generator: torch.Generator) -> float:
    """Draw from Beta(alpha, alpha), as two gamma variables; 1 if alpha <= 0."""
    if alpha <= 0:
        return 1.0
    # By hand, because torch.distributions takes no generator, and no public function draws from a
    # gamma distribution (torch 2.12 to 2.15).
    shape = torch.full((2,), alpha, dtype=torch.float64)
    first, second = torch._standard_gamma(shape, generator=generator).tolist()
    if first == second:  # a tiny alpha underflows in both: the limit is a fair coin
        return float(torch.randint(2, (), generator=generator))
    return float(first / (first + second))


def draw_shares(draw: Callable[[], float], margin: float) -> tuple[float, float]:
    """Shares lam1 >= 1/2 >= lam2 of the first sample in two mixtures.

    Args:
        draw: gives one Beta variable a call; two are taken an attempt.
        margin: both are drawn again while they are closer than this (and than
            ``SMALLEST_GAP``, which only matters for a margin of 0).

    Raises:
        UserError: such shares hardly ever come.
    """
    for _ in range(_ATTEMPTS):
        first, second = draw(), draw()
        shares = max(first, 1 - first), min(second, 1 - second)
        if shares[0] - shares[1] >= max(margin, SMALLEST_GAP):
            return shares
    raise UserError(
        f"no two shares {margin} apart in {_ATTEMPTS} draws; choose a smaller margin or alpha"
    )


def mix(first: Tensor, second: Tensor, share: float) -> Tensor:
    """Return ``share`` of the first plus the rest of the second, of the same shape."""
    return share * first + (1 - share) * second


def unmix(mixed1: Tensor, mixed2: Tensor, share1: float, share2: float) -> tuple[Tensor, Tensor]:
    """Solve two mixtures for what was mixed: inverse of ``mix`` with share1 > share2.

    The same as ``(o1 - k o2) / (lam1 - k lam2)`` with ``k = (1 - lam1) / (1 - lam2)`` and its
    counterpart, without the quotients.
    """
    gap = share1 - share2
    first = ((1 - share2) * mixed1 - (1 - share1) * mixed2) / gap
    second = (share1 * mixed2 - share2 * mixed1) / gap
    return first, second


def permutation(samples: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw a random order of the batch, (samples,) int64."""
    return torch.randperm(samples, generator=generator).to(device)
