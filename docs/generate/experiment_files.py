"""The keys of a sweep file."""

from pydantic import BaseModel

from docs.generate.page import table
from tune_calib.spec.describe import code
from tune_calib.spec.experiment import (
    Entry,
    ExperimentFile,
    Method,
    SearchOptions,
    SeedCounts,
    TrialResources,
)

_PARTS: dict[str, type[BaseModel]] = {
    "At the top": ExperimentFile,
    "In an entry": Entry,
    "In `search`": SearchOptions,
    "Of a method in `methods`": Method,
    "In `seeds`": SeedCounts,
    "In `resources`": TrialResources,
}


def every_key() -> str:
    """A table a part of the file."""
    parts = []
    for title, model in _PARTS.items():
        rows = []
        for key, field in model.model_fields.items():
            default = "required" if field.is_required() else _default(field.default)
            rows.append((code(key), default, field.description or ""))
        parts += [f"### {title}", table(("key", "default", "meaning"), rows)]
    return "\n\n".join(parts)


def _default(value: object) -> str:
    if value is None or isinstance(value, BaseModel):
        return ""
    if isinstance(value, tuple):
        value = ", ".join(map(str, value))
    return code(str(value).lower() if isinstance(value, bool) else value)
