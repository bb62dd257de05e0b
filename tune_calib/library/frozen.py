"""A fitted classifier and a post-hoc method as one scikit-learn classifier."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from tune_calib.library.arrays import take_classes
from tune_calib.library.estimators import PostHocEstimator
from tune_calib.library.estimators import __getattr__ as estimator_named

BATCH = 500
SMALLEST = 1e-12
"""Lower bound of probabilities, since the logarithm of 0 is not finite."""


class CalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier whose probabilities a post-hoc method calibrates.

    Like ``CalibratedClassifierCV(FrozenEstimator(classifier))`` of scikit-learn, for every post-hoc
    method and for torch modules. The classifier is never trained; ``clone`` shares it.

    Args:
        classifier: a fitted scikit-learn classifier, or a ``torch.nn.Module`` that gives logits
            (N, C), which is put into evaluation mode and called on its own device.
        method: the estimator of a post-hoc method, e.g. ``VectorScaling()``; temperature scaling
            by default.

    Attributes:
        classes_: (C,), those of the classifier, else those of the labels.
        method_: the fitted method.
    """

    def __init__(self, classifier: Any, method: PostHocEstimator | None = None) -> None:
        self.classifier = classifier
        self.method = method

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy with the same classifier, which stays fitted."""
        return type(self)(self.classifier, self.method)

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Fit the method on samples that the classifier was not trained on.

        Args:
            X: N samples, as the classifier takes them.
            y: (N,), their labels, as the classifier names them; for a module integers from 0 to
                C - 1, or C other values in the order of its logits when sorted.

        Raises:
            ValueError: the labels do not match the classes, or an output is not finite.
        """
        method = estimator_named("TemperatureScaling")() if self.method is None else self.method
        self.method_ = clone(method)
        self.method_.fit(self._logits(X), y, getattr(self.classifier, "classes_", None))
        self.classes_ = self.method_.classes_
        return self

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return calibrated probabilities, (N, C), float64."""
        check_is_fitted(self)
        return self.method_.predict_proba(self._logits(X))

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the most probable class of each sample, (N,)."""
        probs = self.predict_proba(X)
        return take_classes(self.classes_, probs)

    @torch.no_grad()
    def _logits(self, samples: Any) -> Any:
        """Return logits (N, C) or scores (N,): of a classifier without them log-probabilities."""
        if not isinstance(self.classifier, nn.Module):
            if hasattr(self.classifier, "decision_function"):
                return self.classifier.decision_function(samples)
            return np.log(np.clip(self.classifier.predict_proba(samples), SMALLEST, None))
        weight = next(self.classifier.parameters(), torch.empty(0))
        given = samples if isinstance(samples, Tensor) else torch.as_tensor(np.asarray(samples))
        if not isinstance(samples, Tensor) and given.is_floating_point():
            given = given.to(weight.dtype)  # arrays are of float64, and modules hardly ever are
        self.classifier.eval()
        logits = torch.cat([self.classifier(x.to(weight.device)) for x in given.split(BATCH)])
        return logits if isinstance(samples, Tensor) else logits.float().cpu().numpy()
