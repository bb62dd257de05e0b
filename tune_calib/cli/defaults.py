"""A user's own defaults of options: ``tune-calib.toml``, or ``[tool.tune-calib]`` of a project.

The file in the current folder applies, as if its options were typed before the others, which
override them. Commands that are printed for later use include them, so that they mean the same
anywhere.
"""

import sys
import tomllib
from collections import ChainMap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperOption

from tune_calib.errors import UserError
from tune_calib.files.paths import expand_variables
from tune_calib.text import command_line, mask_url, nearest

FILE, PROJECT, TABLE = "tune-calib.toml", "pyproject.toml", "tune-calib"

_TYPED_ALONE = (
    "all", "caption", "dry-run", "extend", "help", "label", "out", "replace", "trial", "watch",
)  # fmt: skip
"""Options that name one thing or do something once, so a file cannot give them a default."""

_EITHER = (
    {"dataset", "imported"},
    {"seeds", "network-seeds"},
    {"seeds", "head-seeds"},
    {"epochs", "weights"},
    {"best", "trial"},
    {"columns", "wide"},
    {"json", "markdown", "latex", "csv", "html"},
)
"""Options that exclude each other: a typed one overrides the defaults of the others."""

_PATHS = {"backbone", "data-root", "store", "weights"}

Options = dict[str, TyperOption]  # by their keys, e.g. ``data-root``


def find_words(context: Any, typed: Sequence[Any]) -> tuple[list[str], str]:
    """Return a file's defaults for a command as options, and a note; typed ones override them."""
    where, content = _read()
    options = _options(context.command)
    values = _for_command(where, content, context)
    if not getattr(context.command.callback, "trains", False):
        values.pop("plugin", None)  # it would run code to read results
    overridden = {key for key, option in options.items() if option in typed}
    overridden |= set().union(*(group for group in _EITHER if group & overridden))
    words: list[str] = []
    for key, value in values.items():
        if key not in overridden:
            words += _as_typed(where, key, value, options[key])
    context.meta["defaults"] = words
    if not words:
        return [], ""
    return words, f"from {where}: {' '.join(map(mask_url, words))}"


def format_typed(context: Any) -> str:
    words = sys.argv[1:]
    return command_line(["tune-calib", *words[:1], *context.meta["defaults"], *words[1:]])


def _as_typed(where: str, key: str, value: Any, option: TyperOption) -> list[str]:
    if option.is_flag:
        if not isinstance(value, bool):
            raise UserError(f"{where}: {key} must be true or false, got {value!r}")
        return [option.opts[0]] if value else []
    words = []
    for part in value if option.multiple and isinstance(value, list) else [value]:
        if isinstance(part, bool) or not isinstance(part, str | int | float):
            raise UserError(f"{where}: {key} must be a string or a number, got {part!r}")
        words += [option.opts[0], expand_variables(str(part)) if key in _PATHS else str(part)]
    return words


def _read() -> tuple[str, dict[str, Any]]:
    table = _parse(Path(PROJECT)).get("tool", {}).get(TABLE, {})
    if not Path(FILE).exists():
        return PROJECT, table
    if table:
        raise UserError(f"both {FILE} and {PROJECT} contain defaults; keep them in one file")
    return FILE, _parse(Path(FILE))


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def _for_command(where: str, content: Mapping[str, Any], context: Any) -> dict[str, Any]:
    root, name = context.find_root().command, context.command.name
    commands: dict[str, Options] = {}
    for group in (root, root.commands["analyze"]):
        commands |= {key: _options(command) for key, command in group.commands.items()}
    tables = {key: value for key, value in content.items() if isinstance(value, dict)}
    for key, table in tables.items():
        if key not in commands:
            raise UserError(f"{where}: no command {key!r}{nearest(key, list(commands))}")
        tables[key] = _by_option(f"{where}: {key}", table, commands[key])
    general = {key: value for key, value in content.items() if key not in tables}
    general = _by_option(where, general, dict(ChainMap(*commands.values())))
    if name == "run":  # its file sets everything
        general = {}
    elif name in ("resume", "evaluate"):  # a search has recorded its own
        general.pop("address", None)
    shared = {key: value for key, value in general.items() if key in commands[name]}
    return {**shared, **tables.get(name, {})}


def _by_option(where: str, values: Mapping[str, Any], options: Options) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    for written, value in values.items():
        key = written.replace("_", "-")
        if key in _TYPED_ALONE:
            raise UserError(f"{where}: --{key} cannot have a default here; type it each time")
        if key not in options:
            names = [name for name in options if name not in _TYPED_ALONE]
            raise UserError(f"{where}: no option {written!r}{nearest(key, names)}")
        if key in checked:
            raise UserError(f"{where}: {key} appears twice; name it once")
        checked[key] = value
    return checked


def _options(command: Any) -> dict[str, TyperOption]:
    """Return the options of a command by key, without those that name files to read."""
    return {
        option.opts[0].removeprefix("--"): option
        for option in command.params
        if isinstance(option, TyperOption) and option.metavar != "FILE"
    }
