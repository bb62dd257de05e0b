"""Out-of-distribution detection: AUROC, AUPR and FPR95, computed exactly by scikit-learn.

Scores of positives (N,) should be higher than those of negatives (M,).

scikit-learn is imported inside the functions because the import takes half a second and every
worker imports this module.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.special import entr

from tune_calib.metrics.ties import OUTPUTS, merged, settled


def detection(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """Compute ``spec.metrics.OOD_METRICS`` from logits (N, C) and (M, C) of OOD images."""
    metrics = {}
    for tail, (positive, negative) in detection_scores(inside, outside).items():
        metrics[f"auroc{tail}"] = auroc(positive, negative)
        metrics[f"aupr_in{tail}"] = aupr(positive, negative)
        # The other way round: OOD images are the positives.
        metrics[f"aupr_out{tail}"] = aupr(-negative, -positive)
        metrics[f"fpr95{tail}"] = fpr95(positive, negative)
    return metrics


def detection_scores(inside: Tensor, outside: Tensor) -> dict[str, tuple[Tensor, ...]]:
    """Return the scores of both sets of images by the suffix of their metrics.

    Scores that differ by rounding alone are equal, also between the sets.
    """
    probs, confidence, error = settled(torch.cat([inside, outside]).double(), OUTPUTS)
    entropies = entropy(probs)
    # A change of the logits by e changes the entropy H by at most e sum of p |log p + H|, which is
    # far less than e where all classes are equally probable.
    slopes = (entr(probs) - probs * entropies[:, None]).abs().sum(-1)
    entropies = entropies[merged(entropies, slopes * error)]
    sizes = [len(inside), len(outside)]
    return {"": confidence.split(sizes), "_entropy": (-entropies).split(sizes)}


def entropy(probs: Tensor) -> Tensor:
    """Return the entropy in nats, a score that is high on OOD inputs: (..., C) to (...)."""
    scores: Tensor = entr(probs).sum(-1)
    return scores


def auroc(positive: Tensor, negative: Tensor) -> float:
    """Return the probability that a positive scores above a negative, with ties counted as half."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(*_joined(positive, negative)))


def aupr(positive: Tensor, negative: Tensor) -> float:
    """Return the average precision, which depends on the share of positives."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(*_joined(positive, negative)))


def fpr95(positive: Tensor, negative: Tensor) -> float:
    """Return the false-positive rate at a true-positive rate of 95 %, on the ROC curve."""
    from sklearn.metrics import roc_curve

    truth, scores = _joined(positive, negative)
    false_positive, true_positive, _ = roc_curve(truth, scores, drop_intermediate=False)
    return float(np.interp(0.95, true_positive, false_positive))


def _joined(positive: Tensor, negative: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    parts = [positive.detach().double().cpu().numpy(), negative.detach().double().cpu().numpy()]
    truth = np.repeat([1, 0], [len(parts[0]), len(parts[1])])
    return truth, np.concatenate(parts)
