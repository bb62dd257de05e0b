"""Reads labelled images from Parquet files in the Hugging Face layout.

A column ``img`` or ``image`` is a struct whose field ``bytes`` is an image in any encoding that
Pillow reads (PNG, WebP, JPEG, ...); a column ``label`` (``fine_label``) is an integer.
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

from tune_calib.data.base import Split
from tune_calib.errors import DamagedFileError, DataNotFoundError

IMAGE_COLUMNS = ("img", "image")
LABEL_COLUMNS = ("label", "fine_label")

# Pillow hands these to programs of the system, which must not see what a user was handed.
_RUN_PROGRAMS = frozenset({"EPS", "WMF"})

# Some are named by a part of their hash too.
_SHARD = re.compile(r"-\d+-of-(\d+)(?:-[0-9a-f]+)?\.parquet$")

_FOLDERS = ("", "plain_text", "data")


def find_parts(
    name: str, root: Path, hint: str, parts: tuple[str, str] = ("train", "test")
) -> tuple[tuple[Path, ...], ...]:
    """Find the files of the training and test part of a data set.

    Args:
        name: of the data set, whose folder they may lie in.
        root: where they are looked for.
        hint: how to get the data.
        parts: how its files call the two.

    Returns:
        The files of both, or nothing if there are none.

    Raises:
        DataNotFoundError: they are there in part only.
    """
    for folder in (parent / below for parent in (root, root / name) for below in _FOLDERS):
        found = tuple(find_shards(folder, part) for part in parts)
        if all(found):
            return found
        if any(found):
            absent = parts[0] if found[1] else parts[1]
            raise DataNotFoundError(f"{name}: {folder} has no {absent}.parquet; {hint}")
    return ()


def find_shards(folder: Path, part: str) -> tuple[Path, ...]:
    """Find ``<part>.parquet``, or the shards ``<part>-00000-of-0000n.parquet`` in order.

    Returns:
        The files; none if the part does not lie there.

    Raises:
        DataNotFoundError: some shards are there and others are not.
    """
    whole = folder / f"{part}.parquet"
    if whole.is_file():
        return (whole,)
    shards = sorted(p for p in folder.glob(f"{part}-*.parquet") if _SHARD.search(p.name))
    if shards:
        match = _SHARD.search(shards[0].name)
        expected = int(match[1]) if match else 0
        if len(shards) != expected:
            raise DataNotFoundError(
                f"{folder} holds {len(shards)} of {expected} files {part}-*.parquet; "
                "download the missing ones"
            )
    return tuple(shards)


def read_images(files: Sequence[Path], channels: int, size: int, classes: int) -> Split:
    """Read and decode all images of some files.

    Args:
        files: Parquet files, in order.
        channels: 1 (decoded as grey) or 3 (decoded as RGB).
        size: height and width that every image must have.
        classes: labels must be in [0, classes).

    Returns:
        Images (N, channels, size, size); ``indices`` are the row numbers.

    Raises:
        DamagedFileError: a file is truncated, foreign, or holds an image or a label that does
            not belong there.
    """
    parts = [_read_file(file, channels, size, classes) for file in files]
    labels = torch.cat([part[1] for part in parts])
    return Split(torch.cat([part[0] for part in parts]), labels, torch.arange(len(labels)))


def _read_file(file: Path, channels: int, size: int, classes: int) -> tuple[Tensor, Tensor]:
    encoded, labels = _read_columns(file)
    if labels.numel() == 0:
        raise DamagedFileError(f"{file} holds no rows; download it again")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        wrong = int(labels[(labels < 0) | (labels >= classes)][0])
        raise DamagedFileError(
            f"{file} holds label {wrong}, expected 0..{classes - 1}; is it another data set?"
        )
    return _decode(file, encoded, channels, size), labels


def _read_columns(file: Path) -> tuple[pa.Array, Tensor]:
    """Encoded images and labels of one file, of the right types and without nulls."""
    try:
        with pq.ParquetFile(file) as parquet:
            schema = parquet.schema_arrow
            image = next((name for name in IMAGE_COLUMNS if name in schema.names), None)
            label = next((name for name in LABEL_COLUMNS if name in schema.names), None)
            if image is None or label is None or not _is_layout(schema, image, label):
                raise DamagedFileError(
                    f"{file} has the columns {', '.join(schema.names)}; expected img or image "
                    "(struct with the field bytes) and label or fine_label (integer)"
                )
            table = parquet.read(columns=[f"{image}.bytes", label])
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedFileError(
            f"{file} is not a whole Parquet file ({reason}); download it again"
        ) from None
    encoded = table[image].combine_chunks().field("bytes")
    labels = table[label]
    if encoded.null_count or labels.null_count:
        raise DamagedFileError(f"{file} has rows without image bytes or label; download it again")
    return encoded, torch.from_numpy(labels.to_numpy().astype("int64"))


def _is_layout(schema: pa.Schema, image: str, label: str) -> bool:
    if not pa.types.is_integer(schema.field(label).type):
        return False
    kind = schema.field(image).type
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return False
    content = kind.field("bytes").type
    return bool(pa.types.is_binary(content) or pa.types.is_large_binary(content))


def _decode(file: Path, encoded: pa.Array, channels: int, size: int) -> Tensor:
    # Pillow in one thread: torchvision's decoder is deprecated, and a thread pool was slower.
    # Else Image.ID names only the formats that Pillow has loaded so far.
    Image.init()
    formats = [name for name in Image.ID if name not in _RUN_PROGRAMS]
    mode = "L" if channels == 1 else "RGB"
    images = np.empty((len(encoded), size, size, channels), np.uint8)
    for row, content in enumerate(encoded.to_pylist()):
        try:
            with Image.open(io.BytesIO(content), formats=formats) as image:
                if image.size != (size, size):
                    raise DamagedFileError(
                        f"{file}: image {row} has {image.width}x{image.height} pixels, "
                        f"expected {size}x{size}; is it another data set?"
                    )
                images[row] = np.asarray(image.convert(mode)).reshape(size, size, channels)
        # Pillow's readers have no error in common; some raise SyntaxError on broken files.
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            raise DamagedFileError(
                f"{file}: row {row} is no image that Pillow reads; download it again"
            ) from None
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
