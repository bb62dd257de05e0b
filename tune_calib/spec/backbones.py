"""Records of backbones, and their registry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tune_calib.registry import Registry

Init = Literal["reference", "timm"]


@dataclass(frozen=True)
class BackboneInfo:
    """A backbone as registered in ``BACKBONES``.

    Attributes:
        name: registry key.
        title: printed name; table headings omit the part in parentheses.
        build: maps channels and size of the images and the initialisation to the untrained
            feature extractor, (N, channels, size, size) -> (N, D), and D. It draws from the
            global CPU generator and raises UserError if the images do not fit.
        has_stages: whether it can be run stage by stage (``declare_stages``).
        norm: constants (``data.norm``) that weights from elsewhere expect; None if unknown.
        norm_from: smallest height of the images for which they expect them.
        trained_on: for published weights, maps the hash of the file to the data set whose whole
            training part they were trained on.
    """

    name: str
    title: str
    build: Callable[[int, int, Init], tuple[Any, int]]
    has_stages: bool = True
    norm: str | tuple[tuple[float, ...], tuple[float, ...]] | None = None
    norm_from: int = 0
    trained_on: Mapping[str, str] = field(default_factory=dict)


BACKBONES: Registry[BackboneInfo] = Registry(
    "backbone", "tune_calib.models.backbones", BackboneInfo
)
