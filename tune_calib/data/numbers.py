"""Whether numbers that others made are what they are given as."""

import numpy as np
import torch
from torch import Tensor

from tune_calib.data.arrays import Array, Rows
from tune_calib.errors import UserError
from tune_calib.metrics.validation import UNEVEN, are_probabilities

UNLIKE = 0.01
"""By how much logits may differ from those of the head, over the largest of them."""


def finite(values: Rows, array: Array, first: int) -> Tensor:
    """Rows of an array as float32.

    Args:
        values: the rows.
        array: that they are of, for messages.
        first: number of the first of them.

    Raises:
        UserError: one is no number.
    """
    if not np.issubdtype(values.dtype, np.floating):
        raise UserError(f"{array.told} holds {values.dtype}; it must be floating-point numbers")
    with np.errstate(over="ignore"):
        tensor = torch.from_numpy(np.array(values, np.float32))
    wrong = ~tensor.isfinite()
    if bool(wrong.any()):
        row = first + int(wrong.nonzero()[0, 0])
        raise UserError(f"{array.told}: row {row} holds a value that is not finite (NaN or inf)")
    return tensor


def refuse_no_probs(probs: Tensor, array: Array, first: int) -> None:
    """Refuse rows, (M, C), that are no probabilities; as ``finite``."""
    sums = probs.double().sum(1)
    wrong = ((probs < 0) | (probs > 1 + UNEVEN)).any(1) | ((sums - 1).abs() > UNEVEN)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise UserError(
            f"{array.told}: row {first + row} is no probabilities ({float(probs[row].min()):g} to "
            f"{float(probs[row].max()):g}, their sum is {float(sums[row]):g}); if these are "
            "logits, name them so: logits=FILE:KEY"
        )


def refuse_probs(logits: Tensor, array: Array) -> None:
    """Refuse logits, (M, C), of which every row sums to one: probabilities by another name."""
    if are_probabilities(logits):
        raise UserError(
            f"{array.told}: every row sums to one, so these are probabilities; name them so: "
            "probs=FILE:KEY"
        )


def refuse_unlike(own: Tensor, logits: Tensor, name: str, first: int) -> None:
    """Refuse logits, (M, C), that are not those of the head.

    Args:
        own: those of the head.
        logits: as they are given.
        name: of the split, for messages.
        first: number of the first row.

    Raises:
        UserError: they are not.
    """
    far = (own - logits).abs().amax(1)
    wrong = far > UNLIKE * max(1.0, float(logits.abs().max()))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise UserError(
            f"`{name}`: the logits of row {first + row} are not those that `head` gives of its "
            f"features (they differ by {float(far[row]):g}); are the features those that the last "
            "layer sees?"
        )
