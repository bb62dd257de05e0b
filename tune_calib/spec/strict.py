"""Strict models and the types of their fields."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from tune_calib.errors import UserError
from tune_calib.files.paths import expand_path
from tune_calib.registry import Registry
from tune_calib.text import nearest


class StrictModel(BaseModel):
    """A frozen model that refuses unknown keys, NaN, infinity, and booleans as numbers."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="wrap")
    @classmethod
    def _is_of_kind(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        if type(value).__module__ == "numpy":  # whose booleans are none of Python
            value = value.tolist()
        result = handler(value)
        pairs: Iterable[tuple[Any, Any]] = [(value, result)]
        if isinstance(value, list | tuple) and isinstance(result, list | tuple):
            pairs = zip(value, result, strict=False)
        for before, after in pairs:
            if isinstance(before, bool) and type(after) in (int, float):
                raise ValueError("must be a number")
            if isinstance(after, bool) and not isinstance(before, bool):
                raise ValueError("must be true or false")
        return result


class Part(StrictModel):
    """A part of a request or an experiment file, which refuses empty strings too."""

    model_config = ConfigDict(defer_build=True)  # every command imports all models but uses one

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        keys = [field.alias or name for name, field in cls.model_fields.items()]
        for key in values:
            if key not in keys:
                context = {"key": str(key), "hint": nearest(str(key), keys)}
                raise PydanticCustomError("unknown_key", "unknown key '{key}'{hint}", context)
        return values

    @field_validator("*", mode="before")
    @classmethod
    def _is_not_empty(cls, value: Any) -> Any:
        if isinstance(value, str) and not value.strip():
            raise ValueError("must not be empty; leave it out")
        return value

    def has_default(self, name: str) -> bool:
        return bool(getattr(self, name) == type(self).model_fields[name].default)


@dataclass(frozen=True)
class Name:
    """Check that a string is a known name, or several with a ``joint`` between them."""

    registry: Registry[Any]
    joint: str | None = None
    pool: str | None = None  # beginning of several names with a colon between them

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        validate: Any = checked(self._check).func
        return core_schema.no_info_after_validator_function(validate, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """List the names for editors; allow others if a registry knows more than it lists."""
        names = {"enum": list(self.registry)}
        if self.joint is None and self.registry.kind != "backbone":
            return names
        return {"anyOf": [names, {"type": "string"}]}

    def _check(self, value: str) -> None:
        names = value.split(self.joint)
        if self.pool and value.startswith(self.pool):
            names[:1] = names[0].removeprefix(self.pool).split(":")
        for name in names:
            if self.joint and not name.strip():
                raise UserError(f"{value!r} has an empty part")
            self.registry.require(name)


def as_tuple(value: Any) -> Any:
    """Return a string or a list as a tuple, and anything else unchanged."""
    if isinstance(value, str | PathLike):
        return (fspath(value),)
    return tuple(value) if isinstance(value, list) else value


def as_numbers(value: Any) -> Any:
    """Return numbers and texts such as ``100,200`` as a tuple of numbers, sorted and distinct."""
    numbers = []
    for part in value if isinstance(value, list | tuple) else [value]:
        for number in part.split(",") if isinstance(part, str) else [part]:
            if isinstance(number, str) and not number.strip().isdigit():
                raise ValueError(f"{number!r} is not a whole number")
            numbers.append(int(number) if isinstance(number, str) else number)
    return tuple(sorted(set(numbers)))


def parse_share(value: Any) -> Any:
    """Return e.g. ``1/3`` as a number, and anything else unchanged, as ``auto``."""
    divisor = str(value).removeprefix("1/")
    if divisor == str(value) or not divisor.isdigit() or int(divisor) == 0:
        return value
    return 1 / int(divisor)


def whole_share(gpus: float | str) -> float | str:
    if isinstance(gpus, str):
        return gpus
    is_share = 0 < gpus <= 1 and math.isclose(round(1 / gpus) * gpus, 1, rel_tol=1e-9)
    if gpus != 0 and not is_share:
        raise ValueError("must be 0, 1, 1/k (1/3 is 0.3333333333333333) or auto")
    return gpus


def checked(check: Callable[[Any], object]) -> AfterValidator:
    """Return a validator that reports the user error of a check as one of the field."""

    def validate(value: Any) -> Any:
        try:
            check(value)
        except UserError as error:
            raise ValueError(str(error)) from None
        return value

    return AfterValidator(validate)


def parse_local(value: Any) -> Any:
    """Return a text as a local path, and anything that is no path unchanged."""
    if not isinstance(value, str | PathLike):
        return value
    try:
        return expand_path(fspath(value))
    except UserError as error:
        raise ValueError(str(error)) from None


TEXT = BeforeValidator(lambda value: fspath(value) if isinstance(value, PathLike) else value)
PATH = BeforeValidator(parse_local)
Text = Annotated[str, TEXT]
LocalPath = Annotated[Path, PATH]
Words = Annotated[
    tuple[str, ...], BeforeValidator(as_tuple, json_schema_input_type=str | tuple[str, ...])
]
Share = Annotated[
    Annotated[float, Field(allow_inf_nan=True)] | Literal["auto"],  # checked by ``whole_share``
    BeforeValidator(parse_share, json_schema_input_type=float | str),
    AfterValidator(whole_share),
]
