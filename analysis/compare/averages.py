"""Average metrics over (data set, backbone) columns, as in MaC-Cal's figure 4."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.compare.gather import Collected, Flagged, column_name, gather, without_nan
from analysis.tables.latex import label_of
from analysis.tables.render import View
from analysis.tables.table import BEST, Table
from analysis.text import Cell, ranked, records_of
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import legend
from tune_calib.text import format_count

_PARTS = ("o_ece", "u_ece")  # together the ECE
_BAR_IN, _FRAME_IN = 0.22, 0.9  # height of a bar, and of axes and legend


@dataclass(frozen=True, eq=False)
class Averages(Flagged):
    """Means of methods over the columns in which every method has every metric."""

    source: str  # the published tables, or the ids of the runs
    is_published: bool
    values: pd.DataFrame  # index method, columns metric; fractions; NaN without a number
    columns: tuple[str, ...]  # names of the columns that count
    at_chance: frozenset[str]  # methods with a trial at chance in a column, which are never best
    flags: Mapping[str, list[str]]
    notes: tuple[str, ...]  # the network check of each run, and omissions with their reasons


def average(collected: Mapping[str, Collected]) -> Averages:
    """Average each metric of ``gather.collect`` over the columns that count for all of them."""
    every = [gather(each.frame, metric) for metric, each in collected.items()]
    complete: list[list[Any]] = [
        [key for key in each.values.columns if key not in each.uncounted] for each in every
    ]
    columns = [key for key in complete[0] if all(key in own for own in complete)]
    if not columns:
        raise UserError("no column has a number for every method and metric; request fewer metrics")
    means = {each.metric: each.values[columns].mean(axis="columns") for each in every}
    methods = list(dict.fromkeys(method for each in every for method in each.values.index))
    flags = {m: cells for each in every for m, cells in each.flags.items()}
    notes = [note for own in collected.values() for note in own.notes]
    notes += [note for own in every for note in own.notes]
    lost = [column_name(key) for own in complete for key in own if key not in columns]
    notes += [f"{column} does not count, since a metric has no number there" for column in lost]
    notes += legend(cell for cells in flags.values() for cell in cells)
    chance = [each.at_chance[columns].any(axis="columns") for each in every]
    return Averages(
        source=every[0].source,
        is_published=every[0].is_published,
        values=pd.DataFrame(means).reindex(methods),
        columns=tuple(column_name(key) for key in columns),
        at_chance=frozenset(str(method) for own in chance for method in own.index[own]),
        flags=flags,
        notes=tuple(dict.fromkeys(notes)),
    )


def view(averages: Averages) -> View:
    """Return a row per method, with the best and the second of each metric marked."""
    methods = list(averages.values.index)
    may_win = [method not in averages.at_chance for method in methods]
    columns = {"method": [Cell(averages.label(method)) for method in methods]}
    for metric, values in averages.values.items():
        record = METRICS[str(metric)]
        cells = [Cell.number(record, value) for value in values]
        columns[record.head] = ranked(cells, record.direction, may_win)
    kind = f"printed in {averages.source}" if averages.is_published else "each the mean over trials"
    lines = [
        f"Mean over {format_count(len(averages.columns), 'column')} "
        f"({', '.join(averages.columns)}), {kind}. {BEST}",
        *(f"{note}." for note in averages.notes),
    ]
    table = Table(
        "averages", "\n".join(lines), records_of(columns), label=label_of("averages"), is_main=True
    )
    means = without_nan(averages.values).to_dict("index")
    content = {"columns": averages.columns, "means": means, "notes": averages.notes}
    long = averages.values.rename_axis("method").reset_index()
    long = long.melt(id_vars="method", var_name="metric", value_name="mean")
    frame = long.assign(columns=len(averages.columns))
    return View([table], content, frame, averages.notes)


def draw(averages: Averages) -> Drawing | None:
    """Draw a bar per method: its average ECE, split into an over- and an under-confident part."""
    if not set(_PARTS) <= set(averages.values):
        return None
    parts = 100 * averages.values[list(_PARTS)]
    names = [averages.label(str(method)) for method in parts.index]
    height = _FRAME_IN + _BAR_IN * len(parts)
    figure, axis = plt.subplots(figsize=(style.COLUMN_IN, height))
    over, under = (parts[name] for name in _PARTS)
    axis.barh(names, over, color=style.color(3), label="O-ECE: over-confident")
    axis.barh(names, under, left=over, color=style.color(0), label="U-ECE: under-confident",
              hatch="////", edgecolor="white", linewidth=0)  # fmt: skip
    axis.invert_yaxis()  # the first at the top, as in a table
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel(f"ECE (%), mean over {format_count(len(averages.columns), 'column')}")
    figure.legend(loc="outside upper left", frameon=False, ncols=2, fontsize=6.5,
                  handlelength=1.2, columnspacing=1.0)  # fmt: skip
    axis.spines[["top", "right"]].set_visible(False)
    return figure
