"""Every kind of image file: decoded as a viewer shows it, or refused in one line."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.data.archives import pixels_of
from tune_calib.data.decode import Format
from tune_calib.errors import DamagedFileError

GREY, COLOUR = pixels_of(0, 16, grey=True), pixels_of(1, 16)
PALETTE = Image.fromarray(COLOUR).quantize(64)
TURNS = {3: Image.Transpose.ROTATE_180, 5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90}


def made(mode: str) -> Image.Image:
    """Return a grey or colour image of the same look in a mode of Pillow."""
    if mode == "I;16":
        return Image.fromarray(GREY.astype(np.uint16) * 257)
    if mode == "F":
        return Image.fromarray(GREY.astype(np.float32))
    if mode == "LAB":
        return Image.new(mode, (16, 16))
    return Image.fromarray(GREY if mode[0] == "L" else COLOUR).convert(mode)


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def decoded(content: bytes, channels: int, **options) -> np.ndarray:
    pixels = Format(channels, 16, **options).decode(content, "the image")
    return pixels[..., 0] if channels == 1 else pixels


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_the_orientation_of_exif_is_applied_but_to_published_archives(turn, kind):
    exif = Image.Exif()
    exif[274] = turn
    stored = Image.fromarray(COLOUR).transpose(TURNS[turn])
    content = encoded(stored, kind, exif=exif)
    assert np.array_equal(decoded(content, 3), COLOUR)
    if kind == "PNG":
        assert np.array_equal(decoded(content, 3, as_stored=True), np.asarray(stored))


def clear(image: Image.Image) -> Image.Image:
    image.putpixel((3, 4), (*COLOUR[4, 3].tolist(), 254))
    return image


REFUSED = {
    "16 bits": (made("I;16"), "PNG", {}),
    "floats": (made("F"), "TIFF", {}),
    "Lab": (made("LAB"), "TIFF", {}),
    "an alpha channel": (clear(made("RGBA")), "PNG", {}),
    "a transparent colour": (made("RGB"), "PNG", {"transparency": (1, 2, 3)}),
    "a transparent entry of a palette": (
        PALETTE, "PNG", {"transparency": PALETTE.getpixel((0, 0))},
    ),
    "frames": (made("L"), "GIF", {"save_all": True, "append_images": [made("RGB")]}),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_images_that_viewers_may_show_otherwise_are_refused_in_one_line(case):
    image, kind, options = REFUSED[case]
    with pytest.raises(DamagedFileError, match=r"^the image .*which viewers show") as error:
        decoded(encoded(image, kind, **options), 1 if image.mode[0] in "LIF" else 3)
    assert "\n" not in str(error.value)


def test_an_unused_transparent_colour_and_a_preview_are_no_obstacle():
    unused = PALETTE.copy()
    content = encoded(unused, "PNG", transparency=200)
    assert np.array_equal(decoded(content, 3), np.asarray(PALETTE.convert("RGB")))
    preview = Image.new("RGB", (16, 16))
    image = encoded(made("RGB"), "MPO", save_all=True, append_images=[preview], quality=100)
    assert np.abs(decoded(image, 3).astype(int) - COLOUR).mean() < 50
