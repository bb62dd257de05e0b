"""Detection of foreign inputs on samples that were drawn again, many draws at once.

A draw is how often each sample counts (``bootstrap.draw``), of the test split and of the foreign
images apart. The scores are sorted once, ties found once; each draw is two sums up to every score,
from which follow what ``ood.auroc`` and ``ood.fpr95`` give of the drawn samples.
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
    """AUROC and FPR95 of ``ood.detection`` on each draw; average precision is not drawn.

    Args:
        inside: logits of the test split, (N, C), finite.
        outside: logits of foreign images, (M, C), finite.
        own: weights of the test split, (R, N): N in all.
        foreign: weights of the foreign images, (R, M): M in all.

    Returns:
        Name to (R,), float64.
    """
    probs = [logits.double().softmax(-1) for logits in (inside, outside)]
    found = {}
    for tail, score in (("", max_prob), ("_entropy", lambda each: -entropy(each))):
        curve = _Curve(*(score(each) for each in probs))
        weights = torch.cat([own, foreign], -1).to(inside.device)
        both = torch.cat([curve.areas(part) for part in some_at_a_time(weights)], -1)
        found[f"auroc{tail}"], found[f"fpr95{tail}"] = both
    return found


class _Curve:
    """The scores of two sets in one order.

    Args:
        positive: (N,), scores of the set that should score high.
        negative: (M,), those of the other.
    """

    def __init__(self, positive: Tensor, negative: Tensor) -> None:
        self._sizes = len(positive), len(negative)
        ranking = Ranking(torch.cat([positive, negative]))
        self._order = ranking.order
        self._is_own = (ranking.order < len(positive)).to(positive.dtype)
        # Behind the last of equal scores; before all of them too.
        ends = ranking.is_end.nonzero().flatten() + 1
        self._ends = torch.cat([ends.new_zeros(1), ends])

    def areas(self, weights: Tensor) -> Tensor:
        """AUROC and FPR95 of weights (R, N + M): (2, R)."""
        positives, negatives = self._sizes
        ordered = weights[:, self._order]
        below = cumulated(ordered * self._is_own)[:, self._ends]
        foreign = cumulated(ordered * (1 - self._is_own))[:, self._ends]
        # Of the foreign images at the same score half are below.
        area = below.diff(dim=-1) * (foreign[:, 1:] + foreign[:, :-1]) / 2
        accepted, wrong = (positives - below) / positives, (negatives - foreign) / negatives
        return torch.stack([area.sum(-1) / (positives * negatives), _at(accepted, wrong)])


def _at(accepted: Tensor, wrong: Tensor) -> Tensor:
    """The false positives (R,) where so many positives are accepted: both (R, K), falling to 0.

    As ``numpy.interp``, which ``ood.fpr95`` takes.
    """
    rates, values = accepted.flip(-1).contiguous(), wrong.flip(-1)
    wanted = torch.full_like(rates[:, :1], _ACCEPTED)
    after = torch.searchsorted(rates, wanted, right=True)
    (low, start), (high, end) = (
        (rates.gather(-1, place), values.gather(-1, place)) for place in (after - 1, after)
    )
    return (start + (wanted - low) * (end - start) / (high - low))[:, 0]
