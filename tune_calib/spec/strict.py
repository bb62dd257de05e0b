"""Models that take nothing for what it is not: the base of specs, sweep files and parameters."""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator


class StrictModel(BaseModel):
    """Frozen; unknown keys, NaN, infinity, and a truth value for a number are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_kind(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse booleans in place of numbers and the reverse, which pydantic converts."""
        if info.field_name is not None:
            check_kind(value, cls, info.field_name)
        return value


def check_kind(value: Any, model: type[BaseModel], field: str) -> None:
    """Refuse booleans in place of numbers and the reverse, also in a list."""
    kinds = _kinds_of(model, field)
    for part in value if isinstance(value, list | tuple) else (value,):
        if isinstance(part, bool) and bool not in kinds and kinds & {int, float}:
            raise ValueError("must be a number")
        if isinstance(part, int | float | str) and not isinstance(part, bool) and kinds == {bool}:
            raise ValueError("must be true or false")


@cache
def _kinds_of(model: type[BaseModel], field: str) -> frozenset[Any]:
    return frozenset(_kinds(model.model_fields[field].annotation))


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the plain types of an annotation, without None."""
    parts = get_args(annotation)
    if get_origin(annotation) is Annotated:
        parts = parts[:1]
    for part in parts:
        yield from _kinds(part)
    if not parts and annotation is not type(None):
        yield annotation
