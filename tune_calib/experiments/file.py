"""Reading an experiment file; a mistake is one line with the file, the line and the key."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tune_calib import paths as places
from tune_calib.spec import plugins
from tune_calib.spec.experiment import ExperimentFile
from tune_calib.spec.gpus import GPUS
from tune_calib.spec.yaml_text import Position, YamlFile, read_yaml


@dataclass(frozen=True)
class ReadFile:
    """An experiment file.

    Attributes:
        name: by which it is told of: its path, or the name of a table.
        source: the file, and where in it what stands.
        content: what it says.
        among: as of ``Site.among``; no key of the file.
    """

    name: str
    source: YamlFile
    content: ExperimentFile
    among: places.AnyPath | None = None

    @property
    def out(self) -> places.AnyPath:
        """Folder of the results."""
        return places.parse_path(self.content.out or f"runs/{self.source.path.stem}")

    @property
    def store(self) -> places.AnyPath:
        """Artifacts that all entries share."""
        return places.parse_path(self.content.store) if self.content.store else self.out / "store"

    def at_address(self, address: str) -> "ReadFile":
        """Return the same file for another Ray cluster."""
        return replace(self, content=self.content.model_copy(update={"address": address}))

    def for_gpu(self, gpu_model: str) -> "ReadFile":
        """Return the same file for the hours on another GPU.

        Raises:
            UserError: it is unknown.
        """
        GPUS.require(gpu_model)
        return replace(self, content=self.content.model_copy(update={"gpu_model": gpu_model}))


def read_sweep_file(path: Path) -> ReadFile:
    """Read and check an experiment file.

    Raises:
        UserError: it is not there, not YAML, or says something unknown or out of range.
    """
    source = read_yaml(path, "sweep file")
    entries = source.value.get("entries")
    parts: list[tuple[Position, Any]] = [((), source.value)]
    if isinstance(entries, dict):
        parts += [(("entries", name), entry) for name, entry in entries.items()]
    # Before names are looked up.
    for index, each in _texts(source.value.get("plugins")):
        with source.at(("plugins", index)):
            plugins.load(each, folder=path.parent)
    # Files and functions that make backbones are read as the names of these.
    for at, part in parts:
        named: Any = part.get("backbones") if isinstance(part, dict) else None
        for index, each in _texts(named):
            with source.at((*at, "backbones", index)):
                named[index] = plugins.backbone(each, path.parent)
    return ReadFile(str(path), source, source.validate(ExperimentFile))


def _texts(given: Any) -> list[tuple[int, str]]:
    """Return the texts of a list with their places in it; none of anything else."""
    listed = given if isinstance(given, list) else []
    return [(i, each) for i, each in enumerate(listed) if isinstance(each, str) and each.strip()]
