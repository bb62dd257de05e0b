"""Columns of the result tables, keys of the JSON files, metrics and flags."""

from docs.generate.page import code, table
from tune_calib.columns import COLUMNS
from tune_calib.names import FLAGS, METRICS


def every_column() -> str:
    """A table of columns for each result table."""
    parts = []
    for name, columns in COLUMNS.items():
        rows = [(code(key), code(column.type), column.meaning) for key, column in columns.items()]
        parts += [f"### `{name}` {{ #{name} }}", table(("column", "type", "what it holds"), rows)]
    return "\n\n".join(parts)


def manifests() -> str:
    """A table of keys for each JSON file."""
    return ""


def metrics() -> str:
    """Every metric that a trial has."""
    better = {"min": "smaller", "max": "larger"}
    rows = [
        (f'<span id="{m.name}">`{m.name}`</span>', m.title, better[m.direction], m.unit,
         f"{m.lower:g} to {m.upper:g}")
        for m in (METRICS[name] for name in METRICS)
    ]  # fmt: skip
    return table(("name", "title", "better", "unit", "values"), rows)


def flags() -> str:
    """Every warning that stands beside numbers."""
    rows = [(flag.sign, code(flag.name), flag.meaning) for flag in FLAGS.values()]
    return table(("sign", "in the column `flags`", "what it says"), rows)
