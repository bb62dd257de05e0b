"""Checks of users' arrays and tensors, and the conventions of scikit-learn's estimators."""

from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import _check_feature_names, _check_sample_weight
from torch import Tensor

from tune_calib.metrics import validation
from tune_calib.text import nearest

# There is no public function that checks the names of columns alone, also of scores and images.
check_names = _check_feature_names


class Estimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class with scikit-learn's conventions for settings that only a registry knows by name.

    Settings are no attributes, since one may be named ``fit``. As in scikit-learn, ``fit`` checks
    them.
    """

    settings: dict[str, Any]
    classes_: NDArray[Any]
    _logits: Callable[..., Tensor]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return dict(self.settings)

    def set_params(self, **params: Any) -> Self:
        """Change settings; call ``fit`` afterwards, which refuses unknown ones."""
        self.settings = {**self.settings, **params}
        return self

    def predict(self, X: Any, **inputs: Any) -> Any:
        """Return the class of each sample, (N,), one of ``classes_``."""
        probs = self.predict_proba(X, **inputs)  # first, since it refuses an unfitted estimator
        return take_classes(self.classes_, probs)

    def predict_proba(self, X: Any, **inputs: Any) -> Any:
        """Return probabilities (N, C), float64; a tensor for a tensor, else an array.

        A post-hoc method that reads features takes those of the samples as ``features``, (N, D).
        """
        return match_type(self._logits(X, **inputs).softmax(-1), X)

    def decision_function(self, X: Any, **inputs: Any) -> Any:
        """Return logits (N, C), float64; for two classes, those of the second class, (N,)."""
        logits = self._logits(X, **inputs)
        if logits.shape[1] == 2:
            logits = logits[:, 1] - logits[:, 0]
        return match_type(logits, X)

    def _check_columns(self, X: Any, rows: Tensor, name: str) -> Tensor:
        """Return rows (N, M) of ``X``; refuse other columns than in fit, also by their names."""
        check_names(self, X, reset=False)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{name} must be (N, {self.n_features_in_}) as in fit, got {tuple(rows.shape)}"
            )
        return rows


def find_classes(
    labels: Any, count: int | None, classes: Any = None, logits: Any = None
) -> NDArray[Any]:
    """Return the classes (C,) of labels (N,), in the order of their numbers.

    Integers in [0, count) are class numbers; other labels are sorted, as in scikit-learn.
    ``classes`` are the classes or their number; without ``count``, all labels that occur are
    classes. If the columns of ``logits`` are named after the classes, their order counts.
    """
    if isinstance(classes, int | np.integer):
        if count not in (None, classes):
            raise ValueError(f"there are columns for {count} classes, but classes is {classes}")
        count, classes = int(classes), None
    if classes is not None:
        names = validation.read_labels(classes, "classes")
        names = np.ascontiguousarray(names, names.dtype.newbyteorder("="))
        if names.ndim != 1 or len(np.unique(names)) != len(names):
            raise ValueError("classes must be the different classes in the order of the columns")
    else:
        column = validation.read_labels(labels, "labels")
        names = np.unique(column)
        if count and column.dtype.kind in "iu" and names[0] >= 0 and names[-1] < count:
            names = np.arange(count)
    if count is not None and len(names) != count:
        raise ValueError(
            f"labels must be in 0 to {count - 1}, or have {count} different values; "
            f"there are {len(names)}: {validation.list_first(names)}"
        )
    return validation.order_by_columns(names, logits, is_fixed=classes is not None)


def find_weights(sample_weight: Any, rows: Tensor) -> Tensor | None:
    """Return weights (N,), float64, not negative and not all 0, of rows (N, C); None for None."""
    if sample_weight is None:
        return None
    column = validation.to_array(sample_weight, "sample_weight")
    weights = _check_sample_weight(column, rows, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must not be all zero")
    return torch.from_numpy(weights).to(rows.device)


def take_classes(classes: NDArray[Any], probs: Any) -> Any:
    """Return the most probable class of each sample, (N,); for strings, an array."""
    numbers = probs.argmax(1)
    if isinstance(numbers, Tensor) and classes.dtype.kind in "biu":
        return torch.from_numpy(classes).to(numbers.device)[numbers]
    return classes[validation.to_array(numbers, "numbers")]


def match_type(tensor: Tensor, like: Any) -> Any:
    """Return a tensor if ``like`` is one, else an array."""
    return tensor if isinstance(like, Tensor) else tensor.cpu().numpy()


def refuse_unknown(
    settings: Iterable[str], names: list[str], estimator: str, error: type[Exception] = TypeError
) -> None:
    """Raise an error for a setting that an estimator does not have."""
    for key in settings:
        if key not in names:
            raise error(f"{estimator} has no setting {key!r}{nearest(key, names)}")
