"""The table of averages over columns, and their figure."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.compare.averages import Averages
from analysis.tables.latex import label_of
from analysis.tables.render import View
from analysis.tables.table import BEST, Table
from analysis.text import Cell, number_cell, ranked, records_of
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import signed
from tune_calib.text import format_count

_PARTS = ("o_ece", "u_ece")  # together the ECE
_BAR_IN, _FRAME_IN = 0.22, 0.9  # height of a method, and of what is around them


def view(averages: Averages) -> View:
    """One row a method, best and second of each metric marked."""
    methods = list(averages.values.index)
    may_win = [method not in averages.at_chance for method in methods]
    columns = {"method": [Cell(_label(averages, method)) for method in methods]}
    for metric, values in averages.values.items():
        record = METRICS[str(metric)]
        cells = [number_cell(record, value) for value in values]
        columns[record.head] = ranked(cells, record.direction, may_win)
    caption = f"{_reading(averages)} {BEST}"
    table = Table(
        "averages", caption, records_of(columns), label=label_of("averages"), is_main=True
    )
    # JSON has no NaN: Python would write one that other programs cannot read.
    means = averages.values.astype(object).where(averages.values.notna(), None).to_dict("index")
    content = {"columns": averages.columns, "means": means, "notes": averages.notes}
    long = averages.values.rename_axis("method").reset_index()
    long = long.melt(id_vars="method", var_name="metric", value_name="mean")
    frame = long.assign(columns=len(averages.columns))
    return View([table], content, frame, averages.notes)


def _reading(averages: Averages) -> str:
    """What the numbers are means of, and what is left out."""
    kind = "printed in" if averages.is_published else "each the mean over the trials of sweep"
    columns = ", ".join(averages.columns)
    told = f"Mean over {format_count(len(averages.columns), 'column')} ({columns}), {kind} "
    return " ".join([f"{told}{averages.source}.", *(f"{note}." for note in averages.notes)])


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
    axis.set_xlabel(f"ECE (%), mean over {format_count(len(averages.columns), 'column')}")
    figure.legend(loc="outside upper left", frameon=False, ncols=2, fontsize=6.5,
                  handlelength=1.2, columnspacing=1.0)  # fmt: skip
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _label(averages: Averages, method: str) -> str:
    return signed(method, averages.flags.get(method, []))
