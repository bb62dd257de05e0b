"""Published hyper-parameters shared by several methods."""

from typing import Any


def as_on_tiny(**values: Any) -> dict[str, dict[str, Any]]:
    """Return a paper's settings for Tiny-ImageNet, which FeDLaS also uses for CUB and Aircraft."""
    return {name: dict(values) for name in ("tiny_imagenet", "cub", "aircraft")}
