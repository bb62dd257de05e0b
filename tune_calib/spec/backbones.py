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
        title: how it is printed; heads of tables leave out what stands in parentheses.
        build: from channels and size of the images and the initialisation to the untrained
            feature extractor, (N, channels, size, size) -> (N, D), and D. It draws from the
            global CPU generator. It raises UserError if the images do not fit.
        has_stages: it can be run stage by stage (``declare_stages``).
        norm: constants (``data.norm``) that weights of others expect; None where nobody can
            know.
        norm_from: height of the images from which on they do.
        trained_on: of published weights, hash of the file to the data set whose whole training
            part they were trained on.
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
