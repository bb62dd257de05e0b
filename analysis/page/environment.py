"""Where results were made and how to make them again, from what their rows recorded."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.page.page import Step
from analysis.tables.table import Table
from analysis.text import Cell, cell

_RECORDED = {
    "device": "device",
    "threads": "threads a trial",
    "processor": "processor",
    "gpu": "gpu",
    "instruction_set": "instruction set",
    "git_revision": "git revision",
}
"""Columns of ``trials`` and what they are called in the table."""


def environment(rows: pd.DataFrame) -> list[Table]:
    """Return versions, devices and revisions as the trials recorded them; none if none did.

    Args:
        rows: one a trial.
    """
    found: Counter[tuple[str, Any]] = Counter()
    for name, head in _RECORDED.items():
        if name in rows:
            counts = rows[name].value_counts()
            found.update({(head, value): n for value, n in counts.items()})
    texts = rows.get("versions", pd.Series(dtype=object)).astype(object)
    for text, count in texts.value_counts().items():
        found.update(dict.fromkeys(json.loads(str(text)).items(), count))
    names = list(dict.fromkeys(name for name, _ in found))
    records = [
        {"what": Cell(name), "value": cell(value), "trials": cell(count)}
        for (name, value), count in sorted(found.items(), key=lambda item: names.index(item[0][0]))
    ]
    note = "As each trial recorded it; + behind a revision: with changes that are not committed."
    return [Table("versions", note, records)] if records else []


def steps(rows: pd.DataFrame, command: str, options: Sequence[str]) -> list[Step]:
    """Return how to reproduce results.

    Args:
        rows: one a trial, with ``git_revision`` where it was recorded.
        command: that ran them.
        options: of ``tune-calib report``, as given.
    """
    revisions = rows.reindex(columns=["git_revision"])["git_revision"].dropna().unique()
    found = []
    if len(revisions):
        text = "Check the program out as it was and install the versions that it pins."
        if len(revisions) > 1:
            text += " The trials ran at several revisions."
        if any(revision.endswith("+") for revision in revisions):
            text += " It had changes that were not committed and so are not in the checkout."
        checkout = [f"git checkout {revision.rstrip('+')}" for revision in revisions]
        install = "pip install -c constraints.txt -e ."
        found.append(Step(text, "\n".join([*checkout, install])))
    text = "Run the trials; paths are those of the machine that ran them. What is done stays."
    found.append(Step(text, command))
    again = shlex.join(["tune-calib", "report", "DIR", *options])
    found.append(Step("Make this page again from the folder of the results.", again))
    return found
