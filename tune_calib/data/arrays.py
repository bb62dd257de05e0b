"""Arrays in files that others wrote, read some rows at a time.

npy, npz, safetensors, Parquet and HDF5. Nothing is unpickled: an array of Python objects is refused
where it is asked for.
"""

import importlib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from tune_calib.errors import DamagedFileError, UserError

Rows = NDArray[Any]

CHUNK = 2**22
"""Numbers that are read at a time."""

_PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib")
_FLOATS = (torch.float16, torch.float32, torch.float64)  # those that numpy has
_WAY_OUT = "write it by numpy.savez(FILE, logits=..., labels=...)"


@dataclass(frozen=True)
class Array:
    """An array of a file.

    Attributes:
        path: of the file.
        name: in the file; none where it is all of it.
        shape: of it, at least one axis; the first one is that of samples.
        dtype: of its numbers.
        read: from a number of rows to the array, so many rows at a time.
    """

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[int], Iterator[Rows]]

    @property
    def told(self) -> str:
        """How messages name it, e.g. ``test.npz:logits``."""
        return f"{self.path}:{self.name}" if self.name else str(self.path)

    def chunks(self, rows: int | None = None) -> Iterator[Rows]:
        """Its rows, so many at a time; as many as ``CHUNK`` numbers are unless said.

        Raises:
            DamagedFileError: the file ends too early, or is damaged.
        """
        width = int(np.prod(self.shape[1:])) or 1
        seen = 0
        with _damage(self.told):
            for chunk in self.read(rows or max(1, CHUNK // width)):
                seen += len(chunk)
                yield chunk
        if seen != self.shape[0]:
            raise DamagedFileError(f"{self.told} ends behind {seen} of {self.shape[0]} rows")

    def refuse_objects(self) -> None:
        """Refuse an array of Python objects.

        Raises:
            UserError: it is one.
        """
        if self.dtype.hasobject:
            raise UserError(f"{self.told} holds Python objects, which are not read; {_WAY_OUT}")

    def whole(self) -> Rows:
        """All of it, in memory."""
        return np.concatenate([*self.chunks()]) if self.shape[0] else np.empty(self.shape)


def arrays_in(path: Path) -> dict[str, Array]:
    """The arrays of a file by name; that of a npy file has the file's. Lone numbers are no arrays.

    Raises:
        UserError: there is no such file, or it is of another format.
        DamagedFileError: it cannot be read.
    """
    suffix = path.suffix.lower()
    if suffix in _PICKLED:
        raise UserError(f"{path}: to read a pickle is to run what is in it; {_WAY_OUT}")
    if suffix not in _FORMATS:
        raise UserError(f"{path} is none of {', '.join(_FORMATS)}; {_WAY_OUT}")
    if not path.is_file():
        raise UserError(f"{path} is not there; is the path right?")
    with _damage(str(path)):
        found: dict[str, Array] = _FORMATS[suffix](path)
    return {name: array for name, array in found.items() if array.shape}


@contextmanager
def _damage(told: str) -> Iterator[None]:
    """What libraries say of damaged files, as one line."""
    try:
        yield
    except (
        OSError, ValueError, KeyError, EOFError, RuntimeError, NotImplementedError, zlib.error,
        zipfile.BadZipFile, SafetensorError, pa.ArrowException,
    ) as error:  # fmt: skip
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DamagedFileError(f"{told} cannot be read ({reason}); {_WAY_OUT}") from None


def _npy(path: Path) -> dict[str, Array]:
    with path.open("rb") as file:
        shape, _, dtype = _header(file)

    def read(rows: int) -> Iterator[Rows]:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        return (np.array(mapped[first : first + rows]) for first in range(0, len(mapped), rows))

    return {path.stem: Array(path, "", shape, dtype, read)}


def _npz(path: Path) -> dict[str, Array]:
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            name = member.removesuffix(".npy")
            with archive.open(member) as file:
                shape, is_fortran, dtype = _header(file)
            read = partial(_read_member, path, member, is_fortran)
            found[name] = Array(path, name, shape, dtype, read)
    return found


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    return read(file)


def _read_member(path: Path, member: str, is_fortran: bool, rows: int) -> Iterator[Rows]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as file:
        if is_fortran:  # by columns: no row is there before the last one
            whole = np.lib.format.read_array(file, allow_pickle=False)
            yield from (whole[first : first + rows] for first in range(0, len(whole), rows))
            return
        shape, _, dtype = _header(file)
        size = dtype.itemsize * int(np.prod(shape[1:]))
        for first in range(0, shape[0], rows):
            count = min(rows, shape[0] - first)
            values = np.frombuffer(file.read(count * size), dtype)
            yield values.reshape(count, *shape[1:])


def _safetensors(path: Path) -> dict[str, Array]:
    # By torch: numpy has no bfloat16, and no number of 8 bits.
    with safe_open(path, "pt") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        shapes = {name: tuple(each.get_shape()) for name, each in slices.items()}
        # A lone number has no slices.
        types = {name: _plain(each[:0]).dtype for name, each in slices.items() if shapes[name]}

    def read(name: str, rows: int) -> Iterator[Rows]:
        with safe_open(path, "pt") as file:
            there = file.get_slice(name)
            for first in range(0, shapes[name][0], rows):
                yield _plain(there[first : first + rows])

    return {
        name: Array(path, name, shapes[name], dtype, partial(read, name))
        for name, dtype in types.items()
    }


def _plain(tensor: torch.Tensor) -> Rows:
    known = not tensor.is_floating_point() or tensor.dtype in _FLOATS
    values: Rows = (tensor if known else tensor.float()).numpy()
    return values


def _parquet(path: Path) -> dict[str, Array]:
    with pq.ParquetFile(path) as file:
        count, schema = file.metadata.num_rows, file.schema_arrow
        first = next(file.iter_batches(batch_size=1), None)
    found = {}
    for field in schema:
        is_list = any(is_one(field.type) for is_one in _LISTS)
        numbers = field.type.value_type if is_list else field.type
        # Texts and images beside what is asked for are passed over.
        if not (pa.types.is_integer(numbers) or pa.types.is_floating(numbers)):
            continue
        row = first.column(field.name)[0].as_py() if first is not None else None
        width = (len(row or ()),) if is_list else ()
        read = partial(_read_column, path, field.name, width)
        dtype = np.dtype(numbers.to_pandas_dtype())
        found[field.name] = Array(path, field.name, (count, *width), dtype, read)
    return found


_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def _read_column(path: Path, name: str, width: tuple[int, ...], rows: int) -> Iterator[Rows]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=rows, columns=[name]):
            column = batch.column(0)
            values = column.flatten() if width else column
            if column.null_count or values.null_count:
                raise ValueError("a value is missing")
            if len(values) != len(column) * int(np.prod(width)):
                raise ValueError("its rows differ in length")
            yield values.to_numpy(zero_copy_only=False).reshape(len(column), *width)


def _hdf5(path: Path) -> dict[str, Array]:
    try:
        h5py = importlib.import_module("h5py")
    except ImportError:
        raise UserError(
            f"{path}: HDF5 files need h5py: pip install tune-calib[hdf5], or {_WAY_OUT}"
        ) from None

    def read(name: str, rows: int) -> Iterator[Rows]:
        with h5py.File(path, "r") as file:
            there = file[name]
            for first in range(0, len(there), rows):
                yield there[first : first + rows]

    found = {}

    def visit(name: str, node: Any) -> None:
        if not isinstance(node, h5py.Dataset):
            return
        # Names that a foreign file holds may lead to any file of this machine.
        if node.external or node.is_virtual:
            raise UserError(
                f"{path}: {name} keeps its numbers in other files, which are not read; {_WAY_OUT}"
            )
        if node.shape:
            found[name] = Array(path, name, node.shape, node.dtype, partial(read, name))

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return found


_FORMATS: dict[str, Callable[[Path], dict[str, Array]]] = {
    ".npz": _npz,
    ".npy": _npy,
    ".safetensors": _safetensors,
    ".parquet": _parquet,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
}
