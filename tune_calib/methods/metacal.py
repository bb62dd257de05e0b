"""Meta-Cal (Ma and Blaschko, ICML 2021): temperature scaling, but uniform where entropy is high.

Samples whose entropy reaches a threshold get equal probabilities, and the others those of
temperature scaling. The threshold is set on every tenth sample of ``calib``, at most 500, and T is
fitted by the NLL to the others below it.

- `miscoverage` bounds the share of correct samples that become uniform: the threshold is a quantile
  of the entropies of correct samples.
- `accuracy` sets the accuracy of those that do not: it is estimated by 20 bins of equal mass, as a
  decreasing curve of their mean entropy, and the threshold is its value at that accuracy. Where
  the range of the curve does not hold it, the nearest end is used, and the trial is flagged.

Differences from the authors' program: it draws the samples at random, without a seed; an accuracy
out of range is an error there; and the predictions of uniform samples become class 0 there, here
the top class keeps a lead of a millionth, so that the accuracy does not change.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from scipy.optimize import isotonic_regression
from torch import Tensor

from tune_calib.methods._posthoc import UNCONVERGED, Fit, FittedAlone, Floats, keep_top
from tune_calib.methods.temperature import AT_BOUND, converged
from tune_calib.metrics.refinement import has_best_temperature
from tune_calib.spec.methods import METHODS, Params, cited

_SHARE, _MOST = 10, 500  # every tenth sample sets the threshold, at most 500
_BINS = 20


class MetaCalParams(Params):
    constraint: Literal["miscoverage", "accuracy"] = "miscoverage"
    """What the threshold keeps.

    - `miscoverage`: at most `alpha` of the correct samples become uniform.
    - `accuracy`: the samples that do not have an accuracy of at least `accuracy`.
    """
    alpha: float = Field(0.05, gt=0, lt=1)
    """Share of correct samples that may become uniform."""
    accuracy: float = Field(0.9, gt=0, lt=1)
    """Accuracy of the samples that do not become uniform."""


class MetaCal(FittedAlone):
    """A temperature and a threshold of the entropy."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        hits = logits.argmax(-1) == labels
        eligible = torch.arange(len(labels), device=labels.device)
        if self.params.constraint == "miscoverage":
            eligible = eligible[hits]
        return self.fit_with(logits, labels, eligible[::_SHARE][:_MOST])

    def fit_with(self, logits: Tensor, labels: Tensor, chosen: Tensor) -> Fit:
        """Fit with the chosen rows, numbers (M,), setting the threshold."""
        entropies, flags = entropy(logits), set()
        some = entropies[chosen].cpu().numpy()
        if self.params.constraint == "miscoverage":
            threshold = float("inf")
            if len(some):
                threshold = float(np.quantile(some, 1 - self.params.alpha, method="higher"))
        else:
            hits = (logits.argmax(-1) == labels)[chosen].double().cpu().numpy()
            threshold, is_inside = _threshold_at(self.params.accuracy, some, hits)
            if not is_inside:
                flags.add(UNCONVERGED)
        is_fitted = entropies < threshold
        is_fitted[chosen] = False
        if not is_fitted.any():  # then T scales no sample of calib either
            is_fitted = torch.ones_like(is_fitted)
        temperature = converged(logits[is_fitted], labels[is_fitted])
        if not has_best_temperature(logits[is_fitted], labels[is_fitted]):
            flags.add(AT_BOUND)
        uniform = float((entropies >= threshold).double().mean())
        state = {
            "threshold": logits.new_tensor(threshold),
            "temperature": logits.new_tensor(temperature),
        }
        return Fit(state, {"temperature": temperature, "uniform_share": uniform}, frozenset(flags))

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        is_kept = entropy(logits)[:, None] < state["threshold"]
        scaled = logits / state["temperature"]
        mapped = torch.where(is_kept, scaled, torch.zeros_like(scaled))
        return keep_top(mapped.log_softmax(-1), logits)


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy (N,) of softmax(logits) in nats."""
    log_probs = logits.log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1)


def _threshold_at(accuracy: float, entropies: Floats, hits: Floats) -> tuple[float, bool]:
    """Return the entropy below which the accuracy is as given, and whether it is in range."""
    edges = np.quantile(entropies, np.linspace(0, 1, _BINS + 1))
    bins = np.searchsorted(edges, entropies) - 1  # the smallest is in none
    accuracies, means = np.zeros(_BINS), np.zeros(_BINS)
    for number in range(_BINS):
        if (bins == number).any():
            accuracies[number] = hits[bins == number].mean()
            means[number] = entropies[bins == number].mean()
    counts = np.arange(1, _BINS + 1)
    running, places = accuracies.cumsum() / counts, means
    order = running.argsort(kind="stable")
    curve = isotonic_regression(places[order], increasing=False).x
    threshold = float(np.interp(accuracy, running[order], curve))
    return threshold, bool(running.min() <= accuracy <= running.max())


METHODS.register(
    name="metacal",
    title="temperature scaling with an entropy threshold",
    **cited("Ma and Blaschko, ICML", "ma2021metacal"),
    formula=r"""
        p = \begin{cases} \operatorname{softmax}(z / T) & H(\operatorname{softmax}(z)) < t \\
            1 / C & \text{otherwise} \end{cases}
    """,
    params=MetaCalParams,
    implementation=MetaCal,
    keeps_accuracy=True,
)
