"""A user's own defaults of options: ``tune-calib.toml``, or ``[tool.tune-calib]`` of a project.

The file in the current folder applies, and typed options override it. Commands that are printed for
later use include the defaults as options, so that they mean the same anywhere.
"""

import contextlib
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperOption

from tune_calib.errors import UserError
from tune_calib.paths import refuse_special
from tune_calib.text import command_line, mask_url, nearest

FILE, PROJECT, TABLE = "tune-calib.toml", "pyproject.toml", "tune-calib"

_TYPED_ALONE = (
    "all", "caption", "dry-run", "extend", "help", "label", "out", "replace", "trial", "watch",
)  # fmt: skip
"""Options that name one thing or do something once, so a file cannot give them a default."""

_COMPLETE = ("run",)
"""Commands whose own files set everything: defaults come only from a table for the command."""

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

PLUGIN = "plugin"
_NOT_LOADED = f"{__name__}.not_loaded"

_in_force: ContextVar[tuple[str, ...]] = ContextVar("defaults", default=())

Options = Mapping[str, TyperOption]  # by their keys, e.g. ``data-root``


def below(context: Any, typed: Sequence[Any]) -> dict[str, Any]:
    """Return a file's defaults for a command, given its typed options, by parameter."""
    where, content = _read(Path())
    options = _options(context.command)
    values = _for_command(where, content, context)
    keys = {key for key, option in options.items() if option in typed}
    if PLUGIN in values and not getattr(context.command.callback, "trains", False):
        context.meta[_NOT_LOADED] = _as_list(values.pop(PLUGIN))
    overridden = {key for group in _EITHER if group & keys for key in group}
    return {
        options[key].name or "": _value(where, key, value, options[key], context)
        for key, value in values.items()
        if key not in overridden
    }


def format_typed() -> str:
    """Return the command as typed, with the user's defaults as options."""
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    return command_line(["tune-calib", *words[:end], *_in_force.get(), *words[end:]])


@contextlib.contextmanager
def in_force(context: Any) -> Iterator[str]:
    """Apply a command's defaults in the block, and yield a note on them, which may be empty."""
    own = context.default_map or {}
    used = [
        word
        for option in _options(context.command).values()
        if option.name in own and _source(context, option.name) == "DEFAULT_MAP"
        for word in _as_typed(option, own[option.name])
    ]
    token = _in_force.set(tuple(used))
    where = FILE if Path(FILE).exists() else PROJECT
    notes = [f"from {where}: {' '.join(map(mask_url, used))}"] if used else []
    notes += [f"{where} names {each}, which is run as code" for each in _code(context, own)]
    if PLUGIN not in own and not context.params.get(PLUGIN):
        notes += [
            f"{context.command.name} does not load plug-in {each} of {where}; use --plugin"
            for each in context.meta.get(_NOT_LOADED, ())
        ]
    try:
        yield "\n".join(notes)
    finally:
        _in_force.reset(token)


def _code(context: Any, own: Mapping[str, Any]) -> list[str]:
    """Return the files and modules that a command runs because a file of defaults names them."""
    keys = [
        key for key in (PLUGIN, "backbone") if key in own and _source(context, key) == "DEFAULT_MAP"
    ]
    files = {word: word.rpartition(":")[0] or word for key in keys for word in _as_list(own[key])}
    return [
        str(Path(file).resolve()) if file.endswith(".py") or "/" in file else word
        for word, file in files.items()
        if word in own.get(PLUGIN, ()) or file.endswith(".py")
    ]


def typed_options(context: Any, without: Sequence[str] = ()) -> list[str]:
    """Return the options of a command that are typed or set by a file, except some keys."""
    return [
        str(word)
        for option in context.command.params
        if isinstance(option, TyperOption) and option.opts[0].removeprefix("--") not in without
        if _source(context, option.name) in ("COMMANDLINE", "DEFAULT_MAP")
        for word in _as_typed(option, context.params[option.name])
    ]


def _source(context: Any, name: str | None) -> str:
    source = context.get_parameter_source(name) if name else None
    return source.name if source is not None else ""


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _as_typed(option: TyperOption, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [option.opts[0]] if value else []
    return [word for each in _as_list(value) for word in (option.opts[0], each)]


def _read(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the name of the file of defaults in a folder and its content; both may be empty."""
    own, project = folder / FILE, folder / PROJECT
    of_project = _parse(project).get("tool", {}).get(TABLE) if project.exists() else None
    if not own.exists():
        return f"[tool.{TABLE}] of {PROJECT}", of_project or {}
    if of_project is not None:
        raise UserError(f"both {FILE} and {PROJECT} contain defaults; keep them in one file")
    return FILE, _parse(own)


def _parse(path: Path) -> dict[str, Any]:
    refuse_special(path)
    try:
        return tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None


def _for_command(where: str, content: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """Return a file's defaults for a command, after checking all names in the file."""
    root = context.find_root()
    commands = {
        name: _options(root.command.get_command(root, name))
        for name in root.command.list_commands(root)
    }
    everything = {key: option for options in commands.values() for key, option in options.items()}
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    general = _known(where, {k: v for k, v in content.items() if k not in tables}, everything)
    for name, table in tables.items():
        if name not in commands:
            raise UserError(f"{where}: no command {name!r}{nearest(name, list(commands))}")
        tables[name] = _known(f"{where}: {name}", table, commands[name])
    name = context.command.name
    own = {} if name in _COMPLETE else general
    shared = {key: value for key, value in own.items() if key in commands[name]}
    return {**shared, **tables.get(name, {})}


def _known(where: str, values: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """Return values by option, after checking that each is known, unique and may have a default."""
    known: dict[str, Any] = {}
    for written, value in values.items():
        key = written.replace("_", "-")
        if key in _TYPED_ALONE:
            raise UserError(f"{where}: --{key} cannot have a default here; type it each time")
        if key not in options:
            names = [name for name in options if name not in _TYPED_ALONE]
            raise UserError(f"{where}: no option {written!r}{nearest(key, names)}")
        if key in known:
            raise UserError(f"{where}: {key} appears twice; name it once")
        known[key] = value
    return known


def _options(command: Any) -> dict[str, TyperOption]:
    """Return the options of a command by key, without those that name files to read."""
    return {
        option.opts[0].removeprefix("--"): option
        for option in command.params
        if isinstance(option, TyperOption) and not option.hidden and option.metavar != "FILE"
    }


def _value(where: str, key: str, value: Any, option: TyperOption, context: Any) -> Any:
    """Return a value as it would be typed, so that the same rules apply to it."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise UserError(f"{where}: {key} must be true or false, got {value!r}")
        return value
    texts = [_text(where, key, each) for each in (_as_list(value) if option.multiple else [value])]
    own = texts if option.multiple else texts[0]
    try:
        option.process_value(context, own)
    except (typer.BadParameter, UserError) as error:
        message = error.message if isinstance(error, typer.BadParameter) else error
        raise UserError(f"{where}: {key}: {message}") from None
    if isinstance(option.show_default, str):  # the words describe the program's own default
        option.show_default = True
    return own


def _text(where: str, key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"{where}: {key} must be a string or a number, got {value!r}")
    if not str(value).strip():
        raise UserError(f"{where}: {key} is empty: give it a value, or leave it out")
    return str(value)
