"""Out-of-distribution detection: AUROC, AUPR and FPR95, computed exactly by scikit-learn.

Scores of positives (N,) should be higher than those of negatives (M,).

scikit-learn is imported inside the function because the import takes half a second and every worker
imports this module.
"""

import numpy as np
import torch
from torch import Tensor
from torch.special import entr

from tune_calib.metrics.ties import OUTPUTS, merged, settled


def detection(inside: Tensor, outside: Tensor) -> dict[str, float]:
    """Compute ``spec.metrics.OOD_METRICS`` from logits (N, C) and (M, C) of OOD images."""
    metrics: dict[str, float] = {}
    for tail, (positive, negative) in detection_scores(inside, outside).items():
        auroc, aupr, fpr95 = separation(positive, negative)
        # The other way round: OOD images are the positives.
        aupr_out = separation(-negative, -positive)[1]
        values = {"auroc": auroc, "aupr_in": aupr, "aupr_out": aupr_out, "fpr95": fpr95}
        metrics |= {f"{name}{tail}": value for name, value in values.items()}
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


def separation(positive: Tensor, negative: Tensor) -> tuple[float, float, float]:
    """Return AUROC (ties count as half), average precision and FPR95 of two sets of scores.

    The average precision depends on the share of positives. FPR95 is the false-positive rate at a
    true-positive rate of 95 %, on the ROC curve.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    scores = torch.cat([positive, negative]).detach().double().cpu().numpy()
    truth = np.repeat([1, 0], [len(positive), len(negative)])
    false_positive, true_positive, _ = roc_curve(truth, scores, drop_intermediate=False)
    fpr95 = float(np.interp(0.95, true_positive, false_positive))
    precision = float(average_precision_score(truth, scores))
    return float(roc_auc_score(truth, scores)), precision, fpr95
