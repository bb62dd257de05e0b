"""Generate the reference of the keys of experiment files."""

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
    "Top level": ExperimentFile,
    "Entries": Entry,
    "`search`": SearchOptions,
    "Items of `methods`": Method,
    "`seeds`": SeedCounts,
    "`resources`": TrialResources,
}


def every_key() -> str:
    """Return a table for each part of the file."""
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
