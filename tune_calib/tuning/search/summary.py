"""What a search prints at its end: the choice, the Pareto set and the counts."""

import shlex
from itertools import starmap
from typing import Any

from analysis.tables.table import Table, table_of
from analysis.text import unit_cell
from tune_calib.console import Part, Prose, Text
from tune_calib.spec import plugins
from tune_calib.spec.metrics import METRICS
from tune_calib.text import format_yaml, option_words
from tune_calib.tuning.search.driver import Found
from tune_calib.tuning.search.ledger import Ledger


def summarise(found: Found) -> Text:
    """Build the text that a search prints at its end."""
    ledger, objective = found.ledger, found.ledger.objective
    front = objective.pareto(ledger.standings)
    pictures = f"tables, figures and a page: {_typed('report', ledger)}"
    lines: list[Part] = [_table(ledger, front), "", Prose(found.counts), pictures]
    lines += map(Prose, ledger.remarks())
    at_chance = sum(standing.at_chance for standing in ledger.standings.values())
    if at_chance:
        lines.append(f"{at_chance} suggestions are at chance and cannot be chosen")
    if not front:
        lines.append(
            f"no trial kept the accuracy within {100 * objective.guard:g} points of the baseline"
        )
        return Text(lines)
    lines.append(f"chosen: trial {front[0]} ({objective.rule()}): {_told(found, front[0])}")
    lines.append(f"on the test split, once: {_typed('evaluate', ledger, ('seeds', 5))}")
    return Text(lines)


def _table(ledger: Ledger, front: list[int]) -> Table:
    """Baseline, the method's own defaults and the Pareto set, on ``select``."""
    objective = ledger.objective
    metrics = objective.metrics
    means = zip(metrics, ledger.baseline_means(metrics), strict=True)
    rows = [["baseline", *starmap(unit_cell, means), unit_cell("accuracy", 0.0)]]
    # Trial 0 has the method's own defaults.
    for number in dict.fromkeys([0, *front]):
        standing = ledger.standings[number]
        values = standing.values or (float("nan"),) * len(metrics)
        told = map(unit_cell, metrics, values)
        name = f"trial {number}" + (" (defaults)" if number == 0 else "")
        rows.append([name, *told, unit_cell("accuracy", standing.drop)])
    titles = [f"select {METRICS[name].title}" for name in metrics]
    return table_of(["", *titles, "accuracy lost"], rows)


def _typed(command: str, ledger: Ledger, *options: tuple[str, Any]) -> str:
    words = [*option_words(options), *plugins.as_options()]
    return shlex.join(["tune-calib", command, str(ledger.out), *words])


def _told(found: Found, number: int) -> str:
    """Return the command that trains the choice; its settings alone if there is none."""
    if found.command:
        return found.command
    settings = {
        **found.ledger.candidates.asked.fixed,
        **found.ledger.study.suggestion(number).point,
    }
    return " ".join(f"{name}={format_yaml(value)}" for name, value in settings.items())
