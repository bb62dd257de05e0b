"""The words of messages: mistakes in values that pydantic finds, and counts of things."""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

_NUMBER, _WHOLE, _BOOL = "must be a number", "must be a whole number", "must be true or false"
_WORDS = {
    "bool_parsing": _BOOL,
    "bool_type": _BOOL,
    "dict_type": "must be keys with values",
    "finite_number": "must be finite",
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": "has too many digits",
    "int_type": _WHOLE,
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is missing",
    "model_attributes_type": "must be keys with values",
    "model_type": "must be keys with values",
    "path_type": "must be a path",
    "string_pattern_mismatch": "takes letters, digits and _ . + - alone",
    "string_type": "must be a text",
    "too_short": "must hold at least {min_length}",
    "tuple_type": "must be a list",
}


def complaint(error: Mapping[str, Any]) -> str:
    """What is wrong with a value, without the value.

    Args:
        error: one of ``ValidationError.errors()``.
    """
    words = _WORDS.get(error["type"])
    if words is None:
        return str(error["msg"]).removeprefix("Value error, ").replace("Input should", "must")
    context = {k: f"{v:g}" if isinstance(v, float) else v for k, v in error.get("ctx", {}).items()}
    return words.format(**context)


def one_line(error: ValidationError) -> str:
    """The first mistake that pydantic found: where, what is wrong, and the value."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return (
        f"{where}: {complaint(first)}, got {shown(first['input'])}" if where else complaint(first)
    )


def counted(count: int, thing: str) -> str:
    """A number of things, e.g. ``1 trial`` or ``2 trials``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def as_setting(value: Any) -> str:
    """The value of a setting as captions print it, e.g. ``none`` or ``0.429, 0.714``."""
    if isinstance(value, list | tuple):
        return ", ".join(map(as_setting, value)) or "()"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | int):
        return f"{value:.6g}"
    return "none" if value is None else str(value)


_NO_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def typed(value: Any) -> str:
    """Return a plain JSON value as ``--set`` reads it back, without a loss of digits."""
    if isinstance(value, str) and value.isidentifier() and value.lower() not in _NO_WORDS:
        return value
    text = json.dumps(value)
    # YAML 1.1 takes 1e-05 for a text, unlike 1.0e-05.
    return text if isinstance(value, str) else _EXPONENT.sub(r"\1.0e", text)


_EXPONENT = re.compile(r"(?<![\d.])(-?\d+)e(?=[+-])")


def shown(value: Any) -> str:
    """A value as a message shows it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


STARS = "***"


def without_password(text: str) -> str:
    """A text in which the passwords of URLs are starred."""
    return re.sub(r"(://[^:/@\s]*):[^\s/]*@", rf"\1:{STARS}@", text)
