"""Decoding of images with Pillow, with errors for damaged images and wrong formats."""

import io
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageOps
from torch import Tensor

from tune_calib.data.base import LazyImages, Places, Split
from tune_calib.errors import DamagedFileError

_MODES = {1: "L", 3: "RGB"}  # modes of Pillow, by number of channels

# Modes of Pillow without colour.
_GREY = frozenset({"1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "F"})

# Modes of Pillow that it converts to L or RGB without a change of what is seen.
_PLAIN = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV")

_SAMPLE_FORMAT = 339  # a tag of TIFF

# Pillow's readers have no common error; some raise SyntaxError for broken files.
_NO_IMAGE = (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError)


@dataclass(frozen=True)
class Format:
    channels: int  # 1 (grey) or 3 (RGB)
    size: int  # height and width, in pixels
    # Resize images of another size, bilinearly as in the papers; otherwise they are an error.
    resize: bool = False
    convert_grey: bool = False  # convert grey images of a colour set; otherwise they are an error
    # Decode images of known archives as the papers' programs do, without EXIF orientation; others
    # are decoded as viewers show them.
    as_stored: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.size, self.size

    def decode(self, content: bytes | Path, where: str) -> NDArray[np.uint8]:
        side = (self.size, self.size)
        with opened(content, where) as image:
            if not self.resize and image.size != side:
                what = f"has {image.width}x{image.height} pixels, expected {self.size}x{self.size}"
                mend = f"data.resize={self.size} to resize all images"
                raise self._refused(where, what, mend)
            is_grey = image.mode in _GREY
            pixels = image if self.as_stored else _shown(image, where)
            if self.channels == 3 and is_grey and not self.convert_grey:
                what = "is grey, but the data set has colour images"
                raise self._refused(where, what, "data.grey=convert to convert grey images")
            if self.channels == 1 and not self.convert_grey and _has_colours(pixels):
                what = "has colours, but the first image of each class is grey"
                raise self._refused(where, what, "data.grey=convert to have all in colour")
            pixels = pixels.convert(_MODES[self.channels])
        if pixels.size != side:
            pixels = pixels.resize(side, Image.Resampling.BILINEAR)
        return np.asarray(pixels).reshape(*side, self.channels)

    def _refused(self, where: str, what: str, mend: str) -> DamagedFileError:
        hint = "is it another data set?" if self.as_stored else f"set {mend}"
        return DamagedFileError(f"{where} {what}; {hint}")

    def stack(self, pixels: Sequence[NDArray[np.uint8]]) -> Tensor:
        if not pixels:
            return torch.empty((0, *self.shape), dtype=torch.uint8)
        return torch.from_numpy(np.ascontiguousarray(np.stack(pixels).transpose(0, 3, 1, 2)))


def _shown(image: Image.Image, where: str) -> Image.Image:
    """Return an image in L or RGB as viewers show it; refuse it if they may show it differently."""
    mode, kind = image.mode, image.format
    is_signed = 2 in getattr(image, "tag_v2", {}).get(_SAMPLE_FORMAT, ())
    is_plain = mode in _PLAIN and not is_signed
    frames = getattr(image, "n_frames", 1)
    if kind in ("MPO", "PSD"):  # which add previews, and layers
        frames = 1
    # The transparent colour of a PNG has the bits of its file, which the pixels may have lost.
    is_clear = kind == "PNG" and mode != "P" and "transparency" in image.info
    ImageOps.exif_transpose(image, in_place=True)
    if is_plain and image.has_transparency_data:
        image = image.convert("RGBA")
        is_clear |= image.getchannel("A").getextrema() != (255, 255)
    if is_clear or frames > 1 or not is_plain:
        raise DamagedFileError(
            f"{where} (mode {mode}, frames: {frames}) has transparent pixels, several frames, or "
            "pixels whose range or colours are not known, which viewers show differently; save it "
            "as one 8-bit grey or RGB image without transparency"
        )
    return image.convert("L" if mode in _GREY else "RGB")


def _has_colours(image: Image.Image) -> bool:
    red, *others = image.convert("RGB").split()
    return any(ImageChops.difference(red, other).getbbox() for other in others)


@contextmanager
def opened(content: bytes | Path, where: str) -> Iterator[Image.Image]:
    """Open an encoded image, called ``where`` in messages, in formats that run no other program."""
    source = io.BytesIO(content) if isinstance(content, bytes) else content
    try:
        with Image.open(source, "r", _formats()) as image:
            yield image
    except _NO_IMAGE:
        message = f"{where} is not an image that Pillow can read; download it again"
        raise DamagedFileError(message) from None


@cache
def _formats() -> list[str]:
    """Return the formats to try, with those of data sets first, which saves most of the time."""
    # Without this, Image.ID contains only the formats that Pillow has loaded so far.
    Image.init()
    first = [name for name in ("PNG", "JPEG", "WEBP") if name in Image.ID]
    # Pillow passes EPS and WMF to programs of the system, which must not get untrusted files.
    return [*first, *(name for name in Image.ID if name not in (*first, "EPS", "WMF"))]


def scan_headers(images: Iterable[tuple[bytes | Path, str]]) -> tuple[bool, int | None]:
    side = None
    for number, (content, where) in enumerate(images):
        with opened(content, where) as image:
            mode, (width, height) = image.mode, image.size
        if number == 0 and width == height:
            side = width
        if mode not in _GREY:
            return False, side
    return True, side


def split_of_files(images: Sequence[tuple[Path, int]], format_: Format) -> Split:
    files, labels = zip(*images, strict=True)

    def read(rows: Places) -> Tensor:
        return format_.stack([format_.decode(files[row], str(files[row])) for row in rows])

    places = torch.arange(len(files))
    return Split(LazyImages(read, format_.shape, places), torch.tensor(labels), places)
