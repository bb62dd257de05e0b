"""Read a user's YAML: values that JSON can represent, and the line of each."""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from tune_calib.errors import UserError
from tune_calib.text import format_mistake, short_repr

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Loader of the program's own files; the one in C, if installed, is ten times as fast."""

_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$")  # as in YAML 1.2
_UNCLEAR = re.compile(
    r"(?:[-+]?0[0-9_]+|[-+]?0[bo][0-9_]+|[-+]?0x[0-9a-fA-F_]*_[0-9a-fA-F_]*"
    r"|[-+]?[0-9.][0-9_.]*_[0-9_.]*|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|(?i:yes|no|on|off))$"
)
"""Values that version 1.1 of YAML, version 1.2 and people read differently."""

Position = tuple[str | int, ...]
"""Keys and list positions from the top of a file, e.g. ``("entries", "losses", "seeds")``."""

M = TypeVar("M", bound=BaseModel)


class UnclearError(yaml.MarkedYAMLError):
    """A value is read differently by versions of YAML, or is not finite."""


@dataclass(frozen=True)
class YamlFile:
    """A file that maps keys to values."""

    path: Path
    value: dict[str, Any]
    lines: Mapping[Position, int]  # of each key and list item, 1-based
    overrides: Collection[str] = ()  # settings that are not from the file

    def error(self, at: Position, message: str) -> UserError:
        # Parts of the position that a validator added are not in the file.
        while at and at not in self.lines:
            at = at[:-1]
        line = f" line {self.lines[at]}" if at else ""
        setting = ".".join(map(str, at))
        return UserError(": ".join(filter(None, (f"{self.path}{line}", setting, message))))

    @contextmanager
    def at(self, position: Position) -> Iterator[None]:
        """Add a line to mistakes found in the block: that of the setting, or of the position."""
        try:
            yield
        except UserError as error:
            if error.setting in self.overrides:
                raise
            if error.setting is not None:
                position = self._find(error.setting, position)
            raise self.error(position, str(error)) from None

    def _find(self, setting: str, position: Position) -> Position:
        for end in range(len(position), -1, -1):
            for part in ((), ("set",), ("search",), ("resources",)):
                at = (*position[:end], *part, *setting.split("."))
                if at in self.lines:
                    return at
        return position

    def validate(self, model: type[M]) -> M:
        try:
            return model.model_validate(self.value)
        except ValidationError as error:
            first = error.errors()[0]
            at: Position = first["loc"]
            value, message = first["input"], format_mistake(first)
            if first["type"] == "unknown_key":
                at = (*at, first["ctx"]["key"])
            elif first["type"] == "missing":
                at, message = at[:-1], f"{at[-1]} {message}"
            elif value is None or isinstance(value, str | int | float | bool):
                message = f"{message}, got {short_repr(value)}"
            raise self.error(at, message) from None


def read_yaml(path: Path, what: str) -> YamlFile:
    """Read a file that maps keys to values; messages say ``what`` it should be."""
    try:
        value, lines = parse_yaml(path.read_text("utf-8"))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = str(error.problem)
        if not isinstance(error, UnclearError):
            problem = f"not YAML: {problem}"
        raise UserError(f"{path} line {line}: {problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} is not {what}, which has entries: see tune-calib run --schema")
    return YamlFile(path, value, lines)


class _Loader(yaml.SafeLoader):
    """Read numbers and words on which all versions of YAML agree, and refuse the others."""

    def construct_clear(self, node: yaml.ScalarNode) -> bool | int | float:
        kind = node.tag.rpartition(":")[2]
        if _UNCLEAR.fullmatch(node.value):
            clear = "true or false" if node.value.isalpha() else "a decimal number"
            problem = f"versions of YAML read {node.value} differently; write {clear}"
        else:
            value: bool | int | float = getattr(self, f"construct_yaml_{kind}")(node)
            if math.isfinite(value):
                return value
            problem = f"{node.value} is not finite; write a number"
        mark = node.start_mark
        raise UnclearError(problem=f"{problem}, or put it in quotes", problem_mark=mark)


for _kind in ("int", "float", "bool"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_clear)
for _kind in ("timestamp", "value"):
    _Loader.add_constructor(
        f"tag:yaml.org,2002:{_kind}",
        yaml.SafeLoader.construct_yaml_str,  # type: ignore[type-var]
    )
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _UNCLEAR, list("-+0123456789"))


def parse_yaml(text: str) -> tuple[Any, dict[Position, int]]:
    """Return the value of a document, and the line of each key and list item."""
    # The loader in C is ten times as fast, but text that is nested too deeply ends the process.
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, {}
        lines, value = dict(_lines(node)), loader.construct_document(node)
    except RecursionError:
        raise ValueError("values are nested too deeply, or contain themselves") from None
    finally:
        loader.dispose()
    try:
        json.dumps(value)
    except TypeError as error:
        raise ValueError(f"{error}; put such a value in quotes") from None
    return value, lines


def _lines(node: yaml.Node, at: Position = ()) -> Iterator[tuple[Position, int]]:
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            problem = None
            if not isinstance(key, yaml.ScalarNode):
                problem = "a key must be a word"
            elif key.value in seen:
                problem = f"{key.value!r} appears twice"
            if problem is not None:
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
            yield (*at, key.value), key.start_mark.line + 1
            yield from _lines(value, (*at, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield (*at, index), value.start_mark.line + 1
            yield from _lines(value, (*at, index))
