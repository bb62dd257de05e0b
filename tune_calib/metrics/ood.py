"""Detection of foreign inputs: AUROC, AUPR and FPR95, by scikit-learn's exact ranks.

Which is imported where it is used: it takes half a second, and every worker imports this module.
"""

from typing import Literal

import numpy as np
from torch import Tensor
from torch.special import entr


def detection(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """``names.OOD_METRICS`` of one classifier; images of its own data set are positive.

    Args:
        inside: logits of its test split, (N, C), finite.
        outside: logits of foreign images, (M, C), finite.

    Raises:
        ValueError: a logit is not finite, or a set is empty.
    """
    own, foreign = (logits.double().softmax(-1) for logits in (inside, outside))
    scores = {
        "": (max_prob(own), max_prob(foreign)),
        "_entropy": (-entropy(own), -entropy(foreign)),
    }
    found = {}
    for tail, (positive, negative) in scores.items():
        found[f"auroc{tail}"] = auroc(positive, negative)
        found[f"aupr_in{tail}"] = aupr(positive, negative)
        # The other way round: foreign images are what is looked for.
        found[f"aupr_out{tail}"] = aupr(-negative, -positive)
        found[f"fpr95{tail}"] = fpr95(positive, negative)
    return found


def max_prob(probs: Tensor) -> Tensor:
    """Score that is high on the set the network was trained on: (..., C) to (...)."""
    return probs.amax(-1)


def entropy(probs: Tensor) -> Tensor:
    """Score that is high on foreign inputs, in nats: (..., C) to (...)."""
    scores: Tensor = entr(probs).sum(-1)
    return scores


def auroc(positive: Tensor, negative: Tensor) -> float:
    """Probability that a positive scores above a negative, ties counted half.

    Args:
        positive: (N,), scores of the class that should score high; finite.
        negative: (M,), scores of the other; finite.

    Raises:
        ValueError: a score is not finite, or a class is empty.
    """
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(*_joined(positive, negative)))


def aupr(positive: Tensor, negative: Tensor) -> float:
    """Area under precision over recall, as average precision; it depends on N / M.

    Args:
        positive: (N,), scores of the class that should score high; finite.
        negative: (M,), scores of the other; finite.

    Raises:
        ValueError: a score is not finite, or a class is empty.
    """
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(*_joined(positive, negative)))


def fpr95(
    positive: Tensor, negative: Tensor, method: Literal["roc", "percentile"] = "roc"
) -> float:
    """Share of negatives accepted where 95 % of the positives are.

    Args:
        positive: (N,), scores of the class that should score high; finite.
        negative: (M,), scores of the other; finite.
        method: ``roc`` interpolates the ROC at a true-positive rate of .95; ``percentile``
            accepts at and above the 5th percentile of the positives.

    Raises:
        ValueError: a score is not finite, or a class is empty.
    """
    truth, scores = _joined(positive, negative)
    if method == "percentile":
        threshold = np.percentile(scores[truth == 1], 5)
        return float((scores[truth == 0] >= threshold).mean())
    from sklearn.metrics import roc_curve

    false_positive, true_positive, _ = roc_curve(truth, scores, drop_intermediate=False)
    return float(np.interp(0.95, true_positive, false_positive))


def _joined(
    positive: Tensor, negative: Tensor
) -> tuple[
    np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.float64]]
]:
    parts = [positive.detach().double().cpu().numpy(), negative.detach().double().cpu().numpy()]
    for name, part in zip(("positive", "negative"), parts, strict=True):
        if part.ndim != 1 or len(part) == 0 or not np.isfinite(part).all():
            raise ValueError(f"{name} must be a list of finite scores, got shape {part.shape}")
    truth = np.repeat([1, 0], [len(parts[0]), len(parts[1])])
    return truth, np.concatenate(parts)
