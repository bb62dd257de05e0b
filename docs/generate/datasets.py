"""The data sets, and the options that `data.*` gives them."""

from docs.generate.page import table
from tune_calib.data.rules import GENERAL
from tune_calib.spec.datasets import DATASETS, NORMS
from tune_calib.spec.describe import code


def every_dataset() -> str:
    """A row for each data set."""
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
    head = ("`--dataset`", "data set", "classes", "pixels", "rules of its own", "source")
    return table(head, rows)


def every_rule() -> str:
    """A row for each rule of `data.split` that all data sets have."""
    rows = [(code(name), _first_sentences(rule.__doc__)) for name, rule in GENERAL.items()]
    return table(("`data.split`", "what it does"), rows)


def every_norm() -> str:
    """A row for each name of `data.norm`."""
    rows = [(code(name), mean, std) for name, (mean, std) in NORMS.items()]
    return table(("`data.norm`", "mean", "standard deviation"), rows)


def _first_sentences(docstring: str | None) -> str:
    return (docstring or "").replace("``", "`")
