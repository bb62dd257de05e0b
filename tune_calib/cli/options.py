"""The options of commands: those of request fields, and those shared by many commands."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
import yaml

from tune_calib import console
from tune_calib.errors import UserError
from tune_calib.files.paths import expand_path
from tune_calib.spec import plugins, request
from tune_calib.spec.names import SLOTS
from tune_calib.spec.strict import Part, parse_share
from tune_calib.spec.yaml_text import UnclearError, parse_yaml

R = TypeVar("R", bound=Part)

TABLES = "Tables"
FORMATS = "Format"
EVERY = "Every command"


def complete(list_names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion by the names of a function, after each ``+`` of a pipeline."""

    def completed(incomplete: str) -> list[str]:
        pipeline, plus, method = incomplete.rpartition("+")
        return [f"{pipeline}{plus}{name}" for name in list_names() if name.startswith(method)]

    return completed


def with_options(run: Callable[..., Any], *parameters: Parameter) -> Callable[..., Any]:
    """Set the signature of a function, from which Typer reads the options of a command."""
    by_name = (parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters)
    run.__signature__ = Signature(list(by_name))  # type: ignore[attr-defined]
    run.__annotations__ = {}  # it also reads these, and those of a wrapped function
    return run


def option_of(model: type[Part], name: str) -> tuple[Any, Any]:
    shown, field = request.option_help(model, name), model.model_fields[name]
    kind = _plain(field.annotation)
    if name in ("set", "grid") or get_origin(kind) is tuple:
        kind = list[str] | None
    else:
        if name == "norm" or get_origin(kind) is Literal:
            kind = str
        if type(None) in get_args(field.annotation):
            kind = kind | None
    names = None if shown.names is None else complete(shown.names)
    if not shown.panel:
        return kind, typer.Argument(help=field.description, autocompletion=names)
    flags: list[str] = []
    settings: dict[str, Any] = {"help": field.description, "metavar": shown.metavar}
    settings["hidden"] = shown.is_hidden
    if kind is bool:
        flags = [f"--{name.replace('_', '-')}"]
    elif kind == list[str] | None:
        settings["help"] = f"{field.description}; repeatable"
        settings["metavar"] = shown.metavar or "NAME"  # shorter than the type
    elif kind == Path | None:
        settings["callback"] = expand
    if name == "gpus":
        kind, settings["parser"] = float | None, _share  # Typer knows no union with ``auto``
    if shown.default is not None:
        settings["show_default"] = shown.default
    option = typer.Option(*flags, autocompletion=names, rich_help_panel=shown.panel, **settings)
    return kind, option


def expand(path: Path | None) -> Path | None:
    """Return the path of an option, with a home directory in place of ``~``."""
    return None if path is None else expand_path(path)


def _parameter(model: type[Part], name: str) -> Parameter:
    field, (kind, option) = model.model_fields[name], option_of(model, name)
    default = field.default
    if field.is_required():
        default = Parameter.empty
    elif kind == list[str] | None:
        default = None
    annotation: Any = Annotated[kind, option]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _plain(annotation: Any) -> Any:
    parts = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _plain(parts[0])
    if type(None) not in parts:
        return annotation
    return _plain(next(part for part in parts if part is not type(None)))


def read_request(model: type[R], options: Mapping[str, Any]) -> R:
    values = dict(options)
    if values.get("norm") is not None:
        values["norm"] = _value(f"--norm {values['norm']}", values["norm"])
    if "set" in values:
        values["set"] = _settings("set", values["set"] or [])
    if "grid" in values:
        values["grid"] = _settings("grid", map(_as_list, values["grid"] or []))
    return request.build_request(model, values)


def _share(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(parse_share(text))
    except (ValueError, OverflowError):
        raise UserError(f"--gpus must be 0, 1, 1/k or auto, got {text}") from None


def _as_list(text: str) -> str:
    """Return the values of a setting in brackets: ``head.gamma=[.7,.8]``."""
    name, equals, values = text.partition("=")
    if values.strip() and not values.startswith("["):
        values = f"[{values}]"
    return f"{name}{equals}{values}"


def _settings(option: str, texts: Iterable[str]) -> dict[str, Any] | None:
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or "." not in name:
            slots = ", ".join(SLOTS)
            raise UserError(
                f"--{option} {text}: write slot.key=value, where slot is one of {slots}"
            )
        if not value.strip():
            raise UserError(f"--{option} {text}: give it a value; null means none")
        if name in settings:
            raise UserError(f"--{option} {name} is given twice; give it once")
        settings[name] = _value(f"--{option} {text}", value)
    return settings or None


def _value(words: str, value: str) -> Any:
    try:
        return parse_yaml(value)[0]
    except UnclearError as error:
        raise UserError(f"{words}: {error.problem}") from None
    except (yaml.YAMLError, ValueError):
        raise UserError(f"{words}: {value!r} is not a valid value") from None


DataRoot = Annotated[Path | None, option_of(request.TrainingRequest, "data_root")[1]]
StoreRoot = Annotated[str | None, option_of(request.Folders, "store")[1]]
StudyStorage = Annotated[str | None, option_of(request.Storage, "study_storage")[1]]
GpuModel = Annotated[str | None, option_of(request.Forecast, "gpu_model")[1]]


def flag(name: str, text: str, panel: str | None = None) -> Any:
    return typer.Option(name, help=text, rich_help_panel=panel)


def added(name: str, kind: Any, text: str, panel: str, **further: Any) -> Parameter:
    if kind == list[str] | None:
        text = f"{text}; repeatable"
    flags: list[str] = []
    default = None
    if kind is bool:
        flags, default = [f"--{name}"], False
    option = typer.Option(*flags, help=text, rich_help_panel=panel, **further)
    only = Parameter.KEYWORD_ONLY
    return Parameter(name, only, default=default, annotation=Annotated[kind, option])


DryRun = Annotated[bool, flag("--dry-run", "print the plan and start nothing", request.WHERE)]
_SHARED = (
    added("log", list[str] | None, request.ALWAYS["log"], panel=request.WHERE, metavar="NAME"),
    added("columns", str | None, "show these columns of the table", panel=TABLES,
          metavar="NAME,NAME", show_default="those that fit"),
    added("wide", bool, "show all columns, however wide", panel=TABLES),
    added("plugin", list[str] | None, request.ALWAYS["plugin"], panel=EVERY,
          metavar="FILE|MODULE"),
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """Properties that commands share."""

    is_long: bool = False  # whether it shows its progress
    trains: bool = False  # whether it loads the plug-ins in a user's file of defaults
    logs: bool = False  # whether loggers can follow its trials
    has_table: bool = False  # whether it prints a table whose columns users can choose


def with_shared_options(command: Callable[..., object], kind: Kind) -> Callable[..., None]:
    """Give a command the options of its request, which is its first argument, and shared ones."""
    absent = {"log": not kind.logs, "columns": not kind.has_table, "wide": not kind.has_table}
    shared_options = [option for option in _SHARED if not absent.get(option.name)]
    parameters = dict(signature(command).parameters)
    model: type[Part] | None = None
    if "request" in parameters:
        model = parameters.pop("request").annotation
        fields = map(functools.partial(_parameter, model), request.field_names(model))
        parameters = {**{field.name: field for field in fields}, **parameters}

    @functools.wraps(command)
    def run(**options: Any) -> None:
        shared = {option.name: options.pop(option.name) for option in shared_options}
        with plugins.restored():
            plugins.use([*plugins.installed(), *map(plugins.read, shared["plugin"] or [])])
            screen = console.terminal()
            if kind.has_table:
                screen = chosen_screen(shared["columns"], shared["wide"])
            if model is not None:
                values = {name: options.pop(name) for name in model.model_fields}
                options["request"] = read_request(model, values)
            with console.shown_on(screen):
                if shared.get("log") and not options.get("dry_run"):
                    from tune_calib.tuning.loggers.base import load_loggers

                    shell = options["shell"]
                    shell.obj = replace(shell.obj, loggers=list(load_loggers(shared["log"])))
                command(**options)

    return with_options(run, *parameters.values(), *shared_options)


def chosen_screen(columns: str | None, is_wide: bool) -> console.Screen:
    if columns is not None and is_wide:
        raise UserError("--wide shows all columns and --columns some; give one of them")
    screen = console.WIDE if is_wide else console.terminal()
    names = tuple(filter(None, map(str.strip, (columns or "").split(","))))
    some = ", --columns NAME,NAME some"
    return replace(screen, columns=names, more="--wide shows all", some=some)
