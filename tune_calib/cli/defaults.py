"""A user's own defaults of options: ``tune-calib.toml``, or ``[tool.tune-calib]`` of a project.

The file of the folder in which a command is typed counts. What is typed stands above it. A command
that tells how to go on names the defaults as options, so that it says the same anywhere.
"""

import contextlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperOption

from tune_calib.cli.added_options import trains
from tune_calib.errors import UserError
from tune_calib.text import mask_url, nearest

FILE, PROJECT, TABLE = "tune-calib.toml", "pyproject.toml", "tune-calib"

_TYPED_ALONE = (
    "all", "caption", "dry-run", "extend", "help", "label", "out", "replace", "trial", "watch",
)  # fmt: skip
"""Options that name one thing, or do something once: nobody has a default of them."""

_SAY_ALL = ("run",)
"""Commands of files that say everything: only a table of their own gives them a default."""

_EITHER = (
    {"dataset", "imported"},
    {"seeds", "network-seeds"},
    {"seeds", "head-seeds"},
    {"epochs", "weights"},
    {"best", "trial"},
    {"columns", "wide"},
    {"json", "markdown", "latex", "csv", "html"},
)
"""Options of which one is given: what is typed takes the place of the others' defaults."""

PLUGIN = "plugin"
_NOT_LOADED = f"{__name__}.not_loaded"

_in_force: ContextVar[tuple[str, ...]] = ContextVar("defaults", default=())

Options = Mapping[str, TyperOption]  # by their keys, e.g. ``data-root``


def below(context: Any, typed: Sequence[Any]) -> dict[str, Any]:
    """What a file sets of a command's options, by their parameters, as if it were typed.

    Args:
        context: of the command, under that of the program.
        typed: the parameters that are typed.

    Raises:
        UserError: the file names what is no option, or holds what is no value of it.
    """
    found = _read(Path())
    if found is None:
        return {}
    where, content = found
    options = _options(context.command)
    given = _of_command(where, content, context)
    keys = {key for key, option in options.items() if option in typed}
    if PLUGIN in given and not trains(context.command):
        plugins = given.pop(PLUGIN)
        context.meta[_NOT_LOADED] = plugins if isinstance(plugins, list) else [plugins]
    unneeded = {key for group in _EITHER if group & keys for key in group}
    return {
        options[key].name or "": _value(where, key, value, options[key], context)
        for key, value in given.items()
        if key not in unneeded
    }


def words() -> tuple[str, ...]:
    """The defaults of the command that runs, as options."""
    return _in_force.get()


@contextlib.contextmanager
def in_force(context: Any) -> Iterator[str]:
    """The defaults of a command hold in the block; what is to be said of them, if there are any."""
    own = context.default_map or {}
    found = [
        word
        for option in _options(context.command).values()
        if option.name in own and _is_default(context, option.name)
        for word in _as_typed(option, own[option.name])
    ]
    token = _in_force.set(tuple(found))
    where = FILE if Path(FILE).exists() else PROJECT
    told = [f"from {where}: {' '.join(map(mask_url, found))}"] if found else []
    told += [f"{each}, which {where} names, is run as code" for each in _code(context, own)]
    if PLUGIN not in own and not context.params.get(PLUGIN):
        told += [
            f"{context.command.name} does not load plug-in {each} of {where}; --plugin loads it"
            for each in context.meta.get(_NOT_LOADED, ())
        ]
    try:
        yield "\n".join(told)
    finally:
        _in_force.reset(token)


def _code(context: Any, own: Mapping[str, Any]) -> list[str]:
    """Return the files and modules that a command runs because a file of defaults names them."""
    named = [own[key] for key in (PLUGIN, "backbone") if key in own and _is_default(context, key)]
    words = [each for value in named for each in (value if isinstance(value, list) else [value])]
    files = {word: word.rpartition(":")[0] or word for word in words}
    return [
        str(Path(file).resolve()) if file.endswith(".py") or "/" in file else word
        for word, file in files.items()
        if word in own.get(PLUGIN, ()) or file.endswith(".py")
    ]


def typed_options(context: Any, without: Sequence[str] = ()) -> list[str]:
    """The options of a command that are typed, and those that a file sets.

    Args:
        context: of the command.
        without: keys of options that are left out.
    """
    return [
        str(word)
        for option in context.command.params
        if isinstance(option, TyperOption) and option.opts[0].removeprefix("--") not in without
        if _is_told(context, option.name)
        for word in _as_typed(option, context.params[option.name])
    ]


def _is_told(context: Any, name: str | None) -> bool:
    source = context.get_parameter_source(name) if name else None
    return source is not None and source.name in ("COMMANDLINE", "DEFAULT_MAP")


def _is_default(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "DEFAULT_MAP"


def _as_typed(option: TyperOption, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [option.opts[0]] if value else []
    values = value if isinstance(value, list) else [value]
    return [word for each in values for word in (option.opts[0], each)]


def _read(folder: Path) -> tuple[str, dict[str, Any]] | None:
    """The name of the file of defaults in a folder, and what it holds; None without one."""
    own, project = folder / FILE, folder / PROJECT
    of_project = _parsed(project).get("tool", {}).get(TABLE) if project.exists() else None
    if not own.exists():
        return None if of_project is None else (f"[tool.{TABLE}] of {PROJECT}", of_project)
    if of_project is not None:
        raise UserError(f"both {FILE} and {PROJECT} hold defaults; keep them in one of them")
    return FILE, _parsed(own)


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is no TOML: {error}") from None


def _of_command(where: str, content: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """What a file sets for a command; all of its names are checked, also of other commands."""
    group = context.parent.command
    commands = {
        name: _options(group.get_command(context.parent, name))
        for name in group.list_commands(context.parent)
    }
    everything = {key: option for options in commands.values() for key, option in options.items()}
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    general = _known(where, {k: v for k, v in content.items() if k not in tables}, everything)
    for name, table in tables.items():
        if name not in commands:
            raise UserError(f"{where}: no command {name!r}{nearest(name, list(commands))}")
        tables[name] = _known(f"{where}: {name}", table, commands[name])
    name = context.command.name
    if name in _SAY_ALL:
        general = {}
    shared = {key: value for key, value in general.items() if key in commands[name]}
    return {**shared, **tables.get(name, {})}


def _known(where: str, given: Mapping[str, Any], options: Options) -> dict[str, Any]:
    """What is set, by the keys of options.

    Raises:
        UserError: a key is of none, or of one that is typed alone, or stands there twice.
    """
    found: dict[str, Any] = {}
    for written, value in given.items():
        key = written.replace("_", "-")
        if key in _TYPED_ALONE:
            raise UserError(f"{where}: --{key} is typed each time, and has no default here")
        if key not in options:
            known = [name for name in options if name not in _TYPED_ALONE]
            raise UserError(f"{where}: no option {written!r}{nearest(key, known)}")
        if key in found:
            raise UserError(f"{where}: {key} stands there twice; name it once")
        found[key] = value
    return found


def _options(command: Any) -> dict[str, TyperOption]:
    """The options of a command by their keys, without those that name files to read."""
    return {
        option.opts[0].removeprefix("--"): option
        for option in command.params
        if isinstance(option, TyperOption) and not option.hidden and option.metavar != "FILE"
    }


def _value(where: str, key: str, value: Any, option: TyperOption, context: Any) -> Any:
    """A value as it would be typed, so that it is read by the same rules.

    Raises:
        UserError: it is none of the option.
    """
    if option.is_flag:
        if not isinstance(value, bool):
            raise UserError(f"{where}: {key} must be true or false, got {value!r}")
        return value
    several = isinstance(value, list) and option.multiple
    texts = [_text(where, key, each) for each in (value if several else [value])]
    own = texts if option.multiple else texts[0]
    try:
        option.process_value(context, own)
    except (typer.BadParameter, UserError) as error:
        told = error.message if isinstance(error, typer.BadParameter) else error
        raise UserError(f"{where}: {key}: {told}") from None
    if isinstance(option.show_default, str):  # it is told of the program's own default
        option.show_default = True
    return own


def _text(where: str, key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UserError(f"{where}: {key} must be a text or a number, got {value!r}")
    if not str(value).strip():
        raise UserError(f"{where}: {key} is empty: give it a value, or leave it out")
    return str(value)
