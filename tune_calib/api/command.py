"""The command that asks what a call in Python asked: results name it, and any shell repeats it."""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from os import PathLike, fspath
from typing import Any

from tune_calib.errors import UserError
from tune_calib.text import command_line, shown, typed


def command_of(call: Callable[..., Any], given: Mapping[str, Any]) -> str:
    """The command line of a call; what stands at its default is left out.

    Args:
        call: the function; its positional parameters are the arguments of the command.
        given: its arguments by name.

    Raises:
        UserError: a setting is nothing that a file could hold.
    """
    words = ["tune-calib", call.__name__]
    for name, parameter in inspect.signature(call).parameters.items():
        value = given[name]
        if value is None or value == parameter.default:
            continue
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            words += _texts(value)
        else:
            words += _option(name, value)
    return command_line(words)


def plain(name: str, value: Any) -> Any:
    """A setting as a file holds it: NumPy's numbers become Python's, tuples lists.

    Args:
        name: of the setting, for messages.
        value: of it.

    Raises:
        UserError: no file can hold it.
    """
    try:
        return json.loads(json.dumps(value, default=lambda array: array.tolist()))
    except (TypeError, ValueError, AttributeError):
        raise UserError(
            f"`set` {name}: {shown(value)} is no number, text, truth value or list of such"
        ) from None


def _option(name: str, value: Any) -> Iterator[str]:
    option = f"--{name.replace('_', '-')}"
    if value is True:
        yield option
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from (option, f"{key}={typed(plain(key, each))}")
    elif name == "norm":  # constants are one value
        yield from (option, value if isinstance(value, str) else json.dumps(plain(name, value)))
    else:
        for text in _texts(value):
            yield from (option, text)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str | PathLike):
        return [fspath(value)]
    return [str(value)] if isinstance(value, int | float) else [fspath(each) for each in value]
