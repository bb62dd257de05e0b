"""Comparison of the project's methods and metrics with the authors' numbers.

Each module exports ``COMPARERS``: method of a vector to a function that asserts on its JSON.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def tensor(value: Any, dtype: torch.dtype = torch.float64) -> Tensor:
    """Nested lists, with the strings "nan", "inf" and "-inf", as a tensor."""
    if isinstance(value, Tensor):
        return value.to(dtype)
    return torch.tensor(np.array(value, dtype=np.float64), dtype=dtype)


def close(actual: Any, expected: Any, tolerance: dict[str, float], label: str) -> None:
    """Assert |a - b| <= atol + rtol |b|; NaN equals NaN."""
    ours = actual.detach() if isinstance(actual, Tensor) else torch.as_tensor(actual)
    theirs = tensor(expected)
    assert tuple(ours.shape) == tuple(theirs.shape), f"{label}: shape {tuple(ours.shape)}"
    torch.testing.assert_close(
        ours.double(),
        theirs,
        rtol=tolerance["rtol"],
        atol=tolerance["atol"],
        equal_nan=True,
        msg=lambda text: f"{label}: {text}",
    )


def compared(case: dict[str, Any]) -> list[str]:
    """Keys of ``expected`` that must match."""
    return case.get("compare_only", list(case["expected"]))
