"""The files of a calibrated network: what they are named, what they say, how they are read.

``NAME.safetensors`` holds all tensors, ``NAME.json`` says what they are. Neither runs code.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import expand_path
from tune_calib.spec import plugins
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.text import short_repr

FORMAT: Literal["tune-calib calibrated network"] = "tune-calib calibrated network"
VERSION: Literal[1] = 1
ENDINGS = (".safetensors", ".json", ".onnx")


class InputRecord(BaseModel):
    """The images that a network takes.

    Attributes:
        channels: of an image.
        size: height and width that the network sees, in pixels.
        stored: height and width of an image that it takes; the middle of it is cut out.
        mean: subtracted from pixels scaled to [0, 1], per channel.
        std: they are divided by it, per channel.
    """

    model_config = ConfigDict(frozen=True)

    channels: int
    size: int
    stored: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, info: DatasetInfo) -> "InputRecord":
        """Return the record of the network of a data set."""
        test = info.of_test()
        stored = info.stored or info.size
        return cls(
            channels=info.channels, size=info.size, stored=stored, mean=test.mean, std=test.std
        )


class Exported(BaseModel):
    """``NAME.json``: what the tensors are.

    Attributes:
        format: always ``FORMAT``.
        version: of the format.
        sha256: of ``NAME.safetensors``.
        trial: spec hash.
        spec: of the trial, every default written out.
        classes: C.
        width: D of the features that its head takes; None where it takes none.
        images: what its network takes; None without one.
        samples: of the training split, which some methods keep numbers of.
        metrics: of the trial, ``test/ece`` and so on; fractions in [0, 1].
        flags: warnings beside them.
        trained_on: data set and fingerprints of its splits.
        plugins: names and content hashes of the plug-ins behind it.
        circumstances: device, threads, processor and versions of the trial.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    format: Literal["tune-calib calibrated network"] = FORMAT
    version: Literal[1] = VERSION
    sha256: str
    trial: str
    spec: dict[str, Any]
    classes: int
    width: int | None
    images: InputRecord | None
    samples: int
    metrics: dict[str, float]
    flags: list[str]
    trained_on: dict[str, Any]
    plugins: dict[str, str]
    circumstances: dict[str, Any]


class Files(NamedTuple):
    """The files of a calibrated network."""

    tensors: Path
    about: Path
    onnx: Path


def files_of(file: str | Path) -> Files:
    """Return the files that one name stands for."""
    path = expand_path(file)
    stem = path.name
    for ending in ENDINGS:
        stem = stem.removesuffix(ending)
    if not stem.strip("."):
        raise UserError(f"{file} names no file; take e.g. calibrated.safetensors")
    return Files(*(path.with_name(stem + ending) for ending in ENDINGS))


def refuse_there(*paths: Path) -> None:
    """Refuse to write over existing files."""
    for path in paths:
        if path.exists():
            raise UserError(f"{path} is there already; name another file, or remove it")


def read_about(path: Path) -> Exported:
    """Read ``NAME.json``.

    Raises:
        UserError: it cannot be read, or a later version wrote it.
        DamagedFileError: it is damaged or foreign.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DamagedFileError(f"{path} is not whole") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DamagedFileError(f"{path} was not written by tune-calib export")
    version = content.get("version")
    if isinstance(version, int) and version > VERSION:
        raise UserError(
            f"{path} is of format {short_repr(version)}, which a later tune-calib wrote: update it"
        )
    try:
        # As JSON, in which a tuple is a list.
        return Exported.model_validate_json(json.dumps(content))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise DamagedFileError(f"{path} is damaged: see {where}") from None


def read_tensors(path: Path, about: Exported) -> dict[str, Tensor]:
    """Read the tensors that ``NAME.json`` describes.

    Raises:
        UserError: they cannot be read.
        DamagedFileError: they are damaged, or others.
    """
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != about.sha256:
            raise DamagedFileError(f"{path} is damaged, or is not the file that its JSON tells of")
        return load(content)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (SafetensorError, ValueError) as error:
        raise DamagedFileError(f"{path} is no safetensors file ({error})") from None


def refuse_absent_plugins(about: Exported, path: Path) -> None:
    """Refuse a trial of a plug-in that is not in use, whose names would mean something else."""
    in_use = {own.content for own in plugins.in_use()}
    for name, content in about.plugins.items():
        if content not in in_use:
            raise UserError(
                f"{path}: its trial was run with plug-in {name} ({content}), which is code and not "
                "in the file; get it from whoever made the file, read it, and name it: "
                f"plugin={short_repr(name + '.py')}"
            )
