"""Backbones from a function in a user's file, whose module is split before its last layer.

``--backbone FILE.py:FUNCTION``. The function returns a module, which is either a whole classifier,
whose logits are the output of a linear layer, or an extractor, which returns features.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tune_calib.errors import UserError, locate_error
from tune_calib.models.network import evaluating, name_last_layer
from tune_calib.spec.backbones import Init

PROBE = 4  # number of images used to locate the features


def build(
    channels: int, size: int, init: Init, *, name: str, function: Callable[[], Any]
) -> tuple[nn.Module, int]:
    """Call the function, split its module, and return the extractor and the number of features.

    The initial weights are those of the function; ``init`` is ignored.
    """
    del init
    module = _run(name, function, function)
    if not isinstance(module, nn.Module):
        raise UserError(f"{name} returns a {type(module).__name__}, not a torch.nn.Module")
    chance = torch.Generator().manual_seed(0)
    images = torch.randn(PROBE, channels, size, size, generator=chance)
    with evaluating(module):
        return _cut(name, function, module, images)


def _run(name: str, function: Callable[[], Any], work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (Exception, SystemExit) as error:
        file = function.__code__.co_filename
        text = locate_error(error, lambda path: path == file)
        raise UserError(f"{name}: {text}") from None


@torch.no_grad()
def _cut(
    name: str, function: Callable[[], Any], module: nn.Module, images: Tensor
) -> tuple[nn.Module, int]:
    calls: list[tuple[str, Tensor, Tensor]] = []

    def record_call(path: str, _: nn.Module, args: Any, kwargs: Any, layer_output: Tensor) -> None:
        calls.append((path, *args, *kwargs.values(), layer_output))

    hooks = []
    for path, part in module.named_modules():
        if isinstance(part, nn.Linear) and path:
            hook = part.register_forward_hook(partial(record_call, path), with_kwargs=True)
            hooks.append(hook)
    output = _run(name, function, lambda: module(images))
    for hook in hooks:
        hook.remove()
    if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != PROBE:
        returned = type(output).__name__
        if isinstance(output, Tensor):
            returned = str(tuple(output.shape))
        raise UserError(
            f"{name}: it returns {returned}, but it must return logits or features ({PROBE}, D)"
        )
    for path, features, logits in reversed(calls):
        if not torch.equal(logits, output):
            continue
        features = _without(name, module, path, features, output)
        if not _is_close(module(images), features):
            raise UserError(
                f"{name}: its logits are not those of its last linear layer, {path}; return them"
            )
        name_last_layer(module, path)
        return module, features.shape[1]
    name_last_layer(module, None)
    return module, output.shape[1]


def _without(name: str, module: nn.Module, path: str, features: Tensor, logits: Tensor) -> Tensor:
    parent, _, layer_name = path.rpartition(".")
    layer: Any = module.get_submodule(path)
    again = F.linear(features, layer.weight, layer.bias)
    if features.ndim != 2 or not _is_close(again, logits):
        raise UserError(f"{name}: its last layer, {path}, is not a linear layer on features (N, D)")
    setattr(module.get_submodule(parent), layer_name, nn.Identity())
    return features


def _is_close(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and torch.allclose(first, second, rtol=1e-4, atol=1e-5)
