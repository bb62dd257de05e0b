"""Labelled images in Parquet files in the Hugging Face layout.

A column of images is a struct whose field ``bytes`` is an image in any encoding that Pillow reads
(PNG, WebP, JPEG, ...). A column of labels contains integers, which the schema may name.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from tune_calib.data.base import CHUNK, LazyImages, Places, Split
from tune_calib.data.decode import Format
from tune_calib.errors import DamagedFileError, DataNotFoundError, reading

IMAGE_COLUMNS = ("img", "image")
LABEL_COLUMNS = ("label", "fine_label")

# Some names also contain a part of the hash.
_SHARD = re.compile(r"-(\d+)-of-(\d+)(-[0-9a-f]+)?\.parquet$")

_DAMAGE = ("is not a complete Parquet file", "download it again")

_FOLDERS = ("", "plain_text", "data", "cropped_digits")  # the last one is SVHN's

_Fits = Callable[[pa.DataType], bool]


@dataclass(frozen=True)
class Columns:
    """Possible names of the columns of images and labels; the first that exists is used."""

    image: tuple[str, ...] = IMAGE_COLUMNS
    label: tuple[str, ...] = LABEL_COLUMNS
    guess: bool = False  # whether the only column of a kind is used if none of the names exists
    classes: tuple[str, ...] | None = None  # names of the classes in order, if known
    agree: bool = False  # whether all files must have such names, or none

    def settled(self, file: Path) -> "Columns":
        with reading(file, *_DAMAGE), pq.ParquetFile(file) as parquet:
            schema = parquet.schema_arrow
        image, label = self.of(schema, file)
        classes, agree = self.classes or _class_names(schema, label), not self.classes
        return replace(self, image=(image,), label=(label,), classes=classes, agree=agree)

    def of(self, schema: pa.Schema, file: Path) -> tuple[str, str]:
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
        fitting: list[str] = [field.name for field in schema if fits(field.type)]
        for name in names:
            if name in fitting:
                return name
            if name in schema.names:
                return None
        # Another column must not replace one that the user named.
        if self.guess and set(usual) <= set(names) and len(fitting) == 1:
            return fitting[0]
        return None


def _class_names(schema: pa.Schema, label: str) -> tuple[str, ...] | None:
    with suppress(ValueError, KeyError, TypeError):
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return tuple(map(str, features[label]["names"]))
    return None


def _is_image(kind: pa.DataType) -> bool:
    if not pa.types.is_struct(kind) or kind.get_field_index("bytes") < 0:
        return False
    content = kind.field("bytes").type
    return bool(pa.types.is_binary(content) or pa.types.is_large_binary(content))


def find_files(root: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    for below, name in product(_FOLDERS, names):
        if files := find_shards(root / below, name):
            return files
    return ()


def find_parts(
    name: str, root: Path, hint: str, parts: tuple[str, str] = ("train", "test")
) -> tuple[tuple[Path, ...], ...]:
    for parent, below in product((root, root / name), _FOLDERS):
        folder = parent / below
        files = {part: find_shards(folder, part) for part in parts}
        absent = [part for part in parts if not files[part]]
        if not absent:
            return tuple(files.values())
        if len(absent) == 1:
            raise DataNotFoundError(f"{name}: {folder} has no {absent[0]}.parquet; {hint}")
    return ()


def find_shards(folder: Path, part: str) -> tuple[Path, ...]:
    """Return ``<part>.parquet``, or all shards ``<part>-00000-of-0000n.parquet`` in order."""
    single = folder / f"{part}.parquet"
    files = [file for file in sorted(folder.glob(f"{part}-*.parquet")) if _SHARD.search(file.name)]
    if not files:
        return (single,) if single.is_file() else ()
    names = [match for file in files if (match := _SHARD.search(file.name))]
    numbers, count = sorted(int(name[1]) for name in names), int(names[0][2])
    # All shards of one upload have a hash in their names, or none has.
    is_one_upload = len({(int(name[2]), bool(name[3])) for name in names}) == 1
    is_whole = numbers in ([*range(count)], [*range(1, count + 1)])
    if single.is_file() or not is_whole or not is_one_upload:
        raise DamagedFileError(
            f"{folder} has {len(files)} of {count} files {part}-*.parquet, or some of several "
            "uploads; download the missing ones, and keep those of one upload"
        )
    return tuple(files)


def lazy_images(
    files: Sequence[Path], format_: Format, classes: int | None, columns: Columns | None = None
) -> Split:
    """Return the images (N, C, H, W) of some files, which are decoded when they are used."""
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
            place = row - batch.first
            decoded[row] = format_.decode(batch.encoded[place].as_py(), batch.name(place))
        return format_.stack([decoded[row] for row in rows.tolist()])

    return Split(LazyImages(read, format_.shape, places), labels, places)


def read_labels(files: Sequence[Path], columns: Columns, classes: int | None = None) -> Tensor:
    """Read labels (N,) int64, in [0, classes), numbered as in ``columns.classes`` if named."""
    labels = []
    for file in files:
        with reading(file, *_DAMAGE), pq.ParquetFile(file) as parquet:
            schema = parquet.schema_arrow
            _, label = columns.of(schema, file)
            column = parquet.read(columns=[label])[label]
        if column.null_count:
            raise _incomplete(file)
        if len(column) == 0:
            raise DamagedFileError(f"{file} has no rows; download it again")
        stored = torch.from_numpy(column.to_numpy().astype("int64"))
        names = _class_names(schema, label)
        require_range(file, stored, len(names) if names else classes)
        labels.append(_renumbered(stored, names, columns, file))
        require_range(file, labels[-1], classes)
    return torch.cat(labels)


def _renumbered(
    labels: Tensor, names: tuple[str, ...] | None, columns: Columns, file: Path
) -> Tensor:
    classes = columns.classes
    if columns.agree and (names is None) != (classes is None):
        verb = "names" if names else "only numbers"
        raise DamagedFileError(
            f"{file} {verb} its classes, unlike the first training file; give the names in the "
            "order of the numbers: data.classes=[...]"
        )
    if names is None or classes is None or names == classes:
        return labels
    numbers = dict(zip(classes, range(len(classes)), strict=True))
    for label in labels.unique().tolist():
        name = names[label]
        if name not in numbers or names.count(name) > 1:
            raise DamagedFileError(
                f"{file} has images of class {name!r}, which is not one of the {len(classes)} "
                f"classes of the first training file ({classes[0]}, ...), or stands twice"
            )
    return torch.tensor([numbers.get(name, -1) for name in names])[labels]


class Batch(NamedTuple):
    file: Path
    start: int  # row number of the file over all files
    first: int  # row number of the first image over all files
    encoded: pa.Array

    def name(self, place: int) -> str:
        return f"{self.file}: row {self.first - self.start + place}"

    def images(self) -> Iterator[tuple[bytes, str]]:
        for place, content in enumerate(self.encoded.to_pylist()):
            yield content, self.name(place)


def read_batches(files: Sequence[Path], columns: Columns) -> Iterator[Batch]:
    first = 0
    for file in files:
        start = first
        options = {"pre_buffer": False, "buffer_size": 2**20}
        with reading(file, *_DAMAGE), pq.ParquetFile(file, **options) as parquet:
            image, _ = columns.of(parquet.schema_arrow, file)
            for part in parquet.iter_batches(CHUNK, columns=[f"{image}.bytes"]):
                encoded = part.column(0).field("bytes")
                if encoded.null_count or part.column(0).null_count:
                    raise _incomplete(file)
                yield Batch(file, start, first, encoded)
                first += len(encoded)


def require_range(file: Path, labels: Tensor, classes: int | None) -> None:
    is_wrong = (labels < 0) | (labels >= (classes or labels.max() + 1))
    if bool(is_wrong.any()):
        expected = f"0..{classes - 1}" if classes else "0 or above"
        raise DamagedFileError(
            f"{file} has label {int(labels[is_wrong][0])}, expected {expected}; "
            "is it another data set?"
        )


def _incomplete(file: Path) -> DamagedFileError:
    return DamagedFileError(f"{file} has rows without image bytes or label; download it again")
