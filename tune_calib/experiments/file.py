"""Read an experiment file; a mistake gives one line with the file, the line and the key."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tune_calib.files.paths import AnyPath, expand_variables, parse_path
from tune_calib.spec import plugins
from tune_calib.spec.experiment import Entry, ExperimentFile
from tune_calib.spec.gpus import GPUS
from tune_calib.spec.yaml_text import Position, YamlFile, read_yaml

_PATHS = (
    "out", "store", "data_root", "study_storage", "plugins", "backbones", "weights", "imported",
)  # fmt: skip


@dataclass(frozen=True)
class ReadFile:
    """An experiment file."""

    name: str  # for messages: its path, or the name of a table
    source: YamlFile
    content: ExperimentFile
    among: AnyPath | None = None  # as in ``RunLocation``; not a key of the file

    @property
    def out(self) -> AnyPath:
        """Return the folder of the results."""
        return parse_path(self.content.out or f"runs/{self.source.path.stem}")

    @property
    def store(self) -> AnyPath:
        """Return the store that all entries share."""
        return parse_path(self.content.store) if self.content.store else self.out / "store"

    def override(self, address: str | None = None, gpu_model: str | None = None) -> "ReadFile":
        """Return the file with its Ray cluster or GPU replaced by the given one, if any."""
        if gpu_model is not None:
            GPUS.require(gpu_model)
        named = {"address": address, "gpu_model": gpu_model}
        update = {key: value for key, value in named.items() if value is not None}
        return replace(self, content=self.content.model_copy(update=update))

    def combinations(self, entry: Entry) -> Iterator[tuple[str, str | None]]:
        """Yield each data set of an entry with each of its backbones."""
        for dataset in self.value_of(entry, "datasets"):
            for backbone in self.value_of(entry, "backbones") or (None,):
                yield dataset, backbone

    def value_of(self, entry: Entry, key: str) -> Any:
        """Return the value of a key in an entry, otherwise at the top of the file."""
        return getattr(entry if key in entry.model_fields_set else self.content, key)

    def position_of(self, name: str, key: str) -> Position:
        """Return the position of a key in an entry, otherwise at the top of the file."""
        if key in self.content.entries[name].model_fields_set:
            return ("entries", name, key)
        return (key,)


def read_experiment_file(path: Path) -> ReadFile:
    """Read and check an experiment file."""
    source = read_yaml(path, "an experiment file")
    _expand_paths(source, source.value)
    entries = source.value.get("entries")
    parts: list[tuple[Position, Any]] = [((), source.value)]
    if isinstance(entries, dict):
        parts += [(("entries", name), entry) for name, entry in entries.items()]
    # Plug-ins are loaded before names are looked up.
    for index, plugin in _list_texts(source.value.get("plugins")):
        with source.at(("plugins", index)):
            plugins.load(plugin, folder=path.parent)
    # FILE.py:FUNCTION becomes the name of the backbone that the function builds.
    for at, part in parts:
        named: Any = part.get("backbones") if isinstance(part, dict) else None
        for index, backbone in _list_texts(named):
            with source.at((*at, "backbones", index)):
                named[index] = plugins.backbone(backbone, path.parent)
    return ReadFile(str(path), source, source.validate(ExperimentFile))


def _expand_paths(source: YamlFile, part: Any, at: Position = ()) -> None:
    """Expand the variables in all values of a file that are paths, except URLs with a password."""
    for key, value in part.items() if isinstance(part, dict) else enumerate(part):
        position = (*at, key)
        name = key if isinstance(part, dict) else at[-1]
        if isinstance(value, dict | list):
            _expand_paths(source, value, position)
        elif isinstance(value, str) and name in _PATHS and "@" not in value:
            with source.at(position):
                part[key] = expand_variables(value)


def _list_texts(value: Any) -> list[tuple[int, str]]:
    if not isinstance(value, list):
        return []
    return [(i, text) for i, text in enumerate(value) if isinstance(text, str) and text.strip()]
