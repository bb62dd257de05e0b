"""The provenance of the trials of a run: where they are, what they share, and what made them."""

import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_LIBRARIES = (
    "tune-calib", "torch", "ray", "numpy", "timm", "optuna", "scikit-learn", "pillow", "pyarrow",
)  # fmt: skip


def versions() -> str:
    libraries = dict(zip(_LIBRARIES, map(importlib.metadata.version, _LIBRARIES), strict=True))
    return json.dumps({"python": platform.python_version(), **libraries}, sort_keys=True)


def git_revision() -> str | None:
    """Return the commit of the program, followed by ``+`` if files were changed.

    An installed program has none: the repository around it would be the user's own.
    """
    if {"site-packages", "dist-packages"}.intersection(Path(__file__).parts):
        return None
    options = ["--always", "--abbrev=40", "--exclude=*", "--dirty=+"]  # of `git`
    command = ["git", "-C", str(Path(__file__).parent), "describe", *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@dataclass(frozen=True)
class Provenance:
    """The provenance of the trials of a run; only ``device`` affects numbers."""

    out: str
    store: str
    data_root: str | None = None
    sweep: str = ""  # identity of the run
    ladder: str = ""
    device: str = "cpu"
    gpus: float = 1.0  # of a trial, if the device is a GPU
    is_search: bool = False  # the test split is not read
    profile: bool = False  # networks write a profile of an epoch
    plugins: Sequence[dict[str, Any]] = ()  # that workers register, from ``Plugin.plain``
    versions: str = field(default_factory=versions)
    git_revision: str | None = field(default_factory=git_revision)
    recipe: str | None = None  # its name, and the overrides of its settings
    channel: str = ""  # of the workers' progress events; empty if they have no reader
    # Of the images that the driver reads, by the canonical JSON of the data slot.
    digests: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return asdict(self)
