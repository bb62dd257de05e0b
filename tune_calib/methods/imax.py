"""I-Max binning (Patel et al., ICLR 2021): bins that keep the most information about the labels.

The log-odds of each class against the rest are sorted into bins, and each bin gets the share of
its members that are the true class. The edges maximise a bound of the mutual information of bin and
label: in turns, each edge is where two neighbouring bins fit a sample equally well, and each bin is
represented by the log-odds of the mean probability of its members (200 rounds). The rows of the
result are normalised, a row of zeros becomes uniform, and results below 1e-12 are raised to it. An
empty bin gets the share of all samples.

Differences from the authors' program: it starts from random members, here from bins of equal mass;
its rows are not normalised; and a bin whose members are all right has a probability of 2e-16 there,
of 1 here.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from tune_calib.methods._posthoc import (
    SMALLEST,
    Fit,
    FittedAlone,
    count_below,
    logarithm,
    with_confidence,
)
from tune_calib.spec.methods import METHODS, Params, cited

_ROUNDS = 200


class ImaxParams(Params):
    bins: int = Field(15, ge=2, le=1000)
    """Number of bins."""
    classes: Literal["shared", "each", "top"] = "shared"
    """Which log-odds share the bins.

    - `shared`: those of all classes together.
    - `each`: those of each class, which has bins of its own.
    - `top`: those of the predicted class only, against whether it is right; the other classes share
      the rest in their original proportions, and the accuracy does not change.
    """
    edges: Literal["imax", "equal_mass"] = "imax"
    """How the edges are chosen.

    - `imax`: by the bound of the mutual information.
    - `equal_mass`: at quantiles, for comparison.
    """


class ImaxBinning(FittedAlone):
    """Step functions of the log-odds."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        values, hits = self.events(logits, labels)
        order = values.argsort(-1)
        values, hits = values.gather(-1, order), hits.gather(-1, order)
        ranks = torch.arange(1, self.params.bins, device=values.device) / self.params.bins
        places = (ranks * (values.shape[-1] - 1)).floor().long()
        edges = values[:, places]
        if self.params.edges == "imax":
            means = bin_means(values, running_sums(values.sigmoid()), edges)
            edges, _ = imax_edges(values, means.clamp(SMALLEST, 1 - SMALLEST).logit())
        return Fit({"edges": edges, "shares": bin_means(values, running_sums(hits), edges)})

    def events(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-odds and outcomes, each (K, M), for K sets of bins."""
        values = log_odds(logits)
        hits = F.one_hot(labels, logits.shape[-1]).to(values)
        if self.params.classes == "top":
            first = logits.argmax(-1, keepdim=True)
            return values.gather(-1, first).T, hits.gather(-1, first).T
        if self.params.classes == "each":
            return values.T.contiguous(), hits.T.contiguous()
        return values.reshape(1, -1), hits.reshape(1, -1)

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        values = log_odds(logits)
        if self.params.classes == "top":
            first = values.gather(-1, logits.argmax(-1, keepdim=True))
            return with_confidence(logits, _binned(first.T, state).T)
        if self.params.classes == "each":
            return logarithm(_binned(values.T, state).T)
        return logarithm(_binned(values.reshape(1, -1), state).reshape(values.shape))


def log_odds(logits: Tensor) -> Tensor:
    """Return log(p / (1 - p)) of each class, (N, C), without cancellation near p = 1."""
    log_probs = logits.log_softmax(-1)
    first = log_probs.argmax(-1, keepdim=True)
    others = log_probs.scatter(-1, first, -torch.inf)
    # Equal to ``logsumexp``, whose counterpart in onnxruntime underflows.
    largest = others.amax(-1, keepdim=True)
    rest = (others - largest).exp().sum(-1, keepdim=True).log() + largest
    return log_probs - (-log_probs.exp()).log1p().scatter(-1, first, rest)


def imax_edges(values: Tensor, representations: Tensor) -> tuple[Tensor, Tensor]:
    """Return the edges (K, B - 1) of bins, and the representations (K, B) after the last round.

    Values (K, M) are sorted log-odds, and the first representations (K, B) sorted log-odds too.
    """
    sums = running_sums(values.sigmoid())
    for _ in range(_ROUNDS):
        rising, falling = F.softplus(representations), F.softplus(-representations)
        edges = rising.diff(dim=-1).abs().log() - falling.diff(dim=-1).abs().log()
        # Between equal representations, an edge is where they are.
        edges = torch.where(edges.isfinite(), edges, representations[:, 1:]).sort(-1).values
        means = bin_means(values, sums, edges).clamp(SMALLEST, 1 - SMALLEST)
        representations = means.logit()
    return edges, representations


def running_sums(targets: Tensor) -> Tensor:
    """Return the sums (K, M + 1) of the first 0 to M targets (K, M)."""
    return F.pad(targets.cumsum(-1), (1, 0))


def bin_means(values: Tensor, sums: Tensor, edges: Tensor) -> Tensor:
    """Return the means (K, B) by the bin of sorted values (K, M) of targets; empty: of all.

    ``sums`` are the running sums of the targets.
    """
    starts = torch.searchsorted(values.contiguous(), edges.contiguous())
    ends = F.pad(starts, (0, 1), value=values.shape[-1])
    counts = ends.diff(dim=-1, prepend=torch.zeros_like(ends[:, :1]))
    totals = sums.gather(-1, ends).diff(dim=-1, prepend=torch.zeros_like(sums[:, :1]))
    return torch.where(counts > 0, totals / counts, sums[:, -1:] / values.shape[-1])


def _binned(values: Tensor, state: Mapping[str, Tensor]) -> Tensor:
    return state["shares"].gather(-1, count_below(state["edges"], values))


METHODS.register(
    name="imax",
    title="binning by mutual information",
    **cited("Patel et al., ICLR", "patel2021multiclass"),
    formula=r"""
        q_k = \frac{s_{B(l_k)}}{\sum_j s_{B(l_j)}}, \quad l_k = \log \frac{p_k}{1 - p_k},
        \quad s_b = \frac{1}{|b|} \sum_{(i, k) \in b} [y_i = k],
        \quad g_b = \log \frac{|a_{b + 1} - a_b|}{|d_{b + 1} - d_b|},
        \quad a_b = \ln(1 + e^{r_b}), \quad d_b = \ln(1 + e^{-r_b}),
        \quad \sigma(r_b) = \frac{1}{|b|} \sum_{(i, k) \in b} p_{ik}
    """,
    params=ImaxParams,
    implementation=ImaxBinning,
    keeps_accuracy=False,
)
