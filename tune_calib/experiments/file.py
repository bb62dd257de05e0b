"""Reading a sweep file; a mistake is one line with the file, the line, the key and a way out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tune_calib import paths as places
from tune_calib.errors import UserError, as_key
from tune_calib.experiments.format import SweepFile
from tune_calib.experiments.gpus import GPUS
from tune_calib.experiments.yaml_text import UnfoldedError, compose, value_of
from tune_calib.spec import plugins
from tune_calib.text import complaint, shown

LARGEST = 1_000_000

Position = tuple[str | int, ...]
"""Keys and list positions from the top of the file, e.g. ``("entries", "losses", "seeds")``."""


@dataclass(frozen=True)
class ReadFile:
    """A sweep file, and where in it what stands.

    Attributes:
        path: the file.
        content: what it says.
        lines: of each key and list item, 1-based.
        among: as of ``Site.among``; no key of the file.
    """

    path: Path
    content: SweepFile
    lines: Mapping[Position, int]
    among: places.Place | None = None

    @property
    def out(self) -> places.Place:
        """Folder of the results."""
        return places.place(self.content.out or f"runs/{self.path.stem}")

    @property
    def store(self) -> places.Place:
        """Artifacts that all entries share."""
        return places.place(self.content.store) if self.content.store else self.out / "store"

    def at_address(self, address: str) -> "ReadFile":
        """The same sweep on another Ray cluster."""
        return replace(self, content=self.content.model_copy(update={"address": address}))

    def for_gpu(self, gpu_model: str) -> "ReadFile":
        """The same sweep, reckoned for another GPU.

        Raises:
            UserError: it is unknown.
        """
        _ = GPUS[gpu_model]
        return replace(self, content=self.content.model_copy(update={"gpu_model": gpu_model}))

    def error(self, at: Position, message: str) -> UserError:
        """A mistake in the file."""
        return _error(self.path, self.lines, at, message)


def read_sweep_file(path: Path) -> ReadFile:
    """Read and check a sweep file.

    Raises:
        UserError: it is not there, not YAML, or says something unknown or out of range.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise UserError(f"{path} is no sweep file: none has more than {LARGEST:,} letters")
        node = compose(text)
        lines = dict(_lines(node)) if node is not None else {}
        plain = value_of(text)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UserError(f"{path} line {line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, UnfoldedError) as error:
        raise UserError(f"{path}: not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(plain, dict):
        raise UserError(
            f"{path} is no sweep file; it needs entries; tune-calib schema tells what it may say"
        )
    _load_plugins(path, plain.get("plugins"), lines)  # before names are looked up
    _load_backbones(path, plain, lines)
    try:
        return ReadFile(path, SweepFile.model_validate(plain), lines)
    except ValidationError as error:
        first = error.errors()[0]
        at: Position = first["loc"]
        if first["type"] == "unknown_key":
            at = (*at, first["ctx"]["key"])
        raise _error(path, lines, at, _message(first)) from None


def _load_plugins(path: Path, given: Any, lines: Mapping[Position, int]) -> None:
    for index, each in enumerate(given if isinstance(given, list) else ()):
        if isinstance(each, str) and each.strip():
            try:
                plugins.load(each, folder=path.parent)
            except UserError as error:
                raise _error(path, lines, ("plugins", index), str(error)) from None


def _message(found: Any) -> str:
    is_plain = isinstance(found["input"], str | int | float | bool) or found["input"] is None
    is_own = found["type"] == "unknown_key"
    told = complaint(found)
    return told if is_own or not is_plain else f"{told}, got {shown(found['input'])}"


def _load_backbones(path: Path, plain: dict[str, Any], lines: Mapping[Position, int]) -> None:
    """Put the names of backbones in the place of files and functions that make them."""
    entries = plain.get("entries")
    parts: list[tuple[Position, Any]] = [((), plain)]
    if isinstance(entries, dict):
        parts += [(("entries", name), entry) for name, entry in entries.items()]
    for at, part in parts:
        named: Any = part.get("backbones") if isinstance(part, dict) else None
        for index, each in enumerate(named if isinstance(named, list) else ()):
            try:
                if isinstance(each, str):
                    named[index] = plugins.backbone(each, path.parent)
            except UserError as error:
                raise _error(path, lines, (*at, "backbones", index), str(error)) from None


def _lines(node: yaml.Node, at: Position = ()) -> Iterator[tuple[Position, int]]:
    """The line of every key and list item."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            is_word = isinstance(key, yaml.ScalarNode)
            if not is_word or key.value in seen:
                problem = f"{key.value!r} stands twice" if is_word else "a key must be a word"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
            yield (*at, key.value), key.start_mark.line + 1
            yield from _lines(value, (*at, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*at, index), value.start_mark.line + 1
            yield from _lines(value, (*at, index))


def _error(path: Path, lines: Mapping[Position, int], at: Position, message: str) -> UserError:
    # What a validator added to the position stands nowhere in the file.
    known = next((at[:end] for end in range(len(at), 0, -1) if at[:end] in lines), ())
    line = f" line {lines[known]}" if known else ""
    where, message = ".".join(map(str, known)), as_key(message)
    return UserError(f"{path}{line}: {where}: {message}" if where else f"{path}: {message}")
