"""Texts of messages: validation errors, nearest names, counts, short values."""

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

_WORDS = {
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("extra_forbidden", "unexpected_keyword_argument"), "is not a setting"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    **dict.fromkeys(("int_from_float", "int_parsing", "int_type"), "must be a whole number"),
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    **dict.fromkeys(
        ("dict_type", "model_attributes_type", "model_type"), "must be a mapping of keys to values"
    ),
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "missing": "is missing",
    "path_type": "must be a path",
    "string_pattern_mismatch": "may contain only letters, digits and _ . + -",
    "string_type": "must be a string",
    "too_short": "must contain at least {min_length}",
}


def format_mistake(error: Mapping[str, Any]) -> str:
    """Describe what is wrong with a value, from an entry of ``ValidationError.errors()``."""
    words = _WORDS.get(error["type"])
    if words is None:
        return str(error["msg"]).removeprefix("Value error, ").replace("Input should", "must")
    context = error.get("ctx", {})
    bounds = {name: f"{bound:g}" for name, bound in context.items() if isinstance(bound, float)}
    return words.format(**{**context, **bounds})


def nearest(name: str, known_names: list[str]) -> str:
    """Return a hint such as ``"; did you mean 'ece'?"``, or the list of what is known.

    Names that start with the given one come first, then names that contain it, then the most
    similar one.
    """
    if not known_names:
        return "; there are none"
    part, names = name.lower(), list(dict.fromkeys(known_names))
    close: list[str] = []
    if len(part) >= 2:
        close = [candidate for candidate in names if candidate.lower().startswith(part)]
    if not close and len(part) >= 3:
        close = [candidate for candidate in names if part in candidate.lower()]
    close = close or difflib.get_close_matches(name, names, n=1)
    if not close:
        return f"; known: {', '.join(names)}"
    return f"; did you mean {' or '.join(map(repr, close[:8]))}?"


def format_count(count: int | str, noun: str) -> str:
    """Format a number of things, e.g. ``1 trial`` or ``2 trials``."""
    plural = "" if str(count) == "1" else "s"
    return f"{count} {noun}{plural}"


def format_points(difference: float) -> str:
    """Format a difference of fractions, e.g. ``1 point`` or ``0.5 points``."""
    return format_count(f"{100 * difference:g}", "point")


def format_setting(value: Any) -> str:
    """Format the value of a setting for captions, e.g. ``none`` or ``0.429, 0.714``."""
    if isinstance(value, list | tuple):
        return ", ".join(map(format_setting, value)) or "()"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | int):
        return f"{value:.6g}"
    return "none" if value is None else str(value)


def format_yaml(value: Any) -> str:
    """Format a plain JSON value so that ``--set`` reads it back without losing digits."""
    no_words = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
    if isinstance(value, str) and value.isidentifier() and value.lower() not in no_words:
        return value
    return json.dumps(value)


def short_repr(value: Any) -> str:
    """Return the repr of a value for messages, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


STARS = "***"

_URL = re.compile(r"[\w+.-]+://\S+?(?=[\"'),;\].]*(?:\s|$))")
_VALUE = re.compile(r"(?<==)[^&]+|(?<![^&])[^&=]+(?![^&])")  # also of a parameter without a name


def mask_url(url: str) -> str:
    """Mask the secrets of a URL: its password and those in its query.

    If special characters make it unclear what is secret, everything after the scheme is masked. The
    URL may follow an option and ``=``; any other text is returned unchanged.
    """
    scheme, separator, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    if "?" in user or (":" in user and "@" in user):
        return f"{scheme}://{STARS}"
    name, colon, _ = user.partition(":")
    if colon:
        user = f"{name}:{STARS}"
    place, mark, query = place.partition("?")
    return f"{scheme}{separator}{user}{at}{place}{mark}{_VALUE.sub(STARS, query)}"


def mask_urls(text: str) -> str:
    """Mask the secrets of all URLs in a text."""
    return _URL.sub(lambda url: mask_url(url[0]), text)


def option_words(options: Iterable[tuple[str, Any]]) -> list[str]:
    """Return options as words of a command; an option that is true has no value."""
    words = []
    for name, value in options:
        words.append(f"--{name}")
        if value is not True:
            words.append(str(value))
    return words


def command_line(words: Iterable[str]) -> str:
    """Return the words of a command, quoted for a shell and without the secrets of URLs."""
    return shlex.join(map(mask_url, words))
