"""What is published, as the package holds it: one row a printed number; without pandas."""

import csv
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

FOLDER: Traversable = files("analysis") / "published"
NUMBERS = (FOLDER / "published_results.csv", FOLDER / "reproductions.csv")
TITLES = FOLDER / "titles.csv"

_TOLD = {"data sets": "dataset", "backbones": "arch", "metrics": "metric", "methods": "method"}


@cache
def overview() -> dict[str, dict[str, Any]]:
    """Every published table by its name, e.g. ``maccal/table5``.

    Returns:
        For each ``data sets``, ``backbones``, ``metrics`` and ``methods`` as the package names
        them, in the order of print, and how many ``numbers`` it has.
    """
    found: dict[str, dict[str, Any]] = {}
    for numbers in NUMBERS:
        with numbers.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                empty: dict[str, Any] = {key: {} for key in _TOLD} | {"numbers": 0}
                table = found.setdefault(f"{row['paper']}/{row['table']}", empty)
                table["numbers"] += 1
                for key, column in _TOLD.items():
                    table[key][row[column]] = None
    return {
        name: {k: v if k == "numbers" else list(v) for k, v in found[name].items()}
        for name in sorted(found)
    }
