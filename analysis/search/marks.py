"""How suggestions are marked: by what they mean for the choice, and what a mark is of."""

from typing import Any

import pandas as pd

from analysis import style
from analysis.search.load import SearchResults
from analysis.search.tables import setting_cell
from analysis.text import number_cell
from tune_calib.spec.metrics import METRICS

CHOSEN = style.color(3)
_WITHIN, _BEYOND, _DEFAULT = style.color(0), "0.6", style.color(2)


def groups(
    search: SearchResults, table: pd.DataFrame
) -> list[tuple[pd.DataFrame, str, dict[str, Any]]]:
    """Return suggestions that are done, by what they mean for the choice: rows, label and look."""
    is_done = table["mean"].notna()
    is_default = search.are_defaults(table)
    parts = [
        (is_done & table["is_within"], "within the guard", _WITHIN, "o", _WITHIN),
        (is_done & ~table["is_within"], "loses more accuracy", _BEYOND, "o", "white"),
        (is_done & is_default, "the method's defaults", _DEFAULT, "D", _DEFAULT),
        (is_done & (table["number"] == search.chosen), "chosen", CHOSEN, "*", CHOSEN),
    ]
    sizes = {"o": 3.5, "D": 5.5, "*": 11}
    return [
        (
            table[chosen],
            f"{label} ({int(chosen.sum())})" if mark == "o" else label,
            {"color": color, "marker": mark, "markersize": sizes[mark], "linestyle": "none",
             "markerfacecolor": face, "markeredgewidth": 0.8, "zorder": 4 if mark == "*" else 2},
        )
        for chosen, label, color, mark, face in parts
        if chosen.any()
    ]  # fmt: skip


def describe_rows(search: SearchResults, rows: pd.DataFrame) -> list[str]:
    """Return of each suggestion its number, its metrics and its settings, in the order of rows."""
    metrics = list(dict.fromkeys([*search.metrics, "accuracy"]))
    values = {m: search.table(m).set_index("number") for m in metrics}
    texts = []
    for row in rows.to_dict("records"):
        name = f"suggestion {row['number']}"
        lines = [f"{name} (chosen)" if row["number"] == search.chosen else name]
        for metric, table in values.items():
            found = table.loc[row["number"]]
            lines.append(
                f"{METRICS[metric].head}: {number_cell(metric, found['mean'], found['sd']).text}"
            )
        lines += [f"{key}: {setting_cell(row[key]).text}" for key in search.settings]
        texts.append("\n".join(lines))
    return texts


def caption(search: SearchResults) -> str:
    """Return what a mark is of, how many suggestions there are, and what the guard is."""
    guard = f"guard: at most {100 * search.guard:g} % of accuracy lost"
    return f"Of each suggestion: {search.seeds()}; {search.ended()} suggestions; {guard}."
