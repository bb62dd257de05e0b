"""Arrays in users' files (npy, npz, safetensors, Parquet, HDF5) and the role of each.

A file is given as ``FILE``, where arrays are recognised by their names (``ROLES``), as
``ROLE=FILE``, or as ``ROLE=FILE:KEY``. A split may consist of several files. Nothing is unpickled.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from tune_calib.errors import UserError, reading
from tune_calib.files.paths import expand_path

Rows = NDArray[Any]
_Names = Mapping[str, tuple[str, ...]]

ROLES: _Names = {
    "logits": ("logits", "logit"),
    "probs": ("probs", "prob", "probabilities", "probas"),
    "features": ("features", "feature", "feats", "embeddings"),
    "labels": ("labels", "label", "targets", "target", "y"),
    "groups": (),  # only as groups=FILE:KEY, since they change the splits
}
"""Roles of the arrays of a split, and the names by which they are recognised."""

HEAD_ROLES: _Names = {
    "weight": ("weight", "head.weight", "fc.weight", "classifier.weight", "linear.weight"),
    "bias": ("bias", "head.bias", "fc.bias", "classifier.bias", "linear.bias"),
}

_PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".joblib")
_FIX = "save it with numpy.savez(FILE, logits=..., labels=...)"
_DAMAGE = ("cannot be read", f"copy it again, or {_FIX}")


@dataclass(frozen=True)
class Array:
    path: Path
    name: str

    def __str__(self) -> str:
        """Return the name for messages, e.g. ``test.npz:logits``."""
        if self.path.suffix.lower() == ".npy":
            return str(self.path)
        return f"{self.path}:{self.name}"

    def read(self) -> Rows:
        """Read the whole array; npy and safetensors files are memory-mapped."""
        with reading(Path(str(self)), *_DAMAGE):
            return FORMATS[self.path.suffix.lower()][1](self.path, self.name)


def arrays_in(path: Path) -> Mapping[str, Array]:
    suffix = path.suffix.lower()
    if suffix in _PICKLED:
        raise UserError(f"{path}: reading a pickle could run code; {_FIX}")
    if suffix not in FORMATS:
        raise UserError(f"{path} is not one of {', '.join(FORMATS)}; {_FIX}")
    if not path.is_file():
        raise UserError(f"{path} does not exist; is the path correct?")
    with reading(path, *_DAMAGE):
        return _list_arrays(path, path.stat().st_mtime_ns)


# A file may hold thousands of imports, each of which looks up its arrays.
@lru_cache(maxsize=4)
def _list_arrays(path: Path, _: int) -> Mapping[str, Array]:
    return {name: Array(path, name) for name in FORMATS[path.suffix.lower()][0](path)}


def find_arrays(setting: str, files: Sequence[str], roles: _Names) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for text in files:
        for role, array in _arrays_with_roles(setting, text, roles):
            if role in arrays:
                raise UserError(f"{arrays[role]} and {array} are both {role}; use {role}=FILE:KEY")
            arrays[role] = array
    return arrays


def _arrays_with_roles(setting: str, text: str, roles: _Names) -> Iterator[tuple[str, Array]]:
    """Yield the arrays that a text names (FILE, ROLE=FILE or ROLE=FILE:KEY), with their roles."""
    named_role, equals, path = text.partition("=")
    if not equals or named_role not in roles:
        arrays = arrays_in(expand_path(text))
        for role, names in roles.items():
            yield from ((role, arrays[name]) for name in names if name in arrays)
        return
    key = ""
    if ":" in path and not expand_path(path).exists():
        path, _, key = path.rpartition(":")
    arrays = arrays_in(expand_path(path))
    if not key and len(arrays) == 1:
        key = next(iter(arrays))
    if key not in arrays:
        problem = f"no {key!r}" if key else "several arrays"
        raise UserError(
            f"{setting} {text}: {path} has {problem}; it has {', '.join(arrays) or 'none'}: use "
            f"{named_role}=FILE:KEY"
        )
    yield named_role, arrays[key]


def describe_roles(roles: _Names) -> str:
    names = "; ".join("/".join(accepted) for accepted in roles.values() if accepted)
    return f"arrays are recognised by these names: {names}; use ROLE=FILE:KEY for others"


def _names_in_npz(path: Path) -> list[str]:
    with np.load(path) as file:
        return list(file)


def _read_npz(path: Path, name: str) -> Rows:
    with np.load(path) as file:
        return np.asarray(file[name])


def _names_in_safetensors(path: Path) -> list[str]:
    with safe_open(path, "pt") as file:
        return list(file.keys())


def _read_safetensors(path: Path, name: str) -> Rows:
    # With torch, since NumPy has no bfloat16 and no 8-bit floats.
    with safe_open(path, "pt") as file:
        tensor: torch.Tensor = file.get_tensor(name)
    if tensor.is_floating_point() and tensor.dtype not in (torch.float16, torch.float64):
        tensor = tensor.float()
    return tensor.numpy()


def _names_in_parquet(path: Path) -> list[str]:
    names = []
    for column in pq.read_schema(path):
        kind = column.type
        if hasattr(kind, "value_field"):  # a list
            kind = kind.value_type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        # Labels as text are refused where labels are checked, rather than not found.
        if is_number or column.name in ROLES["labels"]:
            names.append(column.name)
    return names


def _read_parquet(path: Path, name: str) -> Any:
    with pq.ParquetFile(path) as file:
        column = file.read(columns=[name])[name]
    if not len(column):
        raise ValueError("it has no rows")
    values = column
    if hasattr(column.type, "value_field"):  # a list
        values = pc.list_flatten(column)
    if column.null_count or values.null_count:
        raise ValueError("a value is missing")
    if values is column:
        return column.to_numpy()
    if len(pc.unique(pc.list_value_length(column))) != 1:
        raise ValueError("its rows differ in length")
    return values.to_numpy().reshape(len(column), -1)


def import_h5py(path: Path) -> Any:
    try:
        return importlib.import_module("h5py")
    except ImportError:
        raise UserError(f"{path}: HDF5 files need h5py: pip install tune-calib[hdf5]") from None


def _names_in_hdf5(path: Path) -> list[str]:
    h5py = import_h5py(path)
    names: list[str] = []

    def add(name: str, node: Any) -> None:
        # Names in an untrusted file could refer to any file of this machine.
        is_array = isinstance(node, h5py.Dataset) and node.shape
        if is_array and not (node.external or node.is_virtual):
            names.append(name)

    with h5py.File(path, "r") as file:
        file.visititems(add)  # which follows no links
    return names


def _read_hdf5(path: Path, name: str) -> Any:
    with import_h5py(path).File(path, "r") as file:
        return file[name][...]


FORMATS: dict[str, tuple[Callable[[Path], Iterable[str]], Callable[[Path, str], Rows]]] = {
    ".npz": (_names_in_npz, _read_npz),
    ".npy": (lambda path: [path.stem], lambda path, _: np.load(path, "r")),
    ".safetensors": (_names_in_safetensors, _read_safetensors),
    ".parquet": (_names_in_parquet, _read_parquet),
    ".h5": (_names_in_hdf5, _read_hdf5),
    ".hdf5": (_names_in_hdf5, _read_hdf5),
}
"""For each format, a function that lists the arrays of a file and one that reads an array."""
