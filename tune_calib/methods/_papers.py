"""Hyper-parameters of several methods in their papers."""

from typing import Any


def as_on_tiny(**values: Any) -> dict[str, dict[str, Any]]:
    """Return a paper's settings on Tiny-ImageNet; FeDLaS takes the same on CUB and Aircraft."""
    return {name: dict(values) for name in ("tiny_imagenet", "cub", "aircraft")}
