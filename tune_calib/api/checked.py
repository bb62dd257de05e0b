"""Arguments of a call: of another kind, or with a name that it has not, they are one line."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from tune_calib.errors import UserError
from tune_calib.text import complaint, nearest, shown

P = ParamSpec("P")
R = TypeVar("R")

_STRICT = ConfigDict(strict=True, extra="forbid", arbitrary_types_allowed=True)


def checked(call: Callable[P, R]) -> Callable[P, R]:
    """A function whose arguments are held against its annotations; values stay as they are.

    Raises:
        UserError: by the function, of an argument that is unknown, missing or of another kind.
    """
    signature = inspect.signature(call)
    hints = get_type_hints(call, include_extras=True)
    fields: Any = {
        name: (hints[name], ... if each.default is each.empty else each.default)
        for name, each in signature.parameters.items()
    }
    model = create_model(call.__name__, __config__=_STRICT, **fields)

    @functools.wraps(call)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in fields:
                raise UserError(f"{call.__name__}: unknown `{name}`{nearest(name, list(fields))}")
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UserError(f"{call.__name__}: {error}") from None
        try:
            model.model_validate(bound.arguments)
        except ValidationError as error:
            first = error.errors()[0]
            told = f"`{first['loc'][0]}` {complaint(first)}, got {shown(first['input'])}"
            raise UserError(f"{call.__name__}: {told}") from None
        return call(*args, **kwargs)

    return run
