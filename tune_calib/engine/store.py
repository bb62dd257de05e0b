"""The artifact store: checksummed folders that are written once and appear whole.

``networks/<network id>`` holds a trained network, ``banks/<bank id>`` a feature bank and
``checkpoints/<network id>`` the last finished epoch of a network in training.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file
from torch import Tensor

from tune_calib.errors import DamagedFileError, UserError

MANIFEST = "manifest.json"
TENSORS = "tensors.safetensors"


class Store:
    """Folders of artifacts under one root.

    Args:
        root: created when the first artifact is written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, kind: str, identity: str) -> Path:
        """Where an artifact lies."""
        return self.root / kind / identity

    def lock(self, kind: str, identity: str) -> FileLock:
        """Lock of one artifact; the operating system frees it when its holder dies."""
        folder = self.root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / f"{kind}-{identity}.lock")


def write_folder(folder: Path, fill: Callable[[Path], None], about: dict[str, Any]) -> None:
    """Fill a folder and let it appear at once, with the checksum of every file.

    Args:
        folder: where it will lie; what lay there is replaced.
        fill: writes the files into the folder that it is given.
        about: what the manifest says beside the checksums.

    Raises:
        UserError: the disk is full or the place cannot be written.
    """
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.mkdir(parents=True)
        fill(temporary)
        files = {path.name: _checksum(path) for path in sorted(temporary.iterdir())}
        (temporary / MANIFEST).write_text(json.dumps({"files": files, **about}, sort_keys=True))
        for path in temporary.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        if folder.exists():
            shutil.rmtree(folder)
        temporary.replace(folder)
    except (OSError, RuntimeError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(f"cannot write {folder}: {error}; free space or mend it") from None


def read_manifest(folder: Path) -> dict[str, Any]:
    """Check every file of an artifact against its checksum.

    Returns:
        The manifest.

    Raises:
        DamagedFileError: a file is absent, unreadable or changed.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
        for name, checksum in manifest["files"].items():
            if _checksum(folder / name) != checksum:
                raise DamagedFileError(f"{folder / name} does not match its checksum")
    except (OSError, ValueError, KeyError) as error:
        raise DamagedFileError(f"{folder} is not a whole artifact ({error})") from None
    return manifest


def is_whole(folder: Path) -> bool:
    """Whether an artifact lies there undamaged; a damaged one is removed."""
    if not folder.exists():
        return False
    try:
        read_manifest(folder)
    except DamagedFileError:
        shutil.rmtree(folder, ignore_errors=True)
        return False
    return True


def write_tensors(folder: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    """Write an artifact of one safetensors file."""
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_folder(folder, lambda path: save_file(content, path / TENSORS), about)


def read_tensors(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read an artifact of one safetensors file and its manifest.

    Raises:
        DamagedFileError: as ``read_manifest``.
    """
    manifest = read_manifest(folder)
    return load_file(folder / TENSORS), manifest


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def nest(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put a prefix and a dot before every name."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def unnest(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take the tensors under a prefix back out."""
    start = f"{prefix}."
    return {k.removeprefix(start): tensor for k, tensor in tensors.items() if k.startswith(start)}


def generator(seed: int) -> torch.Generator:
    """Return a CPU generator, so that what is drawn does not depend on the device."""
    return torch.Generator().manual_seed(seed)
