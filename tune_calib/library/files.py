"""The files of a calibrated network: names, records and checks.

``NAME.safetensors`` holds all tensors, ``NAME.json`` describes them. Neither runs code.
"""

import hashlib
import json
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from tune_calib.documents import UnsealedError, unseal
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import expand_path, refuse_special
from tune_calib.spec import plugins
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.text import short_repr

FORMAT: Literal["tune-calib calibrated network"] = "tune-calib calibrated network"
VERSION: Literal[1] = 1
ENDINGS = (".safetensors", ".json", ".onnx")


class InputRecord(BaseModel):
    """The images that a network takes."""

    model_config = ConfigDict(frozen=True)

    channels: int
    size: int  # height and width that the network sees, in pixels
    stored: int  # height and width of the images, from which the centre is cropped
    mean: tuple[float, ...]  # per channel, subtracted from pixels scaled to [0, 1]
    std: tuple[float, ...]  # per channel, by which they are divided

    @classmethod
    def of(cls, info: DatasetInfo) -> "InputRecord":
        """Return the record of the network of a data set."""
        info = info.of_test()
        sizes = {"size": info.size, "stored": info.stored or info.size}
        return cls(channels=info.channels, mean=info.mean, std=info.std, **sizes)


class Exported(BaseModel):
    """The content of ``NAME.json``, which describes the tensors."""

    model_config = ConfigDict(frozen=True, strict=True)

    format: Literal["tune-calib calibrated network"] = FORMAT
    version: Literal[1] = VERSION
    sha256: str  # of NAME.safetensors
    trial: str  # spec hash
    spec: dict[str, Any]  # with every default written out
    classes: int
    width: int | None  # number of features that the head takes; None if it takes none
    images: InputRecord | None  # None without a network
    samples: int  # of the training split; some methods store numbers for each
    metrics: dict[str, float]  # test/ece and so on, fractions in [0, 1]
    flags: list[str]
    trained_on: dict[str, Any]  # data set and fingerprints of its splits
    plugins: dict[str, str]  # names and content hashes
    circumstances: dict[str, Any]  # device, threads, processor and versions of the trial


class Files(NamedTuple):
    """The files of a calibrated network."""

    tensors: Path
    record: Path
    onnx: Path


def files_of(file: str | Path) -> Files:
    """Return the files that a name refers to."""
    path = expand_path(file)
    stem = path.name
    for ending in ENDINGS:
        stem = stem.removesuffix(ending)
    if not stem.strip("."):
        raise UserError(f"{file} is not a file name; use e.g. calibrated.safetensors")
    return Files(*[path.with_name(stem + ending) for ending in ENDINGS])


def refuse_existing(*paths: Path) -> None:
    """Refuse to overwrite existing files."""
    for path in paths:
        if path.exists():
            raise UserError(f"{path} already exists; choose another name, or remove it")


def read_record(path: Path) -> Exported:
    """Read ``NAME.json``."""
    refuse_special(path)
    unsealed: UnsealedError | None = None
    try:
        content: Any = unseal(path.read_bytes(), path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; get the file again") from None
    except UnsealedError as error:
        unsealed, content = error, error.content
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DamagedFileError(f"{path} was not written by tune-calib export")
    version = content.get("version")
    if isinstance(version, int) and version > VERSION:
        raise UserError(
            f"{path} has format {short_repr(version)} of a later tune-calib; update tune-calib"
        )
    if unsealed is not None:
        raise unsealed
    try:
        # As JSON, in which a tuple is a list.
        return Exported.model_validate_json(json.dumps(content))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise DamagedFileError(f"{path} is damaged: see {where}") from None


def read_tensors(path: Path, record: Exported) -> dict[str, Tensor]:
    """Read the tensors that ``NAME.json`` describes."""
    refuse_special(path)
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != record.sha256:
            raise DamagedFileError(
                f"{path} is damaged, or is not the file that its JSON file describes"
            )
        return load(content)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (SafetensorError, ValueError) as error:
        raise DamagedFileError(f"{path} is not a safetensors file ({error})") from None


def refuse_absent_plugins(record: Exported, path: Path) -> None:
    """Refuse a trial that needs a plug-in that is not loaded: names could mean other records."""
    in_use = set(map(attrgetter("content"), plugins.in_use()))
    for name, content in record.plugins.items():
        if content not in in_use:
            raise UserError(
                f"{path}: its trial used plug-in {name} ({content}), whose code the file lacks; "
                "get it from the author of the file, read it, and give it: "
                f"plugin={short_repr(name + '.py')}"
            )
