"""Signatures and docstrings of functions whose arguments are the fields of a request."""

import functools
import operator
import re
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature, formatannotation
from os import PathLike
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from tune_calib.errors import UserError
from tune_calib.spec.pipelines import Method
from tune_calib.spec.request import ALWAYS, field_names, is_argument, option_help
from tune_calib.spec.strict import PATH, TEXT, Part
from tune_calib.text import nearest

Words = str | Sequence[str]


def as_tuple(words: Words) -> tuple[str, ...]:
    """Return an argument that takes one string or several as a tuple."""
    return (words,) if isinstance(words, str) else tuple(words)


def build_signature(model: type[Part], returned: Any) -> Signature:
    """Build the signature of a call: the fields of a request, ``log`` and ``plugin``."""
    parameters = []
    for name in field_names(model):
        field, is_named = model.model_fields[name], not is_argument(model, name)
        kind = Parameter.KEYWORD_ONLY if is_named else Parameter.POSITIONAL_OR_KEYWORD
        default = Parameter.empty if field.is_required() else field.default
        annotation = _accepted(field.rebuild_annotation())
        parameters.append(Parameter(name, kind, default=default, annotation=annotation))
    for name in ALWAYS:
        always = Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Words | None)
        parameters.append(always)
    return Signature(parameters, return_annotation=returned)


def _accepted(annotation: Any) -> Any:
    """Return the type that callers may pass: texts as paths, one value or several."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        if any(marker in (TEXT, PATH) for marker in parts[1:]):
            return str | PathLike[str]
        return _accepted(parts[0])
    if kind in (Union, UnionType):
        return functools.reduce(operator.or_, map(_accepted, parts))
    if kind is tuple and Method in map(_accepted, parts):
        return str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
    if kind is tuple:
        is_number = _accepted(parts[0]) is int
        return str | int | Sequence[int] if is_number else Words
    return annotation


def add_arguments(model: type[Part], signature: Signature, text: str) -> str:
    """Insert a section about the arguments into a docstring, before its other sections."""
    lines = []
    for name, parameter in signature.parameters.items():
        meaning = ALWAYS.get(name)
        if meaning is None:
            meaning, shown = str(model.model_fields[name].description), option_help(model, name)
            if shown.default is not None:
                meaning += f" (default: {shown.default})"
            elif parameter.default not in (None, (), Parameter.empty):
                meaning += f" (default: {parameter.default!r})"
        lines.append(f"    {name} ({format_type(parameter.annotation)}): {meaning}.")
    summary, mark, sections = text.partition("Returns:")
    return f"{summary}Args:\n" + "\n".join(lines) + f"\n\n{mark}{sections}"


def format_type(annotation: Any) -> str:
    """Format a type as in a signature, e.g. ``str | None``."""
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(format_type, get_args(annotation)))
    return re.sub(r"(\w+\.)+", "", formatannotation(annotation)).replace("NoneType", "None")


def bind(
    name: str, signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Return the fields of a request that a call gives, and its values of ``ALWAYS``."""
    for key in kwargs:
        if key not in signature.parameters:
            hint = nearest(key, list(signature.parameters))
            raise UserError(f"{name}: unknown `{key}`{hint}")
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise UserError(f"{name}: {error}") from None
    always = {}
    for key in ALWAYS:
        value = arguments.pop(key, None)
        words = (value,) if isinstance(value, str | PathLike) else tuple(value or ())
        if not all(isinstance(word, str | PathLike) for word in words):
            raise UserError(f"{name}: `{key}` must be a string or a list of strings, got {value!r}")
        always[key] = tuple(map(str, words))
    return arguments, always
