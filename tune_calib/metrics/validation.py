"""Validation of the inputs of metrics and methods, and of users' arrays and tensors."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from torch import Tensor

from tune_calib.errors import UserError

SMALLEST = 1e-12  # lower bound of probabilities, since the logarithm of 0 is not finite

UNEVEN = 4e-3
"""Largest deviation of a sample's probabilities from a sum of one; bfloat16 rounds each by up to a
relative 2e-3."""

ROUNDED = 0.05  # the same deviation for probabilities that are rounded to two digits

PROBABILITIES = (
    "logits look like probabilities: none is negative and the rows sum to 1; pass their "
    "logarithms, e.g. np.log(np.clip(probabilities, 1e-12, None))"
)


def are_probabilities(rows: Tensor) -> bool:
    """Return whether most rows (N, C) of more than one class are not negative and sum to 1."""
    if rows.shape[1] < 2 or not len(rows):
        return False
    is_even = (rows.amin(1) >= -UNEVEN) & ((rows.double().sum(1) - 1).abs() <= ROUNDED)
    return float(is_even.double().mean()) > 0.5


def whole_numbers(weights: Tensor, name: str) -> Tensor:
    """Return weights (N,) as integers, by which rows are repeated; ``name`` counts samples."""
    if not torch.equal(weights, weights.round()):
        raise ValueError(f"{name} counts samples, so sample_weight must be whole numbers")
    return weights.long()


def whole_number(value: Any, name: str, least: int) -> int:
    """Return an option that is a whole number, in Python or NumPy, as a number of Python."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


@contextmanager
def as_user_error() -> Iterator[None]:
    """Turn a ValueError of these checks into a UserError."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from None


def refuse_masked(values: Any, name: str) -> None:
    """Raise if values are masked: as an array, the hidden numbers would count."""
    if any(map(np.ma.is_masked, values if isinstance(values, list | tuple) else [values])):
        raise ValueError(f"{name} has masked values; leave out these samples, or fill the values")


def to_array(values: Any, name: str) -> NDArray[Any]:
    """Convert a list, a data frame or a tensor to an array; return an array unchanged."""
    refuse_masked(values, name)
    if isinstance(values, Tensor):
        if values.dtype == torch.bfloat16:  # which NumPy lacks
            values = values.float()
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def numbers_of(values: Any, name: str) -> Tensor:
    """Return real numbers of any shape as a tensor of floats."""
    if isinstance(values, Tensor):
        tensor = values.detach()
    elif issparse(values):
        raise ValueError(f"{name}: sparse input is not supported; pass its toarray()")
    else:
        refuse_masked(values, name)
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
    if tensor.is_complex() or tensor.dtype == torch.bool:
        prefix = "Complex data not supported: " if tensor.is_complex() else ""
        raise ValueError(f"{prefix}{name} must be real numbers, got {tensor.dtype}")
    if not tensor.is_floating_point():
        return tensor.double()
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def rows_of(values: Any, name: str) -> Tensor:
    """Return finite numbers (N, M), with N and M at least 1, as a tensor of floats."""
    tensor = numbers_of(values, name)
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise ValueError(f"{name} must be (samples, numbers), got shape {tuple(tensor.shape)}")
    if bad := int((~tensor.isfinite()).any(1).sum()):
        raise ValueError(f"{name} must be finite; {bad} of {len(tensor)} rows have NaN or infinity")
    return tensor


def two_columns(values: Any, outputs: str | None) -> Any:
    """Return scores (N,) or (N, 1) of two classes as outputs (N, 2), and anything else unchanged.

    ``values`` are a tensor or an array. A score is the logit of the second class minus that of the
    first, or with ``outputs="probs"`` the probability of the second class.
    """
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        return values
    others = 0 * abs(values)  # no negative zeros, which a digest would tell apart
    if outputs == "probs":
        others = others + 1 - values
    stack = torch.stack if isinstance(values, Tensor) else np.stack
    return stack([others, values], 1)


def logits_of(values: Any, outputs: str | None = None) -> Tensor:
    """Return finite logits (N, C) of outputs (N, C), or of scores of two classes.

    ``outputs`` says whether they are "logits" or "probs", whose logarithms are returned. Without
    it, what may be probabilities is refused.
    """
    numbers = numbers_of(values, "logits")
    rows = rows_of(two_columns(numbers, outputs), "logits")
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
    if outputs is None and rows.shape != numbers.shape:
        is_bounded = (rows[:, 1] >= -UNEVEN) & (rows[:, 1] <= 1 + UNEVEN)
        if float(is_bounded.double().mean()) >= 0.99:
            raise ValueError(
                "scores of two classes look like probabilities: nearly all are in [0, 1]; pass "
                'outputs="probs", or outputs="logits" if they are logits'
            )
    elif outputs is None and are_probabilities(rows):
        raise ValueError(f'{PROBABILITIES} or outputs="probs"')
    return rows


def logits_to_predict(values: Any, outputs: str | None, classes: NDArray[Any]) -> Tensor:
    """Return logits (N, C), float64, of outputs for predictions, as ``logits_of`` a fit."""
    order_by_columns(classes, values, is_fixed=True)
    numbers = numbers_of(values, "logits")
    rows = rows_of(two_columns(numbers, outputs), "logits").double()
    if outputs is not None:
        return logits_of(rows, outputs)
    # The logits of one sample may sum to 1 by chance, and must not be refused then.
    if len(rows) > 1 and rows.shape == numbers.shape and are_probabilities(rows):
        raise ValueError(PROBABILITIES)
    return rows


def order_by_columns(classes: NDArray[Any], values: Any, is_fixed: bool) -> NDArray[Any]:
    """Return the classes in the order of the columns of a data frame that are named after them."""
    # Names are compared as text, as files store them.
    indices = {str(label): index for index, label in enumerate(classes.tolist())}
    names = list(map(str, getattr(values, "columns", ())))
    if sorted(names) != sorted(indices) or names == list(indices):
        return classes
    ordered = classes[[indices[name] for name in names]]
    if is_fixed:
        raise ValueError(
            f"the columns of logits are named after the classes, in the order "
            f"{list_first(ordered)}, but the classes are {list_first(classes)}"
        )
    return ordered


def read_labels(values: Any, name: str) -> NDArray[Any]:
    """Return labels (N,) that are integers, strings or booleans; a column (N, 1) with a warning."""
    labels = to_array(values, name)
    if labels.ndim == 2 and labels.shape[1] == 1:
        from sklearn.utils.validation import column_or_1d  # takes half a second

        labels = column_or_1d(labels, warn=True)
    is_text = labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.flat)
    if not (labels.dtype.kind in "iubUS" or is_text):
        raise ValueError(
            f"Unknown label type: {name} must be integers, strings or booleans, got {labels.dtype}"
        )
    if not labels.size:
        raise ValueError(f"{name} is empty: {labels.shape}")
    return labels


def number_labels(labels: Any, samples: int, classes: NDArray[Any], name: str = "labels") -> Tensor:
    """Return the number of each label in ``classes``, (N,), int64."""
    column = read_labels(labels, name)
    if column.shape != (samples,):
        raise ValueError(f"{name} must be ({samples},), one per sample, got {column.shape}")
    if column.dtype.kind == "b" and len(classes) != 2:
        raise ValueError(f"{name} are true or false, but there are {len(classes)} classes")
    numbers_by_class = {label: number for number, label in enumerate(classes.tolist())}
    numbers = [numbers_by_class.get(label, -1) for label in column.tolist()]
    if -1 in numbers:
        allowed = list_first(classes)
        if np.array_equal(classes, np.arange(len(classes))):
            allowed = f"0 to {len(classes) - 1}"
        raise ValueError(
            f"{name} must be in {allowed}, the {len(classes)} classes; there is "
            f"{column[numbers.index(-1)]}"
        )
    return torch.tensor(numbers)


def list_first(values: NDArray[Any]) -> str:
    """Return the first values as text, for messages."""
    texts = list(map(str, values[:5])) + ["..."] * (len(values) > 5)
    return ", ".join(texts)
