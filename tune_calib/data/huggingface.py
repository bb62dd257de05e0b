"""Labelled images in Parquet files in the Hugging Face layout.

A column of images is a struct whose field ``bytes`` is an image in any encoding that Pillow reads
(PNG, WebP, JPEG, ...). A column of labels contains integers.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from tune_calib.data.base import CHUNK, LazyImages, Places, Split
from tune_calib.data.decode import Format
from tune_calib.errors import DamagedFileError, DataNotFoundError

IMAGE_COLUMNS = ("img", "image")
LABEL_COLUMNS = ("label", "fine_label")

# Some names also contain a part of the hash.
_SHARD = re.compile(r"-\d+-of-(\d+)(?:-[0-9a-f]+)?\.parquet$")

# The last one is SVHN's.
_FOLDERS = ("", "plain_text", "data", "cropped_digits")

_Fits = Callable[[pa.DataType], bool]


@dataclass(frozen=True)
class Columns:
    """Possible names of the columns of images and labels; the first that exists is used.

    With ``guess``, if none of the names exists, the only column of a kind is used.
    """

    image: tuple[str, ...] = IMAGE_COLUMNS
    label: tuple[str, ...] = LABEL_COLUMNS
    guess: bool = False

    def of(self, schema: pa.Schema, file: Path) -> tuple[str, str]:
        """Return the names of the two columns of a file; raise if they have the wrong types."""
        image = self._find(self.image, IMAGE_COLUMNS, schema, _is_image)
        label = self._find(self.label, LABEL_COLUMNS, schema, pa.types.is_integer)
        if image is None or label is None:
            raise DamagedFileError(
                f"{file} has the columns {', '.join(schema.names)}; expected "
                f"{' or '.join(self.image)} (struct with the field bytes) and "
                f"{' or '.join(self.label)} (integer)"
            )
        return image, label

    def _find(
        self, names: Sequence[str], usual: Sequence[str], schema: pa.Schema, fits: _Fits
    ) -> str | None:
        """Return the first name that exists, if it has the type, or the only column that does."""
        fitting = [field.name for field in schema if fits(field.type)]
        for name in names:
            if name in schema.names:
                return name if name in fitting else None
        # Another column must not replace one that the user named.
        is_guess = self.guess and set(usual) <= set(names)
        return fitting[0] if is_guess and len(fitting) == 1 else None


def _is_image(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return False
    content = kind.field("bytes").type
    return bool(pa.types.is_binary(content) or pa.types.is_large_binary(content))


def find_files(root: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the files of the first of some parts that exists below a root, if any."""
    parts = [(root / below, name) for below in _FOLDERS for name in names]
    return next((found for part in parts if (found := find_shards(*part))), ())


def find_parts(
    name: str, root: Path, hint: str, parts: tuple[str, str] = ("train", "test")
) -> tuple[tuple[Path, ...], ...]:
    """Return the files of the training and test part of a data set; raise if one is missing."""
    for folder in (parent / below for parent in (root, root / name) for below in _FOLDERS):
        found = tuple(find_shards(folder, part) for part in parts)
        if all(found):
            return found
        if any(found):
            absent = parts[0] if found[1] else parts[1]
            raise DataNotFoundError(f"{name}: {folder} has no {absent}.parquet; {hint}")
    return ()


def find_shards(folder: Path, part: str) -> tuple[Path, ...]:
    """Return ``<part>.parquet``, or all shards ``<part>-00000-of-0000n.parquet`` in order."""
    whole = folder / f"{part}.parquet"
    if whole.is_file():
        return (whole,)
    shards = sorted(p for p in folder.glob(f"{part}-*.parquet") if _SHARD.search(p.name))
    if shards and (match := _SHARD.search(shards[0].name)) and len(shards) != int(match[1]):
        raise DataNotFoundError(
            f"{folder} has {len(shards)} of {int(match[1])} files {part}-*.parquet; "
            "download the missing ones"
        )
    return tuple(shards)


def lazy_images(
    files: Sequence[Path], format_: Format, classes: int | None, columns: Columns | None = None
) -> Split:
    """Return the images (N, C, H, W) of some files, which are decoded when they are used.

    ``indices`` are the row numbers. Labels must be in [0, classes), unless ``classes`` is None.
    """
    columns = columns or Columns()
    labels = read_labels(files, columns, classes)
    places = torch.arange(len(labels))
    batches: Iterator[Batch] = iter(())
    batch: Batch | None = None

    def read(rows: Places) -> Tensor:
        nonlocal batches, batch
        decoded: dict[int, Any] = {}
        for row in sorted(set(rows.tolist())):  # reading is fastest in order
            if batch is None or row < batch.first:  # passed already: read from the start
                batches = read_batches(files, columns)
                batch = next(batches)
            while row >= batch.first + len(batch.encoded):
                batch = next(batches)
            where = f"{batch.file}: row {row - batch.start}"
            decoded[row] = format_.decode(batch.encoded[row - batch.first].as_py(), where)
        return format_.stack([decoded[row] for row in rows.tolist()])

    return Split(LazyImages(read, format_.shape, places), labels, places)


def read_labels(files: Sequence[Path], columns: Columns, classes: int | None = None) -> Tensor:
    """Read the labels of some files, (N,) int64, in [0, classes) unless ``classes`` is None."""
    labels = []
    for file in files:
        with _in_one_line(file), pq.ParquetFile(file) as parquet:
            _, label = columns.of(parquet.schema_arrow, file)
            column = parquet.read(columns=[label])[label]
        if column.null_count:
            raise _incomplete(file)
        if len(column) == 0:
            raise DamagedFileError(f"{file} has no rows; download it again")
        labels.append(torch.from_numpy(column.to_numpy().astype("int64")))
        require_range(file, labels[-1], classes)
    return torch.cat(labels)


class Batch(NamedTuple):
    """Encoded images, with the row numbers over all files of the first image and of the file."""

    file: Path
    start: int
    first: int
    encoded: pa.Array


def read_batches(files: Sequence[Path], columns: Columns) -> Iterator[Batch]:
    """Yield the encoded images of some files in order."""
    first = 0
    for file in files:
        start = first
        options = {"pre_buffer": False, "buffer_size": 2**20}
        with _in_one_line(file), pq.ParquetFile(file, **options) as parquet:
            image, _ = columns.of(parquet.schema_arrow, file)
            for part in parquet.iter_batches(CHUNK, columns=[f"{image}.bytes"]):
                encoded = part.column(0).field("bytes")
                if encoded.null_count or part.column(0).null_count:
                    raise _incomplete(file)
                yield Batch(file, start, first, encoded)
                first += len(encoded)


@contextmanager
def _in_one_line(file: Path) -> Iterator[None]:
    """Report a damaged file in one line."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedFileError(
            f"{file} is not a complete Parquet file ({reason}); download it again"
        ) from None


def require_range(file: Path, labels: Tensor, classes: int | None) -> None:
    """Raise if labels are not in [0, classes)."""
    is_wrong = (labels < 0) | (labels >= (classes or labels.max() + 1))
    if bool(is_wrong.any()):
        expected = f"0..{classes - 1}" if classes else "0 or above"
        raise DamagedFileError(
            f"{file} has label {int(labels[is_wrong][0])}, expected {expected}; "
            "is it another data set?"
        )


def _incomplete(file: Path) -> DamagedFileError:
    return DamagedFileError(f"{file} has rows without image bytes or label; download it again")
