"""Convex mixtures of a batch with its permutation, for methods that mix inputs."""

from collections.abc import Callable

import torch
from torch import Tensor

from tune_calib.errors import UserError

SMALLEST_GAP = 1e-4
"""Smallest difference of two shares: below it, the mixtures can hardly be solved numerically."""

# Limits the search where margin and alpha make suitable shares nearly impossible.
_ATTEMPTS = 100_000


def draw_beta(alpha: float, generator: torch.Generator) -> float:
    """Draw from Beta(alpha, alpha) by two gamma variables; return 1 if alpha <= 0."""
    if alpha <= 0:
        return 1.0
    # torch.distributions accepts no generator, and no public function draws from a gamma
    # distribution (torch 2.12 to 2.15).
    shape = torch.full((2,), alpha, dtype=torch.float64)
    first, second = torch._standard_gamma(shape, generator=generator).tolist()
    if first == second:  # with a tiny alpha, both underflow; the limit is a fair coin
        return float(torch.randint(2, (), generator=generator))
    return float(first / (first + second))


def draw_shares(draw: Callable[[], float], margin: float) -> tuple[float, float]:
    """Draw the shares lam1 >= 1/2 >= lam2 of the first sample in two mixtures.

    Args:
        draw: returns one Beta variable per call. Each attempt draws two.
        margin: smallest difference of the shares. Both are redrawn while they are closer than
            this, or than ``SMALLEST_GAP``, which matters for a margin near 0 only.

    Raises:
        UserError: no such shares were found.
    """
    for _ in range(_ATTEMPTS):
        first, second = draw(), draw()
        shares = max(first, 1 - first), min(second, 1 - second)
        if shares[0] - shares[1] >= max(margin, SMALLEST_GAP):
            return shares
    raise UserError(
        f"found no two shares {margin} apart in {_ATTEMPTS} draws; use a smaller margin or alpha"
    )


def mix(first: Tensor, second: Tensor, share: float) -> Tensor:
    """Return ``share * first + (1 - share) * second``."""
    return share * first + (1 - share) * second


def unmix(mixed1: Tensor, mixed2: Tensor, share1: float, share2: float) -> tuple[Tensor, Tensor]:
    """Solve two mixtures for their components, the inverse of ``mix`` with share1 > share2.

    This equals ``(o1 - k o2) / (lam1 - k lam2)`` with ``k = (1 - lam1) / (1 - lam2)`` and its
    counterpart, but avoids the quotients.
    """
    gap = share1 - share2
    first = ((1 - share2) * mixed1 - (1 - share1) * mixed2) / gap
    second = (share1 * mixed2 - share2 * mixed1) / gap
    return first, second
