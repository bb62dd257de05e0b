"""Out-of-distribution detection on bootstrap samples, many draws at once.

A draw holds the count of each sample (``bootstrap.draw``). The test split and the OOD images are
drawn separately. Scores are sorted and ties are found only once. For each draw, the cumulative
counts of both sets up to every score give the results of ``ood.auroc`` and ``ood.fpr95`` on the
drawn samples.
"""

import torch
from torch import Tensor

from tune_calib.metrics.bootstrap import some_at_a_time
from tune_calib.metrics.ood import entropy, max_prob
from tune_calib.metrics.ranked import Ranking, cumulated

_ACCEPTED = 0.95


def drawn_detection(
    inside: Tensor, outside: Tensor, own: Tensor, foreign: Tensor
) -> dict[str, Tensor]:
    """Compute AUROC and FPR95 of ``ood.detection`` on each draw, without average precision.

    Args:
        inside: logits of the test split, (N, C), finite.
        outside: logits of the OOD images, (M, C), finite.
        own: weights of the test split, (R, N); each row sums to N.
        foreign: weights of the OOD images, (R, M); each row sums to M.

    Returns:
        A tensor (R,), float64, for each name.
    """
    probs = [logits.double().softmax(-1) for logits in (inside, outside)]
    weights = torch.cat([own, foreign], -1).to(inside.device)
    found = {}
    for tail, score in (("", max_prob), ("_entropy", lambda each: -entropy(each))):
        positive, negative = (score(each) for each in probs)
        both = _areas(positive, negative, weights)
        found[f"auroc{tail}"], found[f"fpr95{tail}"] = both
    return found


def _areas(positive: Tensor, negative: Tensor, weights: Tensor) -> Tensor:
    """Return AUROC and FPR95, (2, R), of scores (N,) and (M,) on draws with weights (R, N + M)."""
    positives, negatives = len(positive), len(negative)
    ranking = Ranking(torch.cat([positive, negative]))
    is_own = (ranking.order < positives).to(positive.dtype)
    # The positions after each group of equal scores, and the start.
    ends = ranking.is_end.nonzero().flatten() + 1
    ends = torch.cat([ends.new_zeros(1), ends])
    found = []
    for part in some_at_a_time(weights):
        ordered = part[:, ranking.order]
        below = cumulated(ordered * is_own)[:, ends]
        foreign = cumulated(ordered * (1 - is_own))[:, ends]
        # Half of the OOD images with the same score count as below.
        area = below.diff(dim=-1) * (foreign[:, 1:] + foreign[:, :-1]) / 2
        accepted, wrong = (positives - below) / positives, (negatives - foreign) / negatives
        found.append(torch.stack([area.sum(-1) / (positives * negatives), _at(accepted, wrong)]))
    return torch.cat(found, -1)


def _at(accepted: Tensor, wrong: Tensor) -> Tensor:
    """Return the false-positive rate (R,) at a true-positive rate of 95 %.

    Both rates are (R, K) and fall to 0. The interpolation is that of ``numpy.interp``, which
    ``ood.fpr95`` uses.
    """
    rates, values = accepted.flip(-1).contiguous(), wrong.flip(-1)
    wanted = torch.full_like(rates[:, :1], _ACCEPTED)
    after = torch.searchsorted(rates, wanted, right=True)
    (low, start), (high, end) = (
        (rates.gather(-1, place), values.gather(-1, place)) for place in (after - 1, after)
    )
    return (start + (wanted - low) * (end - start) / (high - low))[:, 0]
