"""Generate the tables of result columns, JSON keys, metrics and flags."""

import json
import re
from itertools import chain
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from docs.generate.page import table
from tune_calib.results.columns import COLUMNS
from tune_calib.results.manifests import (
    RunManifest,
    SearchEvaluated,
    SearchManifest,
    SearchOutcome,
    TunedManifest,
)
from tune_calib.spec.describe import code
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import FLAGS

FILES: tuple[type[BaseModel], ...] = (
    RunManifest, SearchManifest, SearchOutcome, SearchEvaluated, TunedManifest,
)  # fmt: skip

_WORDS = {
    str: "text", int: "whole number", float: "number", bool: "true or false", NoneType: "null",
    Any: "value",
}  # fmt: skip


def every_column() -> str:
    """Return a table of columns for each result table."""
    parts = []
    for name, columns in COLUMNS.items():
        rows = [(code(key), code(column.type), column.meaning) for key, column in columns.items()]
        parts += [f"### `{name}`", table(("Column", "Type", "Meaning"), rows)]
    return "\n\n".join(parts)


def manifests() -> str:
    """Return a table of keys for each JSON file and for each record in it."""
    parts, pending, done = [], list[Any](FILES), set[Any]()
    while pending:
        model = pending.pop(0)
        if model in done:
            continue
        done.add(model)
        heading = f"#### {_noun(model)}"
        if name := getattr(model, "file_name", None):
            heading = f"### `{name}`"
        parts += [heading, (model.__doc__ or "").partition("\n")[0]]
        rows = []
        for key, field in model.__pydantic_fields__.items():
            if not field.exclude:
                rows.append((code(key), _kind(field.annotation), field.description))
                pending[:0] = [inner for inner in _records(field.annotation) if inner not in done]
        parts.append(table(("Key", "Value", "Meaning"), rows))
    return "\n\n".join(parts)


def _records(annotation: Any) -> list[Any]:
    if hasattr(annotation, "__pydantic_fields__"):
        return [annotation]
    return list(chain.from_iterable(map(_records, get_args(annotation))))


def _kind(annotation: Any) -> str:
    """Describe a type in words."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation in _WORDS:
        return _WORDS[annotation]
    if origin is Literal:
        return ", ".join(code(json.dumps(value).strip('"')) for value in parts)
    if origin is list:
        return f"list of {_kind(parts[0])}"
    if origin is dict:
        return f"object: {_kind(parts[1])} by name"
    if origin is not None:
        return " or ".join(_kind(part) for part in parts)
    return _noun(annotation)


def _noun(model: type) -> str:
    words = re.findall(r"[A-Z][a-z]+", model.__name__.removesuffix("Record"))
    return " ".join(words).lower()


def metrics() -> str:
    """Return a table of the metrics."""
    better = {"min": "smaller", "max": "larger", None: "none"}
    rows = []
    for name in METRICS:
        metric, anchor = METRICS[name], f'<span id="{name}">`{name}`</span>'
        values = f"{metric.lower:g} to {metric.upper:g}"
        searchable = {True: "yes", False: "no"}[metric.is_searchable]
        direction = better[metric.direction]
        rows.append((anchor, metric.title, direction, metric.unit, values, searchable))
    return table(("Name", "Title", "Better", "Unit", "Values", "Searchable"), rows)


def flags() -> str:
    """Return a table of the warnings in tables."""
    rows = [(flag.sign, code(flag.name), flag.meaning) for flag in FLAGS.values()]
    return table(("Sign", "Flag", "Meaning"), rows)
