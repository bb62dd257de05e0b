"""Decoding of images with Pillow, with errors for damaged images and wrong formats."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tune_calib.data.base import LazyImages, Places, Split
from tune_calib.errors import DamagedFileError

# Modes of Pillow without colour.
_GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "F"})

# Pillow's readers have no common error; some raise SyntaxError for broken files.
_NO_IMAGE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


@dataclass(frozen=True)
class Format:
    """The format of the images of a data set."""

    channels: int  # 1 (grey) or 3 (RGB)
    size: int  # height and width, in pixels
    # Resize images of another size, bilinearly as in the papers; otherwise they are an error.
    resize: bool = False
    convert_grey: bool = False  # convert grey images of a colour set; otherwise they are an error

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return (C, H, W)."""
        return self.channels, self.size, self.size

    def decode(self, content: bytes | Path, where: str) -> NDArray[np.uint8]:
        """Return the pixels (size, size, channels) of an image, called ``where`` in messages."""
        side = (self.size, self.size)
        try:
            with opened(content) as image:
                if not self.resize and image.size != side:
                    raise DamagedFileError(
                        f"{where} has {image.width}x{image.height} pixels, expected "
                        f"{self.size}x{self.size}; is it another data set?"
                    )
                if self.channels == 3 and image.mode in _GREY and not self.convert_grey:
                    raise DamagedFileError(
                        f"{where} is grey, but the data set has colour images; is it another data "
                        "set?"
                    )
                pixels = image.convert("L" if self.channels == 1 else "RGB")
        except _NO_IMAGE:
            raise _damaged(where) from None
        if pixels.size != side:
            pixels = pixels.resize(side, Image.Resampling.BILINEAR)
        return np.asarray(pixels).reshape(*side, self.channels)

    def stack(self, pixels: Sequence[NDArray[np.uint8]]) -> Tensor:
        """Return decoded images as one tensor (N, C, H, W)."""
        if not pixels:
            return torch.empty((0, *self.shape), dtype=torch.uint8)
        return torch.from_numpy(np.ascontiguousarray(np.stack(pixels).transpose(0, 3, 1, 2)))


def _damaged(where: str) -> DamagedFileError:
    return DamagedFileError(f"{where} is not an image that Pillow can read; download it again")


def opened(content: bytes | Path) -> Image.Image:
    """Open an encoded image without reading its pixels, in formats that run no other program."""
    source = io.BytesIO(content) if isinstance(content, bytes) else content
    return Image.open(source, "r", _formats())


@cache
def _formats() -> list[str]:
    """Return the formats to try, with those of data sets first, which saves most of the time."""
    # Without this, Image.ID contains only the formats that Pillow has loaded so far.
    Image.init()
    first = [name for name in ("PNG", "JPEG", "WEBP") if name in Image.ID]
    # Pillow passes EPS and WMF to programs of the system, which must not get untrusted files.
    return [*first, *(name for name in Image.ID if name not in (*first, "EPS", "WMF"))]


def is_grey(content: bytes | Path) -> bool:
    """Return whether an image has no colours, or False if it cannot be read."""
    try:
        with opened(content) as image:
            return image.mode in _GREY
    except _NO_IMAGE:
        return False


def side_of(content: bytes | Path, where: str) -> int | None:
    """Return the height and width of an image if they are equal, otherwise None."""
    try:
        with opened(content) as image:
            return image.width if image.width == image.height else None
    except _NO_IMAGE:
        raise _damaged(where) from None


def split_of_files(images: Sequence[tuple[Path, int]], format_: Format) -> Split:
    """Return a split from image files and their labels; images are decoded when they are used."""
    files, labels = zip(*images, strict=True)

    def read(rows: Places) -> Tensor:
        return format_.stack([format_.decode(files[row], str(files[row])) for row in rows])

    places = torch.arange(len(files))
    return Split(LazyImages(read, format_.shape, places), torch.tensor(labels), places)
