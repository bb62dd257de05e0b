"""The summary that a search prints at its end: the choice, the Pareto set and the counts."""

import shlex
from itertools import starmap
from typing import Any

from analysis.tables.table import Table, table_of
from analysis.text import unit_cell
from tune_calib.console import Part, Prose, Text
from tune_calib.spec import plugins
from tune_calib.spec.metrics import METRICS
from tune_calib.text import format_yaml, option_words
from tune_calib.tuning.search.run import SearchResult
from tune_calib.tuning.search.state import SearchState


def summarise(result: SearchResult) -> Text:
    """Build the text that a search prints at its end."""
    state, outcome, objective = result.state, result.outcome, result.state.objective
    pictures = f"tables, figures and a page: {_format_command('report', state)}"
    lines: list[Part] = [_build_table(result), "", Prose(result.counts), pictures]
    lines += map(Prose, state.list_warnings())
    if at_chance := sum(each.at_chance for each in state.results.values()):
        lines.append(f"{at_chance} suggestions are at chance and cannot be chosen")
    if not outcome.front:
        lines.append(
            f"no trial kept the accuracy within {100 * objective.guard:g} points of the baseline"
        )
        return Text(lines)
    number = outcome.front[0]
    settings = {**state.definition.resolved.fixed, **state.study.suggestion(number).point}
    choice = outcome.command or " ".join(f"{k}={format_yaml(v)}" for k, v in settings.items())
    lines.append(f"chosen: trial {number} ({objective.describe_rule()}): {choice}")
    lines.append(f"on the test split, once: {_format_command('evaluate', state, ('seeds', 5))}")
    return Text(lines)


def _build_table(result: SearchResult) -> Table:
    """Build the table of baseline, the method's own defaults and the Pareto set, on ``select``."""
    metrics, state = result.state.objective.metrics, result.state
    means = zip(metrics, state.baseline_means(metrics), strict=True)
    rows = [["baseline", *starmap(unit_cell, means), unit_cell("accuracy", 0.0)]]
    # Trial 0 has the method's own defaults.
    for number in dict.fromkeys([0, *result.outcome.front]):
        own = state.results[number]
        cells = map(unit_cell, metrics, own.values or (float("nan"),) * len(metrics))
        name = f"trial {number}" + (" (defaults)" if number == 0 else "")
        rows.append([name, *cells, unit_cell("accuracy", own.drop)])
    titles = [f"select {METRICS[name].title}" for name in metrics]
    return table_of(["", *titles, "accuracy lost"], rows)


def _format_command(command: str, state: SearchState, *options: tuple[str, Any]) -> str:
    words = [*option_words(options), *plugins.as_options()]
    return shlex.join(["tune-calib", command, str(state.out), *words])
