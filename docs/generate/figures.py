"""Every figure of a report: what it shows and how to read it, from its record."""

from typing import Any

from analysis.figure import LADDER_FIGURES, SEARCH_FIGURES
from docs.generate.page import table
from tune_calib.registry import Registry
from tune_calib.spec.describe import code


def every_figure() -> str:
    """A table of the figures of each kind of report, in the order of the page."""
    return "\n\n".join(
        [
            "### Of a ladder or comparison",
            _figures(LADDER_FIGURES),
            "### Of a search",
            _figures(SEARCH_FIGURES),
        ]
    )


def _figures(registry: Registry[Any]) -> str:
    records = sorted((registry[name] for name in registry), key=lambda record: record.position)
    rows = [(code(figure.name), figure.title, figure.reading) for figure in records]
    return table(("file", "what it shows", "how to read it"), rows)
