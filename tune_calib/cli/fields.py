"""Settings as tables: name, default, range and meaning of the fields of a model."""

from types import NoneType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo


def code(value: object) -> str:
    """A value as code, or nothing."""
    return "" if value is None or value == "" else f"`{value}`"


def default_of(field: FieldInfo) -> str:
    """The default, as a setting is written on the command line."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, tuple):
        return code(", ".join(f"{part:.4g}" for part in value) or "()")
    if isinstance(value, bool):
        return code(str(value).lower())
    return code("none" if value is None else value)


def range_of(field: FieldInfo) -> str:
    """What a setting may be: an interval, its options, or its type."""
    parts = [_plain(part) for part in _alternatives(field.annotation)]
    interval = _interval(field.metadata)
    numbers = [part for part in parts if part in ("number", "whole number")]
    if interval and numbers:
        parts[parts.index(numbers[0])] = interval + (", whole" if "whole" in numbers[0] else "")
    return " or ".join(dict.fromkeys(filter(None, parts)))


def first_paragraph(field: FieldInfo) -> str:
    """What a setting means, without the list of its options."""
    return (field.description or "").split("\n\n")[0]


def options_of(field: FieldInfo) -> str:
    """The list of a setting's options, with what is known of each; empty if it has none."""
    return (field.description or "").partition("\n\n")[2]


def shown(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields that are settings: all but those that hold others, or that nobody sets."""
    return {
        name: field
        for name, field in model.model_fields.items()
        if name not in ("params", "plugin", "found")
    }


def _alternatives(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Literal, tuple) or not get_args(annotation):
        return [annotation]
    return [part for alternative in get_args(annotation) for part in _alternatives(alternative)]


def _plain(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(code(value) for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "list of numbers"
    if issubclass(annotation, BaseModel):  # what the program makes of a name: nobody writes it
        return ""
    words = {bool: "`true`, `false`", int: "whole number", float: "number", str: "name"}
    return "`none`" if annotation is NoneType else words[annotation]


def _interval(metadata: list[Any]) -> str:
    """E.g. ``[0, 1)`` or ``≥ 1``."""
    low = high = ""
    left, right = "(", ")"
    for bound in metadata:
        match bound:
            case Ge(ge=value):
                low, left = str(value), "["
            case Gt(gt=value):
                low = str(value)
            case Le(le=value):
                high, right = str(value), "]"
            case Lt(lt=value):
                high = str(value)
    if low and high:
        return f"{left}{low}, {high}{right}"
    if low:
        return f"{'≥' if left == '[' else '>'} {low}"
    return f"{'≤' if right == ']' else '<'} {high}" if high else ""
