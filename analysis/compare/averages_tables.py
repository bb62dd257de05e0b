"""Renderers of averages over columns (plain text, Markdown, LaTeX, CSV, JSON), and their figure."""

import json
from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Drawing
from tabulate import tabulate

from analysis import style
from analysis.compare.averages import Averages
from analysis.latex import Table as LatexTable
from analysis.latex import label_of, latex_cell, render
from analysis.text import Cell, Record, best_two, number_cell, rounded, title
from tune_calib import console
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import signed
from tune_calib.text import counted

_PARTS = ("o_ece", "u_ece")  # together the ECE
_BAR_IN, _FRAME_IN = 0.22, 0.9  # height of a method, and of what is around them


def records(averages: Averages) -> list[Record]:
    """One row a method, best and second of each metric marked."""
    values: Any = averages.values.to_dict()
    methods = list(averages.values.index)
    rows: list[Record] = [{"method": Cell(_label(averages, method))} for method in methods]
    for metric, means in values.items():
        may_win = [method for method in methods if method not in averages.at_chance]
        numbers = (rounded(metric, means[method]) for method in may_win)
        best = best_two(numbers, METRICS[metric].direction)
        for method, row in zip(methods, rows, strict=True):
            rank = best.get(rounded(metric, means[method]), 0) if method in may_win else 0
            row[title(metric)] = number_cell(metric, means[method], rank=rank)
    return rows


def reading(averages: Averages) -> str:
    """What the numbers are means of, and what is left out."""
    kind = "printed in" if averages.is_published else "each the mean over the trials of sweep"
    columns = ", ".join(averages.columns)
    told = f"Mean over {counted(len(averages.columns), 'column')} ({columns}), {kind} "
    return " ".join([f"{told}{averages.source}.", *(f"{note}." for note in averages.notes)])


def plain(averages: Averages) -> str:
    """The table for a terminal; ``*`` is the best, ``'`` the second."""
    heads, lines = _cells(averages, "plain")
    body = console.Table(heads, lines, is_main=True)
    return console.Text([body, console.Prose(f"{reading(averages)} * best, ' second.")])


def markdown(averages: Averages) -> str:
    """The table in Markdown, best bold, second underlined."""
    heads, lines = _cells(averages, "markdown")
    # tabulate would read the cells as numbers and print 4.50 as 4.5.
    body = tabulate(lines, heads, tablefmt="github", disable_numparse=True)
    return f"{body}\n\n{reading(averages)} Best bold, second underlined."


def _cells(averages: Averages, kind: str) -> tuple[list[str], list[list[str]]]:
    """Heads, and the cells of each row as marked in a kind of text."""
    rows = records(averages)
    return list(rows[0]), [[cell.marked(kind) for cell in row.values()] for row in rows]


def latex(averages: Averages, caption: str | None = None, label: str | None = None) -> str:
    """The table in LaTeX (booktabs)."""
    rows = records(averages)
    content = LatexTable(
        heads=list(rows[0]),
        rows=[[latex_cell(cell) for cell in row.values()] for row in rows],
        caption=caption or f"{reading(averages)} Best bold, second underlined.",
        label=label or label_of("averages"),
    )
    return render(content)


def csv(averages: Averages) -> str:
    """One row a (method, metric): mean and the number of columns; fractions."""
    means = averages.values.rename_axis("method").reset_index()
    long = means.melt(id_vars="method", var_name="metric", value_name="mean")
    table = long.assign(columns=len(averages.columns))
    return table.to_csv(index=False, lineterminator="\n").rstrip("\n")


def json_object(averages: Averages) -> str:
    """One object: the columns that count, the means of each method, and the notes."""
    # JSON has no NaN: Python would write one that other programs cannot read.
    means = averages.values.astype(object).where(averages.values.notna(), None)
    content = {
        "columns": averages.columns,
        "means": means.to_dict("index"),
        "notes": averages.notes,
    }
    return json.dumps(content, indent=1)


def draw(averages: Averages) -> Drawing | None:
    """A bar a method: its average ECE, of an over- and an under-confident part.

    Returns:
        None where the averages lack one of the two.
    """
    if not set(_PARTS) <= set(averages.values):
        return None
    parts = 100 * averages.values[list(_PARTS)]
    names = [_label(averages, str(method)) for method in parts.index]
    height = _FRAME_IN + _BAR_IN * len(parts)
    figure, axis = plt.subplots(figsize=(style.COLUMN_IN, height))
    over, under = (parts[name] for name in _PARTS)
    axis.barh(names, over, color=style.color(3), label="O-ECE: over-confident")
    axis.barh(names, under, left=over, color=style.color(0), label="U-ECE: under-confident",
              hatch="////", edgecolor="white", linewidth=0)  # fmt: skip
    axis.invert_yaxis()  # the first at the top, as in a table
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel(f"ECE (%), mean over {counted(len(averages.columns), 'column')}")
    figure.legend(loc="outside upper left", frameon=False, ncols=2, fontsize=6.5,
                  handlelength=1.2, columnspacing=1.0)  # fmt: skip
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _label(averages: Averages, method: str) -> str:
    return signed(method, averages.flags.get(method, []))


RENDERERS: dict[str, Callable[[Averages], str]] = {
    "plain": plain,
    "markdown": markdown,
    "latex": latex,
    "csv": csv,
    "json": json_object,
}
