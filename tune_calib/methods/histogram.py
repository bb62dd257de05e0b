"""Histogram binning (Zadrozny and Elkan, ICML 2001), one versus rest.

The probability of each class is replaced by the share of the class among the samples of ``calib``
in the same bin, and the rows are normalised. An empty bin gets its centre. A bin includes its left
edge, and the last bin also its right edge. A row of zeros becomes uniform, and results below 1e-12
are raised to it.

With `top_versus_all` (Le Coz et al., NeurIPS 2024, arXiv:2411.02988), a single histogram of the
confidence replaces those of the classes: the confidence becomes the share of correct predictions in
its bin. The other classes share the rest in their original proportions, and the accuracy does not
change.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from tune_calib.methods._posthoc import Fit, FittedAlone, count_below, logarithm, with_confidence
from tune_calib.metrics.binning import top_label
from tune_calib.spec.methods import METHODS, Params, cited


class HistogramParams(Params):
    bins: int = Field(10, ge=1, le=1000)
    """Number of bins per class."""
    binning: Literal["equal_mass", "equal_width"] = "equal_mass"
    """How the bin edges of a class are chosen.

    - `equal_mass`: at quantiles of its probabilities on `calib`, as the authors do.
    - `equal_width`: in equal steps from 0 to 1.
    """
    top_versus_all: bool = Field(False, exclude_if=lambda is_set: not is_set)  # keeps old hashes
    """Whether only the confidence is replaced, by the share of correct predictions in its bin."""


class HistogramBinning(FittedAlone):
    """A step function per class."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        probs, has_one = logits.softmax(-1).T, self.params.top_versus_all
        if has_one:
            probs, hits = (part[None] for part in top_label(probs.T, labels))
        cuts = torch.linspace(0, 1, self.params.bins + 1, dtype=probs.dtype, device=probs.device)
        edges = cuts.expand(len(probs), -1)
        if self.params.binning == "equal_mass":
            # In NumPy: torch.quantile is limited to 16 million entries.
            quantiles = np.quantile(probs.cpu().numpy(), cuts.cpu().numpy(), axis=1)
            edges = torch.from_numpy(quantiles).to(probs.device).T
        inner = edges[:, 1:-1]
        places = count_below(inner, probs)
        empty, once = torch.zeros_like(edges[:, 1:]), torch.ones_like(probs[:1])
        counts = empty.scatter_add(1, places, once.expand_as(probs))
        if has_one:
            right = empty.scatter_add(1, places, hits)
        else:
            places_of_labels = places.gather(0, labels[None])[0]
            right = empty.index_put((labels, places_of_labels), once[0], accumulate=True)
        centres = (edges[:, 1:] + edges[:, :-1]) / 2
        return Fit({"edges": inner, "shares": torch.where(counts > 0, right / counts, centres)})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        if self.params.top_versus_all:
            confidence = logits.softmax(-1).amax(-1, keepdim=True)
            places = count_below(state["edges"], confidence.T)
            return with_confidence(logits, state["shares"].gather(1, places).T)
        places = count_below(state["edges"], logits.softmax(-1).T)
        return logarithm(state["shares"].gather(1, places).T)


METHODS.register(
    name="histogram",
    title="histogram binning, one versus rest",
    **cited(
        "Zadrozny and Elkan, ICML",
        "zadrozny2001obtaining",
        url="https://cseweb.ucsd.edu/~elkan/calibrated.pdf",
    ),
    formula=r"""
        q_k = \frac{h_k(p_k)}{\sum_j h_j(p_j)},
        \quad h_k(p) = \frac{\sum_{i \in B_k(p)} [y_i = k]}{|B_k(p)|},
        \quad B_k(p) = \{i \in \mathrm{calib} : p_{ik} \text{ in the bin of } p\}
    """,
    params=HistogramParams,
    implementation=HistogramBinning,
    keeps_accuracy=False,
)
