"""What a logger was sent of a folder, beside its results: to send = there - sent."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from tune_calib.paths import AnyPath
from tune_calib.results.tables import atomic_write

FOLDER = "logs"


class Sent:
    """The file of one logger; one that is lost or damaged costs that all is sent again."""

    def __init__(self, out: AnyPath, name: str) -> None:
        self._path = out / FOLDER / f"{name}.json"
        self._keys: dict[str, str] = {}
        try:
            found = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):
            found = {}
        if isinstance(found, dict):
            self._keys = {str(key): str(value) for key, value in found.items()}

    def holds(self, key: str, what: str) -> bool:
        """Whether a trial was sent with this status, or a report of this content."""
        return self._keys.get(key) == what

    def add(self, key: str, what: str) -> None:
        """Note what was sent."""
        self._keys[key] = what
        atomic_write(self._path, json.dumps(self._keys, indent=1).encode())


def content_of(paths: Sequence[Path]) -> str:
    """What tells the files of two reports apart."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
