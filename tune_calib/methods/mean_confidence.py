"""Mean confidence, a trivial control (mean replacement, Chidambaram and Ge, ICLR 2025).

Every prediction gets the accuracy on ``calib`` as its confidence. The ECE is then near 0, although
confidence says nothing about a sample any more, so that the NLL is high. A comparison by ECE alone
would call it the best.

The authors divide the other probability equally between the other classes. Here these keep their
shares and thus their order, except that the shares are mixed with equal ones where another class
would exceed the predicted one. An accuracy below 1/C counts as 1/C. Results below 1e-12 are raised
to it.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from tune_calib.methods._functional import weighted_mean
from tune_calib.methods._posthoc import TINY, Fit, FittedAlone, exact, keep_top, logarithm
from tune_calib.spec.methods import METHODS, cited


class MeanConfidence(FittedAlone):
    """The same confidence for every sample."""

    takes_weights = True

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        hits = (logits.argmax(-1) == labels).double()
        accuracy = weighted_mean(hits, self.weights).clamp(min=1 / logits.shape[-1])
        return Fit({"accuracy": accuracy}, {"confidence": float(accuracy)})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        if logits.shape[-1] == 1:
            return torch.zeros_like(logits)
        confidence = state["accuracy"]
        top = logits.argmax(-1, keepdim=True)
        is_top = torch.arange(logits.shape[-1], device=logits.device) == top
        shares = logits.masked_fill(is_top, -torch.inf).softmax(-1)
        # The smallest weight of equal shares for which no other class exceeds the predicted one.
        equal = exact(1 / (logits.shape[-1] - 1), logits)
        largest = shares.amax(-1, keepdim=True)
        excess = (1 - confidence) * largest - confidence
        range_of_excess = (1 - confidence) * (largest - equal)
        weight = (excess / range_of_excess.clamp_min(exact(TINY, logits))).clamp(0, 1)
        others = (1 - confidence) * ((1 - weight) * shares + weight * equal)
        return keep_top(logarithm(torch.where(is_top, confidence, others)), logits)


METHODS.register(
    name="mean_confidence",
    title="mean confidence (trivial control)",
    **cited("Chidambaram and Ge, ICLR", "chidambaram2025reassessing"),
    formula=r"""
        q_{\hat y} = a, \quad q_k = (1 - a) \left((1 - w) \frac{p_k}{1 - p_{\hat y}}
            + \frac{w}{C - 1}\right) \text{ for } k \neq \hat y = \operatorname{argmax}_k p_k,
        \quad a = \max\left(\tfrac{1}{C},
            \tfrac{1}{n} \sum_{i \in \mathrm{calib}} [\hat y_i = y_i]\right),
        \quad w = \min \{w \in [0, 1] : \max_{k \neq \hat y} q_k \leq a\}
    """,
    implementation=MeanConfidence,
    keeps_accuracy=True,
    is_control=True,
)
