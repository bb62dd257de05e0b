"""Isotonic regression, one class against the rest (Zadrozny and Elkan, KDD 2002).

For each class the rising step function of its probability that is nearest to its labels in least
squares, linear between the steps as in scikit-learn; the rows are normalised. A row of zeros
becomes uniform, and what comes out below 1e-12 is raised to it: a class whose curve says 0 gets
that probability, which costs 27.6 nats where it is the label.
"""

from collections.abc import Mapping

from torch import Tensor
from torch.nn.functional import one_hot

from tune_calib.methods._base import NoParams
from tune_calib.methods._curves import interpolated, isotonic, joined
from tune_calib.methods._posthoc import Fit, FittedAlone, logarithm
from tune_calib.spec.methods import METHODS, MethodInfo


class IsotonicCalibration(FittedAlone):
    """A rising curve a class."""

    def fit_one(self, logits: Tensor, labels: Tensor) -> Fit:
        """Fit the curve of each class."""
        probs = logits.softmax(-1).T.cpu().numpy()
        targets = one_hot(labels, logits.shape[-1]).T.double().cpu().numpy()
        curves = [isotonic(own, target) for own, target in zip(probs, targets, strict=True)]
        return Fit({"knots": joined(curves).to(logits.device)})

    def apply(self, logits: Tensor, state: Mapping[str, Tensor]) -> Tensor:
        """Log-probabilities of the normalised curves."""
        return logarithm(interpolated(logits.softmax(-1).T, state["knots"]).T)


METHODS.register(
    MethodInfo(
        name="isotonic",
        kind="posthoc",
        title="isotonic regression, one class against the rest",
        paper="Zadrozny and Elkan, KDD",
        year=2002,
        url="https://doi.org/10.1145/775047.775151",
        formula=r"""
            q_k = \frac{f_k(p_k)}{\sum_j f_j(p_j)},
            \quad f_k = \operatorname{argmin}_{f \text{ rising}} \sum_{i \in \mathrm{calib}}
                \left(f(p_{ik}) - [y_i = k]\right)^2
        """,
        bibtex="""
@inproceedings{zadrozny2002transforming,
  author = {Zadrozny, Bianca and Elkan, Charles},
  title = {Transforming Classifier Scores into Accurate Multiclass Probability Estimates},
  booktitle = {Proceedings of the 8th ACM SIGKDD International Conference on Knowledge Discovery
    and Data Mining},
  pages = {694--699},
  year = {2002},
  url = {https://doi.org/10.1145/775047.775151},
}
""",
        params=NoParams,
        implementation=IsotonicCalibration,
        keeps_accuracy=False,
    ),
)
