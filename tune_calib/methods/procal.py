"""Proximity-informed calibration, ProCal (Xiong et al., NeurIPS 2023), by isotonic regression.

The proximity of a sample is exp(-d), where d is the mean distance of its features, scaled to unit
length, to the nearest neighbours. Quantiles of d divide the samples of `calib` into groups of equal
size. In each group, an increasing curve maps the confidence to the share of correct predictions,
clipped to 1e-12. The other classes share the rest in their original proportions, and the accuracy
does not change.

This is the authors' bin-mean-shift; their ratio of densities is left out. Ten neighbours and five
groups are those of their program. The neighbours are the other samples of `calib`, so that an
estimator or an export needs no training data.
"""

from collections.abc import Mapping

from pydantic import Field
from torch import Tensor

from tune_calib.methods._posthoc import (
    Fit,
    FittedAlone,
    count_below,
    interpolate,
    isotonic_curves,
    stacked,
    with_confidence,
)
from tune_calib.methods.dac import nearest, unit
from tune_calib.metrics.binning import top_label
from tune_calib.spec.methods import METHODS, Params, cited


class ProcalParams(Params):
    neighbours: int = Field(10, ge=1)
    """Number of neighbours whose distances are averaged; at most all other samples of `calib`."""
    groups: int = Field(5, ge=1)
    """Groups of equal size by proximity; fewer where distances are equal."""


class ProximityInformedCalibration(FittedAlone):
    """A curve of the confidence for each group of samples by proximity."""

    reads_features = True

    def fit_one(self, logits: Tensor, labels: Tensor, *inputs: Tensor) -> Fit:
        (features,) = inputs
        neighbours = unit(features)
        distances = self.distances(features, neighbours)
        places = [len(labels) * group // self.params.groups for group in range(self.params.groups)]
        edges = distances.sort().values[places].unique()[1:]
        groups = count_below(edges[None], distances[None])[0]
        confidence, hits = top_label(logits.softmax(-1), labels)
        curves = []
        for group in range(len(edges) + 1):
            is_in = groups == group
            curves.append(isotonic_curves(confidence[None, is_in], hits[None, is_in])[0])
        return Fit({"neighbours": neighbours, "edges": edges, "knots": stacked(curves)})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor], *inputs: Tensor) -> Tensor:
        (features,) = inputs
        distances = self.distances(features, state["neighbours"])
        groups = count_below(state["edges"][None], distances[None])
        confidence = logits.softmax(-1).amax(-1)
        values = interpolate(confidence.expand(len(state["knots"]), -1), state["knots"])
        return with_confidence(logits, values.gather(0, groups).T)

    def distances(self, features: Tensor, neighbours: Tensor) -> Tensor:
        """Return the mean distances (N,) of features (N, D) to their nearest neighbours."""
        distances = nearest(unit(features), neighbours, self.params.neighbours)
        return distances.sum(-1) / (distances > 0).sum(-1).clamp_min(1)


METHODS.register(
    name="procal",
    title="isotonic regression in groups of proximity",
    **cited("Xiong et al., NeurIPS", "xiong2023proximity"),
    formula=r"""
        q_{\hat y} = f_g(\max_k p_k),
        \quad d = \frac{1}{K} \sum_{j=1}^K
            \left\| \frac{h}{\|h\|} - \frac{h_{(j)}}{\|h_{(j)}\|} \right\|,
        \quad g \text{ the quantile of } d,
        \quad f_g = \operatorname{argmin}_{f \text{ rising}} \sum_{i \in \mathrm{calib}, g_i = g}
            \left(f(\max_k p_{ik}) - [\hat y_i = y_i]\right)^2
    """,
    params=ProcalParams,
    implementation=ProximityInformedCalibration,
    keeps_accuracy=True,
)
