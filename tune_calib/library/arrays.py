"""Checks of users' arrays and tensors, and the conventions of scikit-learn's estimators."""

import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor

from tune_calib.data.imported import SMALLEST
from tune_calib.metrics.scoring import is_by_chance
from tune_calib.metrics.validation import PROBABILITIES, ROUNDED, Appearance
from tune_calib.text import nearest


class Estimator(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base class with scikit-learn's conventions for settings that only a registry knows by name.

    Settings are stored apart from attributes, since one may be named ``fit``; all others are
    attributes too. As in scikit-learn, ``fit`` checks them.
    """

    settings: dict[str, Any]
    classes_: NDArray[Any]

    def __getattr__(self, name: str) -> Any:
        """Return a setting by name."""
        settings = vars(self).get("settings", {})
        if name not in settings:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return settings[name]

    def __setattr__(self, name: str, value: Any) -> None:
        """Change a setting by name, or set another attribute."""
        if name != "settings" and name in vars(self).get("settings", {}):
            self.set_params(**{name: value})
        else:
            super().__setattr__(name, value)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all settings by name."""
        return dict(self.settings)

    def set_params(self, **params: Any) -> Self:
        """Change settings; call ``fit`` afterwards, which refuses unknown ones."""
        self.settings = {**self.settings, **params}
        return self

    def predict(self, X: Any) -> Any:
        """Return the class of each sample, (N,), one of ``classes_``."""
        probs = self.predict_proba(X)  # first, since it refuses an unfitted estimator
        return take_classes(self.classes_, probs)

    def predict_proba(self, X: Any) -> Any:
        """Return probabilities (N, C), float64; a tensor for a tensor, else an array."""
        return match_type(self._logits(X).softmax(-1), X)

    def decision_function(self, X: Any) -> Any:
        """Return logits (N, C), float64; for two classes, those of the second class, (N,)."""
        logits = self._logits(X)
        if logits.shape[1] == 2:
            logits = logits[:, 1] - logits[:, 0]
        return match_type(logits, X)

    def _logits(self, X: Any) -> Tensor:
        """Return logits (N, C), float64, of which the probabilities are the softmax."""
        raise NotImplementedError

    def _rows(self, X: Any, name: str) -> Tensor:
        check_is_fitted(self)
        rows = rows_of(X, name)
        if rows.shape[1] != self.n_features_in_:
            raise ValueError(
                f"{name} must be (N, {self.n_features_in_}) as in fit, got {tuple(rows.shape)}"
            )
        return rows


def rows_of(values: Any, name: str) -> Tensor:
    """Return finite numbers (N, M), with N and M at least 1, as a tensor of floats."""
    if isinstance(values, Tensor):
        tensor = values.detach()
    elif issparse(values):
        raise ValueError(f"{name}: sparse input is not supported; pass its toarray()")
    else:
        try:
            array = np.asarray(values)
            if array.dtype.kind not in "bc":
                is_short = array.dtype.kind == "f" and array.dtype.itemsize <= 4
                dtype = np.float32 if is_short else np.float64
                array = array.astype(dtype, copy=False)
            # A copy where torch could not write to it, or expects another order in memory.
            tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))
        except (TypeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{name} is not an array of numbers ({reason})") from None
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise ValueError(f"{name} must be (samples, numbers), got shape {tuple(tensor.shape)}")
    if tensor.is_complex() or tensor.dtype == torch.bool:
        prefix = "Complex data not supported: " if tensor.is_complex() else ""
        raise ValueError(f"{prefix}{name} must be real numbers, got {tensor.dtype}")
    if not tensor.is_floating_point():
        tensor = tensor.double()
    elif tensor.dtype != torch.float64:
        tensor = tensor.float()
    if bad := int((~tensor.isfinite()).any(1).sum()):
        raise ValueError(
            f"{name} must be finite; {bad} of {len(tensor)} rows contain NaN or infinity"
        )
    return tensor


def logits_of(values: Any, outputs: str | None = None) -> Tensor:
    """Return finite logits (N, C) as ``rows_of`` does.

    ``outputs`` says whether they are "logits" or "probs", whose logarithms are returned. Without
    it, what may be probabilities is refused.
    """
    rows = rows_of(values, "logits")
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


def find_classes(labels: Any, count: int | None, classes: Any = None) -> NDArray[Any]:
    """Return the classes (C,) of labels (N,), in the order of their numbers.

    Integers in [0, count) are class numbers; other labels are sorted, as in scikit-learn.
    ``classes`` are the classes or their number; without ``count``, all labels that occur are
    classes.
    """
    if isinstance(classes, int | np.integer):
        if count not in (None, classes):
            raise ValueError(f"there are columns for {count} classes, but classes is {classes}")
        count, classes = int(classes), None
    if classes is not None:
        names = _read_labels(classes, "classes")
        names = np.ascontiguousarray(names, names.dtype.newbyteorder("="))
        if names.ndim != 1 or len(np.unique(names)) != len(names):
            raise ValueError("classes must be the different classes in the order of the columns")
    else:
        column = _read_labels(labels, "labels")
        if count and column.dtype.kind in "iu" and column.min() >= 0 and column.max() < count:
            return np.arange(count)
        names = np.unique(column)
    if count is not None and len(names) != count:
        raise ValueError(
            f"labels must be in 0 to {count - 1}, or have {count} different values; "
            f"there are {len(names)}: {_first(names)}"
        )
    return names


def number_labels(labels: Any, samples: int, classes: NDArray[Any], name: str = "labels") -> Tensor:
    """Return the number of each label in ``classes``, (N,), int64."""
    column = _read_labels(labels, name)
    if column.shape != (samples,):
        raise ValueError(f"{name} must be ({samples},), one per sample, got {column.shape}")
    numbers_by_class = {label: number for number, label in enumerate(classes.tolist())}
    numbers = [numbers_by_class.get(label, -1) for label in column.tolist()]
    if -1 in numbers:
        allowed = _first(classes)
        if np.array_equal(classes, np.arange(len(classes))):
            allowed = f"0 to {len(classes) - 1}"
        raise ValueError(
            f"{name} must be in {allowed}, the {len(classes)} classes; there is "
            f"{column[numbers.index(-1)]}"
        )
    return torch.tensor(numbers)


def check_order(rows: Tensor, numbers: Tensor, classes: NDArray[Any], is_certain: bool) -> None:
    """Warn where the labels are no better than chance, or refuse another order of the classes.

    ``rows`` are the logits (N, C), and ``numbers`` the numbers (N,) of the labels. With
    ``is_certain``, the caller gave the order of the classes, and no other order is tried.
    """
    top = rows.argmax(1)
    hits = top == numbers
    share = float(hits.double().mean())
    orders = iter(()) if is_certain else _other_orders(numbers, classes)
    for other, remedy in orders:
        better = top == other
        gain = int(better.sum()) - int(hits.sum())
        errors = gain / max(1, int((better != hits).sum())) ** 0.5  # standard errors
        if errors > 2:
            text = (
                f"labels agree with the largest logits in {share:.0%} of the samples, but in "
                f"{float(better.double().mean()):.0%} {remedy}; to keep them, give `classes`"
            )
            if errors > 4:
                raise ValueError(text)
            warnings.warn(text, stacklevel=3)
    if is_by_chance(top, numbers):
        warnings.warn(
            f"the largest logits are right in {share:.1%} of the samples, which is no better than "
            "chance; check that the classes are in the order of the columns",
            stacklevel=3,
        )


def _other_orders(numbers: Tensor, classes: NDArray[Any]) -> Iterator[tuple[Tensor, str]]:
    """Yield numbers (N,) of the labels in other orders of the classes, with the remedies."""
    if classes.dtype.kind not in "iub":
        # Numbers within names in the order of their values: a2 before a10.
        keys = [_natural_key(str(name)) for name in classes]
        order = sorted(range(len(classes)), key=lambda index: keys[index])
        if order != sorted(order):
            text = f"with classes=[{_first(classes[order])}], in the order of their numbers"
            yield torch.tensor(order, device=numbers.device).argsort()[numbers], text
    elif np.array_equal(classes, np.arange(len(classes))):
        if int(numbers.min()) > 0:
            yield numbers - 1, "if they are lowered by 1, to begin with 0"
        if int(numbers.max()) < len(classes) - 1:
            yield numbers + 1, "if they are raised by 1"


def _natural_key(name: str) -> list[int | str]:
    parts: list[int | str] = list(re.split(r"(\d+)", name))
    parts[1::2] = map(int, parts[1::2])
    return parts


def find_weights(sample_weight: Any, samples: int) -> Tensor | None:
    """Return weights (N,), float64, not negative and not all 0; None for None."""
    if sample_weight is None:
        return None
    column = to_array(sample_weight).reshape(-1, 1)
    weights = rows_of(column, "sample_weight")[:, 0].double()
    if len(weights) != samples or bool((weights < 0).any()) or not bool(weights.any()):
        raise ValueError(
            f"sample_weight must be ({samples},), one per sample, not negative and not all zero"
        )
    return weights


def take_classes(classes: NDArray[Any], probs: Any) -> Any:
    """Return the most probable class of each sample, (N,); for strings, an array."""
    numbers = probs.argmax(1)
    if isinstance(numbers, Tensor) and classes.dtype.kind in "biu":
        return torch.from_numpy(classes).to(numbers.device)[numbers]
    return classes[to_array(numbers)]


def to_array(values: Any) -> NDArray[Any]:
    """Convert a list or a tensor to an array; return an array unchanged."""
    if isinstance(values, Tensor):
        if values.dtype == torch.bfloat16:  # which NumPy lacks
            values = values.float()
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def _read_labels(values: Any, name: str) -> NDArray[Any]:
    labels = to_array(values)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = column_or_1d(labels, warn=True)
    is_text = labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.flat)
    if not (labels.dtype.kind in "iubUS" or is_text) or not labels.size:
        raise ValueError(
            f"Unknown label type: {name} must be integers, strings or booleans, got {labels.dtype}"
        )
    return labels


def _first(values: NDArray[Any]) -> str:
    texts = list(map(str, values[:5]))
    if len(values) > 5:
        texts.append("...")
    return ", ".join(texts)


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
