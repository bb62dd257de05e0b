"""The artifact store: checksummed folders that are written once and appear atomically.

``networks/<network id>`` holds a trained network, ``banks/<bank id>`` a feature bank and
``checkpoints/<network id>`` a recent epoch of a network in training.

On a remote store, the objects of an artifact are named by their content, and its manifest is
uploaded last. The objects of a replaced manifest are removed afterwards, so that a crash at any
moment leaves a complete artifact. It is read from a local copy with the same checksums.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock
from safetensors import SafetensorError

from tune_calib.errors import DamagedFileError, RefusedError, UnsealedFileError, UserError
from tune_calib.files.documents import checksum_of, hash_bytes, seal, unseal
from tune_calib.files.paths import (
    AnyPath,
    RemotePath,
    cache_folder,
    is_writable,
    lock_file,
    name_temporary,
    remove_abandoned,
    remove_folder,
    scratch_folder,
)

ARTIFACT_MANIFEST = "manifest.json"
VERSION = 1  # of the files and manifests of all artifacts, under ``version`` in each manifest
_NAME = "artifact"  # key of a manifest: kind and identity of its artifact

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

Read = TypeVar("Read")


class Store:
    """Folders of artifacts under one root, which is created with the first artifact."""

    def __init__(self, root: AnyPath) -> None:
        self.root = root

    def folder(self, kind: str, identity: str) -> AnyPath:
        return self.root / kind / identity

    def holds(self, kind: str, identity: str) -> bool:
        """Return whether an artifact was written, without checking it for damage."""
        return (self.folder(kind, identity) / ARTIFACT_MANIFEST).exists()

    @property
    def images(self) -> Path:
        """Return the folder of decoded images, always local since they are memory-mapped."""
        if isinstance(self.root, Path):
            images = self.root / "images"
            if images.exists() or is_writable(self.root):
                return images
        return cache_folder() / "images"

    @property
    def is_writable(self) -> bool:
        """Return whether artifacts can be added; a remote store is assumed to be writable."""
        return isinstance(self.root, RemotePath) or is_writable(self.root)

    def lock(self, kind: str, identity: str) -> FileLock:
        """Return the lock of an artifact, for processes of this machine if the store is remote."""
        return FileLock(lock_file(self.root / "locks", f"{kind}-{identity}.lock"))

    def ensure(
        self,
        folder: AnyPath,
        lock: str,
        read: Callable[[AnyPath], Read],
        make: Callable[[Read | None], None],
        suffices: Callable[[Read], bool] = lambda _: True,
    ) -> Read:
        """Read an artifact; create it first if it is absent, damaged or insufficient.

        One process creates it under its ``lock`` while others wait. ``make`` writes the folder and
        receives its previous content.
        """
        # A complete artifact needs no lock, and may be where no lock file can be created.
        with contextlib.suppress(DamagedFileError):
            artifact = read(folder)
            if suffices(artifact):
                return artifact
        with self.lock(lock, folder.name):
            previous = read_or_remove(folder, read)
            if previous is not None and suffices(previous):
                return previous
            make(previous)
            return read(folder)


def write_folder(
    folder: AnyPath, fill: Callable[[Path], None], facts: dict[str, Any], name: str | None = None
) -> None:
    """Write a folder atomically, with a manifest of ``facts`` and the checksum of every file."""
    name = name or _name_of(folder)
    if isinstance(folder, RemotePath):
        with scratch_folder() as scratch:
            artifact = scratch / "artifact"
            write_folder(artifact, fill, facts, name=name)
            content = (artifact / ARTIFACT_MANIFEST).read_bytes()
            replaced_objects = _name_objects(_read_remote_manifest(folder))
            objects = _name_objects(content)
            for stored, part in objects.items():
                (folder / stored).upload(artifact / part)
            (folder / ARTIFACT_MANIFEST).write_bytes(content)
            for stored in replaced_objects.keys() - objects.keys():
                (folder / stored).unlink()
        return
    temporary = folder.with_name(name_temporary(folder.name))
    remove_abandoned(folder.parent)
    try:
        temporary.mkdir(parents=True)
        fill(temporary)
        files = {path.name: checksum_of(path) for path in sorted(temporary.iterdir())}
        manifest = {"files": files, **facts, _NAME: name, "version": VERSION}
        (temporary / ARTIFACT_MANIFEST).write_bytes(seal(manifest, indent=None))
        # Flush before renaming: otherwise a power failure could leave empty files.
        for path in temporary.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        # A rename does not replace a non-empty folder. A crash in between leaves no folder, which
        # is then created again; a partial folder would give wrong numbers.
        if folder.exists():
            shutil.rmtree(folder)
        temporary.replace(folder)
    # All trials of a run write to this disk.
    except (OSError, RuntimeError, SafetensorError) as error:
        raise RefusedError(f"cannot write {folder}: {error}; free space or repair it") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # gone already after success


def opened(folder: AnyPath) -> tuple[Path, dict[str, Any]]:
    """Check every file of an artifact; return its local folder and its manifest."""
    if isinstance(folder, Path):
        return folder, _check(folder, folder)
    content = _read_remote_manifest(folder)
    if not content:
        raise DamagedFileError(f"{folder} contains no artifact")
    # Named by its content: a later artifact of the same name gets its own copy, so that readers of
    # the earlier one are not affected.
    copy = cache_folder() / "artifacts" / hash_bytes(content)
    with contextlib.suppress(DamagedFileError):
        return copy, _check(copy, folder)
    shutil.rmtree(copy, ignore_errors=True)  # it is damaged
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        with scratch_folder() as scratch:
            artifact = scratch / "artifact"
            artifact.mkdir()
            (artifact / ARTIFACT_MANIFEST).write_bytes(content)
            for stored, name in _name_objects(content).items():
                (folder / stored).download(artifact / name)
            manifest = _check(artifact, folder)
            with contextlib.suppress(OSError):  # another process was faster
                artifact.rename(copy)
    except FileNotFoundError as error:
        if _read_remote_manifest(folder) != content:  # another artifact replaced it meanwhile
            return opened(folder)
        raise DamagedFileError(f"{folder} is not a complete artifact ({error})") from None
    return copy, manifest


def artifact_manifest(folder: AnyPath) -> dict[str, Any]:
    return opened(folder)[1]


def _check(files: Path, folder: AnyPath) -> dict[str, Any]:
    try:
        manifest = read_manifest(folder, files)
        for name, checksum in manifest["files"].items():
            if checksum_of(files / name) != checksum:
                raise DamagedFileError(f"{folder / name} does not match its checksum")
        recorded_name = manifest[_NAME]
    except (*_ABSENT, KeyError) as error:
        raise DamagedFileError(f"{folder} is not a complete artifact ({error})") from None
    if recorded_name != _name_of(folder):
        raise UserError(  # not damaged: it is not removed
            f"{folder} contains {recorded_name}, which was moved or renamed; restore its name"
        )
    return manifest


def read_manifest(folder: AnyPath, files: Path | None = None) -> dict[str, Any]:
    """Read the manifest of an artifact, or of its copy in ``files``, without checking its files.

    Raises:
        OSError: It cannot be read.
        UserError: It is damaged, has no checksum, or is of another version.
    """
    path = folder / ARTIFACT_MANIFEST
    content = ((files or folder) / ARTIFACT_MANIFEST).read_bytes()
    try:
        manifest = unseal(content, path)
    except UnsealedFileError as error:
        if b'"files"' not in content:  # not the manifest of an artifact
            raise
        raise UserError(str(error)) from None  # not damaged, so that the artifact is not removed
    version = manifest.get("version")
    if version != VERSION:  # not damaged: another tune-calib may read it
        raise UserError(f"{path} has format {version}, but this tune-calib reads format {VERSION}")
    return manifest


def _name_of(folder: AnyPath) -> str:
    return f"{folder.parent.name}/{folder.name}"


def _read_remote_manifest(folder: RemotePath) -> bytes:
    try:
        return (folder / ARTIFACT_MANIFEST).read_bytes()
    except FileNotFoundError:
        return b""


def _name_objects(manifest: bytes) -> dict[str, str]:
    """Return the file names of a remote artifact, by the names of their objects."""
    try:
        files = json.loads(manifest)["files"]
        return {f"{name}.{checksum}": name for name, checksum in files.items()}
    except (ValueError, KeyError):
        return {}


def read_or_remove(folder: AnyPath, read: Callable[[AnyPath], Read]) -> Read | None:
    """Read an artifact; return None if it is absent, or damaged and now removed."""
    if not folder.exists():
        return None
    try:
        return read(folder)
    except DamagedFileError:
        # Callers hold the lock of the artifact, so no process is writing it.
        remove_folder(folder)
        return None
