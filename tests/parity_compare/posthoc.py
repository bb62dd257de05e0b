"""Post-hoc maps against the authors' numbers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.parity_compare import close, compared, tensor
from tune_calib.methods._posthoc import FittedAlone
from tune_calib.spec.methods import METHODS

DTYPE = torch.float64


def _logits(case: dict[str, Any], name: str = "logits") -> Tensor:
    return tensor(case["inputs"][name], DTYPE)


def _labels(case: dict[str, Any]) -> Tensor:
    return torch.tensor(case["inputs"]["targets"])


def _close(case: dict[str, Any], actual: dict[str, Any]) -> None:
    """Compare what the case asks for."""
    for name in compared(case):
        close(actual[name], case["expected"][name], case["tolerance"], f"{case['id']} {name}")


def _method(name: str, **settings: Any) -> FittedAlone:
    info = METHODS[name]
    method: FittedAlone = info.implementation(info.params(**settings))
    return method


def hb_toplabel(case: dict[str, Any]) -> None:
    method = _method("histogram_toplabel", points_per_bin=case["hyperparameters"]["points_per_bin"])
    state = method.fit_one(_logits(case), _labels(case)).state
    probs = method.apply(_logits(case, "eval_logits"), state).softmax(-1)
    if "eval_top_prob" in compared(case):
        top = case["expected"]["eval_top_prob"]
        close(probs.amax(-1), top, case["tolerance"], case["id"])


COMPARERS: dict[str, Callable[[dict[str, Any]], None]] = {"hb_toplabel": hb_toplabel}
