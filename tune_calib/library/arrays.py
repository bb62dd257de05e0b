"""Checks of users' arrays and tensors, and the conventions of scikit-learn's estimators."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from tune_calib.data.imported import SMALLEST
from tune_calib.metrics.validation import PROBABILITIES, ROUNDED, Appearance
from tune_calib.text import nearest


class Estimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class with scikit-learn's conventions for settings that only a registry knows by name.

    Settings are stored apart from attributes, since one may be named ``fit``. As in scikit-learn,
    ``fit`` checks them.
    """

    settings: dict[str, Any]
    classes_: NDArray[Any]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all settings by name."""
        return dict(self.settings)

    def set_params(self, **params: Any) -> Self:
        """Change settings; call ``fit`` afterwards, which refuses unknown ones."""
        self.settings = {**self.settings, **params}
        return self

    def predict(self, given: Any) -> Any:
        """Return the class of each sample, (N,), one of ``classes_``."""
        probs = self.predict_proba(given)  # first, since it refuses an unfitted estimator
        return take_classes(self.classes_, probs)

    def predict_proba(self, given: Any) -> Any:
        """Return calibrated probabilities (N, C), float64; a tensor for a tensor, else an array."""
        raise NotImplementedError

    def _rows(self, given: Any, name: str) -> Tensor:
        """Return the rows to predict; refuse them before ``fit``."""
        check_is_fitted(self)
        found = rows_of(given, name)
        if found.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{name} must be (N, {self.n_features_in_}) as in fit, got {tuple(found.shape)}"
            )
        return found


def rows_of(given: Any, name: str) -> Tensor:
    """Return finite numbers (N, M), with N and M at least 1, as a tensor of floats."""
    if isinstance(given, Tensor):
        tensor = given.detach()
    else:
        try:
            array = np.asarray(given)
            # A copy if torch could not write to it: torch warns about read-only arrays.
            tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        except (TypeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{name} is not an array of numbers ({reason})") from None
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise ValueError(f"{name} must be (samples, numbers), got shape {tuple(tensor.shape)}")
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise ValueError(f"{name} must be real numbers, got {tensor.dtype}")
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float() if tensor.is_floating_point() else tensor.double()
    if bad := int((~tensor.isfinite()).any(1).sum()):
        raise ValueError(
            f"{name} must be finite; {bad} of {len(tensor)} rows contain NaN or infinity"
        )
    return tensor


def logits_of(given: Any, outputs: str | None = None) -> Tensor:
    """Return finite logits (N, C) as ``rows_of`` does.

    ``outputs`` says whether they are "logits" or "probs", whose logarithms are returned. Without
    it, what may be probabilities is refused.
    """
    rows = rows_of(given, "logits")
    if outputs not in (None, "logits", "probs"):
        raise ValueError(f'outputs must be "logits", "probs" or None, got {outputs!r}')
    if outputs == "probs":
        deviation = float((rows.double().sum(1) - 1).abs().max())
        if float(rows.min()) < -ROUNDED or deviation > ROUNDED:
            raise ValueError(
                f'outputs="probs" needs rows of probabilities that sum to 1; one is off by '
                f"{deviation:g}, and the smallest value is {float(rows.min()):g}"
            )
        return rows.clamp(min=SMALLEST).log()
    if outputs is None:
        appearance = Appearance(rows)
        if appearance.are_probabilities:
            raise ValueError(f'{PROBABILITIES} or outputs="probs"')
        if appearance.may_be_probabilities:
            raise ValueError(
                "logits look like probabilities: nearly all rows lie in [0, 1]; pass "
                'outputs="logits" if they are logits, or outputs="probs"'
            )
    return rows


def find_classes(given: Any, count: int | None, known: Any = None) -> NDArray[Any]:
    """Return the classes (C,) of labels (N,), in the order of their numbers.

    Integers in [0, count) are class numbers; other labels are sorted, as in scikit-learn. ``known``
    are the classes if they are known; without ``count``, all labels that occur are classes.
    """
    if known is not None:
        found = _labels(known, "classes")
    else:
        labels = _labels(given, "labels")
        if count and labels.dtype.kind in "iu" and labels.min() >= 0 and labels.max() < count:
            return np.arange(count)
        found = np.unique(labels)
    if count is not None and len(found) != count:
        raise ValueError(
            f"labels must be in 0 to {count - 1}, or have {count} different values; "
            f"there are {len(found)}: {_first(found)}"
        )
    return found


def number_labels(given: Any, samples: int, classes: NDArray[Any], name: str = "labels") -> Tensor:
    """Return the number of each label in ``classes``, (N,), int64."""
    labels = _labels(given, name)
    if labels.shape != (samples,):
        raise ValueError(f"{name} must be ({samples},), one per sample, got {labels.shape}")
    numbers = {label: number for number, label in enumerate(classes.tolist())}
    found = [numbers.get(label, -1) for label in labels.tolist()]
    if -1 in found:
        is_range = np.array_equal(classes, np.arange(len(classes)))
        known = f"0 to {len(classes) - 1}" if is_range else _first(classes)
        raise ValueError(
            f"{name} must be in {known}, the {len(classes)} classes; there is "
            f"{labels[found.index(-1)]}"
        )
    return torch.tensor(found)


def take_classes(classes: NDArray[Any], probs: Any) -> Any:
    """Return the most probable class of each sample, (N,); for strings, an array."""
    places = probs.argmax(1)
    if isinstance(places, Tensor) and classes.dtype.kind in "biu":
        return torch.from_numpy(classes).to(places.device)[places]
    return classes[to_array(places)]


def to_array(given: Any) -> NDArray[Any]:
    """Convert a list or a tensor to an array; return an array unchanged."""
    if isinstance(given, Tensor):  # NumPy has no bfloat16
        given = (given.float() if given.dtype == torch.bfloat16 else given).detach().cpu().numpy()
    return np.asarray(given)


def _labels(given: Any, name: str) -> NDArray[Any]:
    labels = to_array(given)
    is_text = labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.flat)
    if not (labels.dtype.kind in "iubUS" or is_text) or not labels.size:
        raise ValueError(f"{name} must be integers, strings or booleans, got {labels.dtype}")
    return labels


def _first(values: NDArray[Any]) -> str:
    return ", ".join(map(str, values[:5])) + ", ..." * (len(values) > 5)


def match_type(found: Tensor, like: Any) -> Any:
    """Return a tensor if ``like`` is one, else an array."""
    return found if isinstance(like, Tensor) else found.cpu().numpy()


def refuse_unknown(
    settings: Iterable[str], known: list[str], name: str, error: type[Exception] = TypeError
) -> None:
    """Raise an error for a setting that an estimator does not have."""
    for key in settings:
        if key not in known:
            raise error(f"{name} has no setting {key!r}{nearest(key, known)}")
