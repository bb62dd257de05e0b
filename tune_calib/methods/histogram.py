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

from tune_calib.methods._posthoc import CurveMap, Fit, TopVersusAllParams, count_below
from tune_calib.spec.methods import METHODS, cited


class HistogramParams(TopVersusAllParams):
    bins: int = Field(10, ge=1, le=1000)
    """Number of bins per class."""
    binning: Literal["equal_mass", "equal_width"] = "equal_mass"
    """How the bin edges of a class are chosen.

    - `equal_mass`: at quantiles of its probabilities on `calib`, as the authors do.
    - `equal_width`: in equal steps from 0 to 1.
    """


class HistogramBinning(CurveMap):
    """A step function per class."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        probs, hits = self.events(logits, labels)
        cuts = torch.linspace(0, 1, self.params.bins + 1, dtype=probs.dtype, device=probs.device)
        edges = cuts.expand(len(probs), -1)
        if self.params.binning == "equal_mass":
            # In NumPy: torch.quantile is limited to 16 million entries.
            quantiles = np.quantile(probs.cpu().numpy(), cuts.cpu().numpy(), axis=1)
            edges = torch.from_numpy(quantiles).to(probs.device).T
        inner = edges[:, 1:-1]
        places = count_below(inner, probs)
        empty = torch.zeros_like(edges[:, 1:])
        counts = empty.scatter_add(1, places, torch.ones_like(probs))
        right = empty.scatter_add(1, places, hits)
        centres = (edges[:, 1:] + edges[:, :-1]) / 2
        return Fit({"edges": inner, "shares": torch.where(counts > 0, right / counts, centres)})

    def values(self, probs: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        return state["shares"].gather(1, count_below(state["edges"], probs))


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
