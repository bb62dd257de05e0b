"""Generate the reference of the keys of experiment files."""

from typing import Any

from pydantic import BaseModel

from docs.generate.page import table
from tune_calib.spec.describe import code
from tune_calib.spec.experiment import Entry, ExperimentFile, SearchOptions, SeedCounts
from tune_calib.spec.pipelines import Method
from tune_calib.spec.request import (
    DATA,
    EXTRAS,
    SEARCHING,
    SEEDS,
    TRAINING,
    WHERE,
    OptionHelp,
    ResourcesRequest,
)

PANELS = (DATA, TRAINING, SEEDS, SEARCHING, EXTRAS, WHERE)

_PARTS: dict[str, type[BaseModel]] = {
    "Top level": ExperimentFile,
    "Entries": Entry,
    "`search`": SearchOptions,
    "Items of `methods`": Method,
    "`seeds`": SeedCounts,
    "`resources`": ResourcesRequest,
}


def every_key() -> str:
    """Return a table for each part of the file."""
    parts = []
    for title, model in _PARTS.items():
        model.model_rebuild()  # which sets the aliases
        rows: list[Any] = []
        for key, field in model.model_fields.items():
            # The last one of a field replaces the others.
            panel, default = -1, None
            for metadata in field.metadata:
                if isinstance(metadata, OptionHelp):
                    panel, default = PANELS.index(metadata.panel), metadata.default
            if key in getattr(model, "one_of", ()):
                default = ""
            elif default is None:
                default = "required" if field.is_required() else _default(field.default)
            rows.append((panel, code(field.alias or key), default, field.description or ""))
        rows = [row for _, *row in sorted(rows, key=lambda row: row[0])]
        parts += [f"### {title}", table(("key", "default", "meaning"), rows)]
    return "\n\n".join(parts)


def _default(value: object) -> str:
    if value in (None, ()) or isinstance(value, BaseModel):
        return ""
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    if isinstance(value, bool):
        value = str(value).lower()
    return code(value)
