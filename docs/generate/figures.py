"""Generate the tables of figures from their records."""

from typing import Any

from analysis.figure import LADDER_FIGURES, SEARCH_FIGURES
from docs.generate.page import table
from tune_calib.registry import Registry
from tune_calib.spec.describe import code


def every_figure() -> str:
    """Return a table of the figures of each kind of report, in the order of its page."""
    return "\n\n".join(
        [
            "### Ladders and comparisons",
            _figures(LADDER_FIGURES),
            "### Searches",
            _figures(SEARCH_FIGURES),
        ]
    )


def _figures(registry: Registry[Any]) -> str:
    records = sorted(registry.values(), key=lambda record: record.position)
    rows = [(code(figure.name), figure.title, figure.reading) for figure in records]
    return table(("File", "Contents", "How to read it"), rows)
