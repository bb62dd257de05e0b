"""Generate the tables of data sets and of their options."""

from docs.generate.page import table
from tune_calib.data.rules import GENERAL
from tune_calib.spec.datasets import DATASETS, NORMS
from tune_calib.spec.describe import code


def every_dataset() -> str:
    """Return a table of the data sets."""
    rows = [
        (
            code(name),
            DATASETS[name].title,
            DATASETS[name].classes,
            f"{DATASETS[name].channels} x {DATASETS[name].size} x {DATASETS[name].size}",
            ", ".join(code(rule) for rule in DATASETS[name].rules),
            DATASETS[name].hint,
        )
        for name in DATASETS
    ]
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
