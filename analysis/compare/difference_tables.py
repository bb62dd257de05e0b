"""The tables of a difference of two sweeps."""

import json

from analysis.compare.difference import Difference
from analysis.compare.paired import MIN_PAIRS
from analysis.tables.latex import label_of
from analysis.tables.render import View
from analysis.tables.table import Table
from analysis.text import Cell, cell, full_stops, number_cell, span_cell
from tune_calib.spec.metrics import METRICS


def view(found: Difference) -> View:
    """A row a (rung, metric), then, where there are some, a row a setting that changed."""
    records = [
        {
            "rung": Cell(row["rung"]),
            "metric": Cell(METRICS[row["metric"]].head),
            "A": number_cell(row["metric"], row["first"]),
            "B": number_cell(row["metric"], row["second"]),
            "B - A": number_cell(row["metric"], row["difference"], signed=True),
            "95 % interval": span_cell(row["metric"], row["low"], row["high"], signed=True),
            "pairs": cell(row["pairs"]),
            "B better in": cell(row["better"]),
        }
        for row in found.table.to_dict("records")
    ]
    changed = [
        {"setting": Cell(setting), "A": Cell(first), "B": Cell(second)}
        for setting, first, second in found.changed.itertuples(index=False)
    ]
    notes, label = _sentences(found), label_of("diff", *found.metrics)
    tables = [
        Table("differences", "\n".join(notes), records, label=label, is_main=True),
        Table("settings", "Settings that differ.", changed, label=f"{label}-settings"),
    ]
    content = {
        # By way of pandas' JSON, which has null for NaN.
        "differences": json.loads(found.table.to_json(orient="records")),
        "settings": json.loads(found.changed.to_json(orient="records")),
        "notes": notes,
    }
    return View([table for table in tables if table.records], content, found.table, notes)


def _sentences(found: Difference) -> list[str]:
    """What was compared and how, and what is missing."""
    same = [] if len(found.changed) else ["The rungs of both have the same settings."]
    lines = [
        f"A: {found.titles[0]}",
        f"B: {found.titles[1]}",
        f"A pair is a {found.unit}; means are over the pairs",
        f"Intervals: Student's over pairs, from {MIN_PAIRS} on, each for itself: of twenty that "
        "show nothing one leaves out 0",
        *same,
        *found.notes,
    ]
    return full_stops(lines)
