"""A user's own defaults of options: ``tune-calib.toml``, or ``[tool.tune-calib]`` of a project.

The file in the current folder applies, and typed options override it. Commands that are printed for
later use include the defaults as options, so that they mean the same anywhere.
"""

import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperOption

from tune_calib.errors import UserError
from tune_calib.files.paths import expand_variables
from tune_calib.text import command_line, mask_url, nearest

FILE, PROJECT, TABLE = "tune-calib.toml", "pyproject.toml", "tune-calib"

_TYPED_ALONE = (
    "all", "caption", "dry-run", "extend", "help", "label", "out", "replace", "trial", "watch",
)  # fmt: skip
"""Options that name one thing or do something once, so a file cannot give them a default."""

_COMPLETE = ("run",)
"""Commands whose own files set everything: defaults come only from a table for the command."""

_RECORDED = {"resume": "address", "evaluate": "address"}
"""An option for which a search recorded a value; defaults likewise."""

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

PLUGIN = "plugin"
_NOT_LOADED = f"{__name__}.not_loaded"

Options = Mapping[str, TyperOption]  # by their keys, e.g. ``data-root``


def below(context: Any, typed: Sequence[Any]) -> dict[str, Any]:
    """Return a file's defaults for a command, given its typed options, by parameter."""
    where, content = _read(Path())
    options = _options(context.command)
    values = _for_command(where, content, context)
    typed_keys = {key for key, option in options.items() if option in typed}
    if PLUGIN in values and not getattr(context.command.callback, "trains", False):
        context.meta[_NOT_LOADED] = _as_list(values.pop(PLUGIN))
    overridden = set().union(*(group for group in _EITHER if group & typed_keys))
    defaults = {}
    for key, value in values.items():
        if key not in overridden:
            name = options[key].name or ""
            defaults[name] = _value(where, key, value, options[key], context)
    return defaults


def format_typed(context: Any) -> str:
    """Return the command as typed, with the user's defaults as options."""
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    return command_line(["tune-calib", *words[:end], *_list_words(context), *words[end:]])


def _list_words(context: Any) -> list[str]:
    """Return the defaults that apply to a command, as options."""
    defaults = context.default_map or {}
    words: list[str] = []
    for option in _options(context.command).values():
        if option.name in defaults and _source(context, option.name) == "DEFAULT_MAP":
            words += map(str, _as_typed(option, defaults[option.name]))
    return words


def describe(context: Any) -> str:
    """Describe a command's defaults that apply; return "" without any."""
    defaults, words = context.default_map or {}, _list_words(context)
    where = FILE if Path(FILE).exists() else PROJECT
    notes = []
    if words:
        notes.append(f"from {where}: {' '.join(map(mask_url, words))}")
    if PLUGIN not in defaults and not context.params.get(PLUGIN):
        for plugin in context.meta.get(_NOT_LOADED, ()):
            command = context.command.name
            notes.append(f"{command} does not load plug-in {plugin} of {where}; use --plugin")
    return "\n".join(notes)


def typed_options(context: Any, without: Sequence[str] = ()) -> list[str]:
    """Return the options of a command that are typed or set by a file, except some keys."""
    words: list[str] = []
    for option in context.command.params:
        if not isinstance(option, TyperOption) or option.opts[0].removeprefix("--") in without:
            continue
        if _source(context, option.name) in ("COMMANDLINE", "DEFAULT_MAP"):
            words += map(str, _as_typed(option, context.params[option.name]))
    return words


def _source(context: Any, name: str | None) -> str:
    source = context.get_parameter_source(name) if name else None
    return source.name if source is not None else ""


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _as_typed(option: TyperOption, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [option.opts[0]] if value else []
    words = []
    for part in _as_list(value):
        words += [option.opts[0], part]
    return words


def _read(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of the file of defaults in a folder and its content; both may be empty."""
    file, project = folder / FILE, folder / PROJECT
    table = _parse(project).get("tool", {}).get(TABLE) if project.exists() else None
    if not file.exists():
        return f"[tool.{TABLE}] of {PROJECT}", table or {}
    if table is not None:
        raise UserError(f"both {FILE} and {PROJECT} contain defaults; keep them in one file")
    return FILE, _parse(file)


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def _for_command(where: str, content: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Return a file's defaults for a command, after checking all names in the file."""
    root = context.find_root()
    commands: dict[str, Options] = {}
    all_options: dict[str, TyperOption] = {}
    for group in (root.command, root.command.commands["analyze"]):
        for name, command in group.commands.items():
            commands[name] = _options(command)
            all_options |= commands[name]
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    general = {name: value for name, value in content.items() if name not in tables}
    general = _by_option(where, general, all_options)
    for name, table in tables.items():
        if name not in commands:
            raise UserError(f"{where}: no command {name!r}{nearest(name, list(commands))}")
        tables[name] = _by_option(f"{where}: {name}", table, commands[name])
    name = context.command.name
    if name in _COMPLETE:
        general = {}
    general.pop(_RECORDED.get(name, ""), None)
    shared = {key: value for key, value in general.items() if key in commands[name]}
    return {**shared, **tables.get(name, {})}


def _by_option(where: str, values: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """Return values by option, after checking that each is known, unique and may have a default."""
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


def _value(where: str, key: str, value: Any, option: TyperOption, context: Any) -> Any:
    """Return a value as it would be typed, so that the same rules apply to it."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise UserError(f"{where}: {key} must be true or false, got {value!r}")
        return value
    if option.multiple:
        value = [_text(where, key, part) for part in _as_list(value)]
    else:
        value = _text(where, key, value)
    try:
        if key in _PATHS:
            value = expand_variables(value)
        option.process_value(context, value)
    except (typer.BadParameter, UserError) as error:
        message = error.message if isinstance(error, typer.BadParameter) else error
        raise UserError(f"{where}: {key}: {message}") from None
    if isinstance(option.show_default, str):  # the words describe the program's own default
        option.show_default = True
    return value


def _text(where: str, key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"{where}: {key} must be a string or a number, got {value!r}")
    if not str(value).strip():
        raise UserError(f"{where}: {key} is empty: give it a value, or leave it out")
    return str(value)
