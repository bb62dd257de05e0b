"""Calibration and refinement parts of NLL and Brier score (Berta et al., arXiv 2501.19195).

The refinement part is the score after the best temperature, and the calibration part is the
reduction achieved by it. The temperature is cross-fitted: each fold is scored with the temperature
fitted on the other folds, so that no sample is used for both. The calibration part may therefore be
slightly below 0.

Logits are (..., N, C), finite, in float64 where a temperature is fitted. Labels are (N,) int64.
"""

import torch
from torch import Tensor

from tune_calib.metrics.binning import at_labels

FOLDS = 5
BOUNDS = (0.01, 100.0)
"""Temperatures among which the best one is searched first; it may lie outside."""

NEAR = 1.01  # a temperature within this factor of an end of the range counts as having reached it

# Root mean squares of logits, for which an end of ``BOUNDS`` is the best temperature where there is
# none. With other logits, the end is multiplied by as much.
_USUAL = (0.3, 30.0)
_FURTHEST = 1e9  # factor between the range and the furthest temperature that is found
_TOLERANCE = 1e-6  # of log T; the loss is flat there
_ROUGH = 0.05  # the same for a choice between epochs: the loss then differs by less than 1e-5
_FEW = 500  # samples that suffice for a first estimate
_STEPS = 60
_CHUNK = 2**17  # logits processed at once, so that they stay in the cache


def cross_fitted(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return NLL and Brier score of samples, (..., N), at the temperature of the other folds."""
    scale = torch.ones_like(logits[..., 0])
    start = inverse_temperature(logits, labels) if len(labels) > 1 else None
    for is_held_out in folds(labels):
        # Start at the temperature of all samples, which is close to that of a fold.
        inverse = inverse_temperature(logits, labels, ~is_held_out, start)
        scale[..., is_held_out] = inverse[..., None]
    return scores(logits, labels, scale)


def refined_nll(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean NLL in nats at the best temperature of the same samples, (...).

    Berta et al. select epochs by it. Unlike ``cross_fitted``, it is about 1 / N too low, which is
    much the same for all epochs, and it takes a tenth of the time.
    """
    single = logits.float()  # whose exponentials take a third of the time
    # Close to the temperature of some of the samples, one step with all of them suffices.
    some = slice(None, None, max(1, len(labels) // _FEW))
    start = None
    if some.step > 1:
        start = inverse_temperature(single[..., some, :], labels[some], tolerance=_ROUGH)
    inverse = inverse_temperature(single, labels, start=start, tolerance=_ROUGH).double()
    log_probs = (logits * inverse[..., None, None]).log_softmax(-1)
    return -at_labels(log_probs, labels).mean(-1)


def folds(labels: Tensor) -> list[Tensor]:
    """Return masks (N,) of the held-out samples of each fold, with an even part of each class."""
    # By position, not at random: the flag of a fit must not depend on a seed. Classes follow each
    # other in the order of their first samples, so that renumbering them changes nothing.
    places = torch.arange(len(labels), device=labels.device)
    classes = labels.unique(return_inverse=True)[1]
    starts = torch.full_like(places, len(labels)).scatter_reduce(0, classes, places, "amin")
    fold_of = torch.empty_like(places)
    fold_of[starts[classes].argsort(stable=True)] = places % FOLDS
    # A single sample leaves no others to fit.
    count = min(FOLDS, len(labels)) if len(labels) > 1 else 0
    return [fold_of == fold for fold in range(count)]


def scores(logits: Tensor, labels: Tensor, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return NLL and Brier score of each sample, (..., N), at scales (..., N) of the logits."""
    nll, brier = [], []
    for rows in parts_of(logits):
        part = logits[..., rows, :]
        if scale is not None:
            part = part * scale[..., rows, None]
        log_probs = part.log_softmax(-1)
        target_log_probs = at_labels(log_probs, labels[rows])
        nll.append(-target_log_probs)
        brier.append(log_probs.exp().square().sum(-1) - 2 * target_log_probs.exp() + 1)
    return torch.cat(nll, -1), torch.cat(brier, -1)


def has_best_temperature(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return whether a temperature minimises the NLL, (...), of samples with positive weights (N,).

    Otherwise it falls until T is infinite, where the true class has no higher logit than the mean,
    or until T is 0, where no class has a higher logit than the true one.
    """
    target_logits = at_labels(logits, labels)
    excess = target_logits - logits.mean(-1)
    if weights is not None:
        excess = excess * weights
    is_informative = excess.mean(-1) > 0
    return is_informative & ((logits.amax(-1) - target_logits).amax(-1) > 0)


def ends(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the lowest and the highest temperature to search beyond ``BOUNDS``, each (...)."""
    size = (logits - logits.mean(-1, keepdim=True)).square().mean((-1, -2)).sqrt()
    lowest = BOUNDS[0] * (size / _USUAL[0]).clamp(torch.finfo(size.dtype).tiny, 1)
    highest = BOUNDS[1] * (size / _USUAL[1]).clamp(1)
    further = torch.where(has_best_temperature(logits, labels, weights), _FURTHEST, 1)
    return lowest / further, highest * further


def inverse_temperature(
    logits: Tensor,
    labels: Tensor,
    is_used: Tensor | None = None,
    start: Tensor | None = None,
    weights: Tensor | None = None,
    tolerance: float = _TOLERANCE,
) -> Tensor:
    """Find the 1 / T that minimises the NLL, in ``BOUNDS`` and, if it is at their end, beyond.

    The result is (...), an end of the range where the NLL has no minimum. ``is_used`` (N,) masks
    the samples to use, all by default; ``start`` (...) is the initial value, 1 by default;
    ``weights`` (N,) are positive, equal by default; ``tolerance`` is that of the last step of
    log T.
    """
    ones = logits.new_ones(logits.shape[:-2])
    start = ones if start is None else start
    usual = (BOUNDS[0] * ones, BOUNDS[1] * ones)
    inverse = _searched(logits, labels, is_used, start, usual, weights, tolerance)
    is_at_end = (inverse * BOUNDS[0] > 1 / NEAR) | (inverse * BOUNDS[1] < NEAR)
    if bool(is_at_end.any()):
        rows = slice(None) if is_used is None else is_used
        row_weights = None if weights is None else weights[rows]
        limits = ends(logits[..., rows, :], labels[rows], row_weights)
        further = _searched(logits, labels, is_used, start, limits, weights, tolerance)
        inverse = torch.where(is_at_end, further, inverse)
    return inverse


def _searched(
    logits: Tensor,
    labels: Tensor,
    is_used: Tensor | None,
    start: Tensor,
    bounds: tuple[Tensor, Tensor],
    weights: Tensor | None,
    tolerance: float,
) -> Tensor:
    high, low = (-end.log() for end in bounds)
    at = start.log().clamp(low, high)
    is_found = torch.zeros_like(low, dtype=torch.bool)
    for _ in range(_STEPS):
        slope, curvature = derivatives(logits, labels, at.exp(), is_used, weights)
        # The NLL is convex in 1/T, so the sign of its slope tells the side of the minimum.
        low, high = torch.where(slope < 0, at, low), torch.where(slope < 0, high, at)
        step = slope / (at.exp() * curvature)
        newton = at - torch.where(step.isfinite(), step, torch.inf)
        is_inside = (newton > low) & (newton < high)
        new = torch.where(is_inside, newton, (low + high) / 2)
        is_near = (new - at).abs() < tolerance
        # Each classifier stops on its own, so that its result does not depend on the others.
        at = torch.where(is_found, at, new)
        is_found |= is_near
        if bool(is_found.all()):
            break
    return at.exp()


def derivatives(
    logits: Tensor,
    labels: Tensor,
    inverse: Tensor,
    is_used: Tensor | None = None,
    weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the first and second derivative of the mean NLL of the used samples w.r.t. 1/T."""
    slope, curvature = torch.zeros_like(inverse), torch.zeros_like(inverse)
    # Multiplied by the weights of its samples, the mean NLL has the same minimum.
    factors = None if weights is None else weights / weights.mean()
    for rows in parts_of(logits):
        used = slice(None) if is_used is None else is_used[rows]
        part = logits[..., rows, :][..., used, :]
        probs = (part * inverse[..., None, None]).softmax(-1)
        mean = (probs * part).sum(-1, keepdim=True)
        excess = mean - at_labels(part, labels[rows][used]).unsqueeze(-1)
        if factors is not None:
            factor = factors[rows, None][used]
            excess, probs = factor * excess, probs.mul_(factor)
        slope += excess.sum((-1, -2))
        curvature += (part - mean).square_().mul_(probs).sum((-1, -2))
    count = len(labels) if is_used is None else int(is_used.sum())
    return slope / count, curvature / count


def parts_of(logits: Tensor) -> list[slice]:
    """Return slices of rows to process at once, which limits memory with many classes."""
    samples, width = logits.shape[-2], max(1, _CHUNK // logits.shape[-1])
    return [slice(first, first + width) for first in range(0, samples, width)]
