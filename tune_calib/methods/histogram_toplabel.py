"""Top-label histogram binning (Gupta and Ramdas, ICLR 2022, Algorithm 8), one histogram per class.

The samples of ``calib`` with the same predicted class are sorted by their confidence and divided
into bins of at least ``points_per_bin`` samples, the first of which have one more. The confidence
is replaced by the share of correct predictions in its bin, which includes its upper edge. A class
with fewer predictions than a bin needs keeps its confidence.

Differences from the authors' program: it breaks ties at an edge at random, here they share the
lower bin; it defines the confidence only, here the other classes share the rest in their original
proportions; a share below the probability of the second class is raised to just above it, by a
millionth, so that the accuracy does not change; and shares are clipped to [1e-12, 1 - 1e-12].
"""

from collections.abc import Mapping

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from tune_calib.methods._posthoc import Fit, FittedAlone, with_confidence
from tune_calib.metrics.binning import top_label
from tune_calib.spec.methods import METHODS, Params, cited


class ToplabelParams(Params):
    points_per_bin: int = Field(50, ge=1)
    """Smallest number of samples of `calib` in a bin."""


class ToplabelHistogram(FittedAlone):
    """A step function of the confidence per predicted class."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        classes = logits.shape[-1]
        confidence, correct = (part.cpu().numpy() for part in top_label(logits.softmax(-1), labels))
        predicted = logits.argmax(-1).cpu().numpy()
        counts = np.bincount(predicted, minlength=classes) // self.params.points_per_bin
        edges = np.full((classes, max(1, counts.max())), np.inf)
        shares = np.zeros(edges.shape)
        for label in np.flatnonzero(counts):
            values, hits = confidence[predicted == label], correct[predicted == label]
            groups = np.array_split(np.sort(values), counts[label])
            inner = np.unique([group[-1] for group in groups[:-1]])
            edges[label, : len(inner)] = inner
            places = inner.searchsorted(values)
            samples = np.bincount(places, minlength=edges.shape[1])
            shares[label] = np.bincount(places, hits, edges.shape[1]) / np.maximum(samples, 1)
        arrays = {"edges": edges, "shares": shares, "has_bins": counts > 0}
        state = {name: torch.from_numpy(arrays[name]).to(logits.device) for name in arrays}
        return Fit(state, {"binned_classes": float((counts > 0).sum())})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        confidence, predicted = logits.softmax(-1).max(-1, keepdim=True)
        places = (state["edges"][predicted[:, 0]] < confidence).sum(-1, keepdim=True)
        shares = state["shares"][predicted[:, 0]].gather(-1, places)
        calibrated = torch.where(state["has_bins"][predicted], shares, confidence)
        return with_confidence(logits, calibrated)


METHODS.register(
    name="histogram_toplabel",
    title="top-label histogram binning",
    **cited("Gupta and Ramdas, ICLR", "gupta2022toplabel"),
    formula=r"""
        q_{\hat y} = \frac{\sum_{i \in B} [y_i = \hat y]}{|B|},
        \quad B = \{i \in \mathrm{calib} : \hat y_i = \hat y, \;
            \max_k p_{ik} \text{ in the bin of } \max_k p_k\},
        \quad q_k = \frac{1 - q_{\hat y}}{1 - p_{\hat y}} p_k \text{ for } k \neq \hat y
    """,
    params=ToplabelParams,
    implementation=ToplabelHistogram,
    keeps_accuracy=True,
)
