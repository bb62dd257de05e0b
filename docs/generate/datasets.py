"""Generate the tables of data sets and of their options."""

from docs.generate.page import table
from tune_calib.data.rules import GENERAL
from tune_calib.spec.datasets import DATASETS, NORMS
from tune_calib.spec.describe import code


def every_dataset() -> str:
    """Return a table of the data sets."""
    rows = []
    for name in DATASETS:
        info = DATASETS[name]
        pixels = f"{info.channels} x {info.size} x {info.size}"
        rules = ", ".join(map(code, info.rules))
        rows.append((code(name), info.title, info.classes, pixels, rules, info.hint))
    head = ("`--dataset`", "data set", "classes", "pixels", "own split rules", "source")
    return table(head, rows)


def every_rule() -> str:
    """Return a table of the split rules that all data sets have."""
    rows = [(code(name), _first_sentences(rule.__doc__)) for name, rule in GENERAL.items()]
    return table(("`data.split`", "Split"), rows)


def every_norm() -> str:
    """Return a table of the names of `data.norm`."""
    rows = [(code(name), mean, std) for name, (mean, std) in NORMS.items()]
    return table(("`data.norm`", "mean", "standard deviation"), rows)


def _first_sentences(docstring: str | None) -> str:
    return (docstring or "").replace("``", "`")
