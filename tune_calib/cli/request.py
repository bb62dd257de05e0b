"""Generate the options of a command from the fields of a request."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
import yaml

from tune_calib.errors import UserError
from tune_calib.spec.names import SLOTS
from tune_calib.spec.request import build_request, field_names, option_help
from tune_calib.spec.strict import Part, parse_share
from tune_calib.spec.yaml_text import UnfoldedError, value_of

R = TypeVar("R", bound=Part)


def complete(known: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion of names; in a pipeline such as ``ls+mac_cal``, of its last part.

    Args:
        known: Returns the names, when a shell asks for them.
    """

    def completed(incomplete: str) -> list[str]:
        before, plus, last = incomplete.rpartition("+")
        return [f"{before}{plus}{name}" for name in known() if name.startswith(last)]

    return completed


def with_request(model: type[R]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of a request.

    Args:
        model: The request. The command takes it first, and behind it options of its own, which
            exist on the command line alone.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(**options: Any) -> Any:
            values = {name: options.pop(name) for name in model.model_fields}
            return command(read_request(model, values), **options)

        _, *own = (
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each in inspect.signature(command).parameters.values()
        )
        # Typer reads the options of a command from its signature.
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*(_parameter(model, name) for name in field_names(model)), *own]
        )
        return run

    return decorate


def option_of(model: type[Part], name: str) -> Any:
    """Return the annotation by which Typer makes an option of a field."""
    shown, field = option_help(model, name), model.model_fields[name]
    kind = _type_of(name, field.annotation, is_required=field.is_required())
    further: dict[str, Any] = {"help": field.description}
    if shown.names is not None:
        further["autocompletion"] = complete(shown.names)
    if not shown.panel:
        return Annotated[kind, typer.Argument(**further)]
    if shown.default is not None:
        further["show_default"] = shown.default
    if shown.metavar is not None:
        further["metavar"] = shown.metavar
    if name == "gpus":
        further["parser"] = _share
    flag = [f"--{name.replace('_', '-')}"] if kind is bool else []
    return Annotated[kind, typer.Option(*flag, rich_help_panel=shown.panel, **further)]


def _parameter(model: type[Part], name: str) -> inspect.Parameter:
    field = model.model_fields[name]
    default = inspect.Parameter.empty if field.is_required() else field.default
    is_several = get_origin(_plain(field.annotation)) is tuple
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if is_several else default,
        annotation=option_of(model, name),
    )


def _plain(annotation: Any) -> Any:
    """Return an annotation without None and without what validates it."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    parts = [each for each in get_args(annotation) if each is not type(None)]
    is_optional = type(None) in get_args(annotation)
    return _plain(parts[0]) if is_optional else annotation


def _type_of(name: str, annotation: Any, is_required: bool) -> Any:
    """Return the type that a word on the command line has."""
    kind = _plain(annotation)
    if name == "set" or get_origin(kind) is tuple:
        return list[str] | None
    if name == "norm" or get_origin(kind) is Literal:
        kind = str
    is_optional = type(None) in get_args(annotation)
    return kind | None if is_optional and not is_required else kind


def read_request(model: type[R], options: Mapping[str, Any]) -> R:
    """Return the request that the values of options make.

    Raises:
        UserError: A value is wrong.
    """
    values = dict(options)
    if values.get("norm") is not None:
        values["norm"] = _value(f"--norm {values['norm']}", values["norm"])
    if "set" in values:
        values["set"] = _settings(values["set"] or [])
    return build_request(model, values)


def _share(text: str) -> float:
    try:
        return float(parse_share(text))
    except (ValueError, OverflowError):
        raise UserError(f"--gpus must be 0, 1 or 1/k, got {text}") from None


def _settings(texts: list[str]) -> dict[str, Any] | None:
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or "." not in name:
            slots = ", ".join(SLOTS)
            raise UserError(f"--set {text}: write slot.key=value with slot one of {slots}")
        if not value.strip():
            raise UserError(f"--set {text}: give it a value; null is none")
        if name in settings:
            raise UserError(f"--set {name} is given twice; name it once")
        try:
            settings[name] = _value(f"--set {text}", value)
        except UnfoldedError as error:
            raise UserError(f"--set {name}: {error}") from None
    return settings or None


def _value(words: str, value: str) -> Any:
    try:
        return value_of(value)
    except (yaml.YAMLError, ValueError):
        raise UserError(f"{words}: {value!r} is not a value") from None
