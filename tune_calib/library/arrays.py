"""What users of the library hand over: arrays or tensors, checked, and given back as they came."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from tune_calib.metrics.validation import PROBABILITIES, are_probabilities
from tune_calib.text import nearest


class Estimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """scikit-learn's conventions for settings whose names only a registry knows.

    They are kept apart from the attributes, since a setting may be named ``fit``, and are checked
    by ``fit``, as scikit-learn has it.
    """

    settings: dict[str, Any]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All settings by name."""
        return dict(self.settings)

    def set_params(self, **params: Any) -> Self:
        """Change settings; ``fit`` must follow, and refuses what is unknown."""
        self.settings = {**self.settings, **params}
        return self

    def predict(self, given: Any) -> Any:
        """The class of each sample, (N,), of what ``predict_proba`` takes."""
        probs = self.predict_proba(given)
        return probs.argmax(1)

    def predict_proba(self, given: Any) -> Any:
        """Calibrated probabilities, (N, C), float64; an array of an array, a tensor of a tensor."""
        raise NotImplementedError

    def _rows(self, given: Any, name: str) -> Tensor:
        """What is predicted, once fitted."""
        check_is_fitted(self)
        found = rows_of(given, name)
        if found.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{name} must be (N, {self.n_features_in_}) as in fit, got {tuple(found.shape)}"
            )
        return found

    def __sklearn_is_fitted__(self) -> bool:
        """Whether ``fit`` was called."""
        return hasattr(self, "classes_")


def rows_of(given: Any, name: str) -> Tensor:
    """Finite numbers (N, M), N and M at least 1, as a tensor of floats.

    Raises:
        ValueError: they are something else.
    """
    tensor = given.detach() if isinstance(given, Tensor) else _tensor(given, name)
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise ValueError(f"{name} must be (samples, numbers), got shape {tuple(tensor.shape)}")
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name} must be real numbers, got {tensor.dtype}")
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float() if tensor.is_floating_point() else tensor.double()
    if bad := int((~tensor.isfinite()).any(1).sum()):
        raise ValueError(f"{name} must be finite; {bad} of {len(tensor)} rows are not")
    return tensor


def logits_of(given: Any) -> Tensor:
    """Return finite logits (N, C) as ``rows_of`` does.

    Raises:
        ValueError: they are something else, e.g. probabilities.
    """
    rows = rows_of(given, "logits")
    if are_probabilities(rows):
        raise ValueError(PROBABILITIES)
    return rows


def labels_of(given: Any, samples: int, classes: int, name: str = "labels") -> Tensor:
    """Labels (N,), int64, in [0, classes).

    Raises:
        ValueError: they are something else.
    """
    tensor = given.detach() if isinstance(given, Tensor) else _tensor(given, name)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name} must be integers, the numbers of classes, got {tensor.dtype}")
    if tensor.shape != (samples,):
        raise ValueError(f"{name} must be ({samples},), one a sample, got {tuple(tensor.shape)}")
    lowest, highest = int(tensor.min()), int(tensor.max())
    if lowest < 0 or highest >= classes:
        raise ValueError(
            f"{name} must be in 0 to {classes - 1}, the {classes} classes; there is "
            f"{lowest if lowest < 0 else highest}"
        )
    return tensor.long()


def as_given(found: Tensor, like: Any) -> Any:
    """A tensor for who gave a tensor, an array for everybody else."""
    return found if isinstance(like, Tensor) else found.cpu().numpy()


def refuse_unknown(settings: Mapping[str, Any], known: list[str], name: str) -> None:
    """Refuse a setting that an estimator does not have.

    Raises:
        TypeError: there is one, as of any argument that a function does not have.
    """
    for key in settings:
        if key not in known:
            raise TypeError(f"{name} has no setting {key!r}{nearest(key, known)}")


def _tensor(given: Any, name: str) -> Tensor:
    try:
        array = np.asarray(given)
        # A copy where torch could not write: it warns of arrays that are read-only.
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{name} is no array of numbers ({reason})") from None
