"""The tables of a search: its best suggestions, importance, how wrong one may be, the space."""

from collections.abc import Mapping, Sequence
from math import nan
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from analysis.compare.regime import of_baseline
from analysis.search.load import SearchResults
from analysis.search.sensitivity import distances, share_within
from analysis.tables.latex import label_of
from analysis.tables.table import Table, table_of
from analysis.text import (
    NOTHING,
    Cell,
    Record,
    capital,
    cell,
    decimal_cell,
    number_cell,
    significant_cell,
    unit_cell,
)
from tune_calib.results.selection import Row, measure_optimism
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import legend, signed

BEST = 10
_UNITS = {"fraction": " (points)", "nats": " (nats)", "score": ""}


def shown_metrics(search: SearchResults) -> list[str]:
    """What was searched for, and accuracy, which the guard is about."""
    return list(dict.fromkeys([*search.metrics, "accuracy"]))


def best(search: SearchResults, count: int = BEST) -> Table:
    """Baseline, the method's defaults and the best suggestions within the guard."""
    table = search.table()
    away = distances(table, search.metrics[0])
    within = away[table["is_within"]].sort_values(kind="stable").index[:count]
    is_default = search.are_defaults(table)
    # The method's defaults stand there whatever they reach: they are what a search has to beat.
    chosen = list(dict.fromkeys([*table.index[is_default][:1], *within]))
    baseline = search.outcome.baseline
    first = {"suggestion": Cell("baseline, cross entropy")}
    first |= {METRICS[m].head: number_cell(m, baseline[m]) for m in shown_metrics(search)}
    first["accuracy lost (%)"] = number_cell("accuracy", 0)
    first |= dict.fromkeys(search.settings, NOTHING)
    rule = f"{capital(search.manifest.rule)}; on select, {search.seeds()}"
    caption = (
        f"{rule}. The choice was made on these numbers, so they look better than it is. "
        f"{of_baseline(search.trials).sentence}.{_flags(search)}"
    )
    records = [first, *_rows(search, table, chosen)]
    return Table("best", caption, records, label=_label(search, "best"), is_main=True)


def _flags(search: SearchResults) -> str:
    return "".join(f" {line}." for line in legend(search.trials["flags"]))


def _label(search: SearchResults, name: str) -> str:
    return label_of("search", search.method, name)


def _rows(search: SearchResults, table: pd.DataFrame, chosen: Sequence[Any]) -> list[Record]:
    """The rows of ``table`` that are chosen by their index."""
    metrics = shown_metrics(search)
    values = {metric: search.table(metric) for metric in metrics}
    is_default = search.are_defaults(table)
    rows = []
    for index in chosen:
        row = table.loc[index]
        marks = {"defaults": is_default[index], "chosen": row["number"] == search.chosen}
        told = ", ".join(mark for mark, is_so in marks.items() if is_so)
        name = f"{row['number']} ({told})" if told else f"{row['number']}"
        cells = {"suggestion": Cell(signed(name, [row["flags"]]), float(row["number"]))}
        for metric, found in ((m, values[m].loc[index]) for m in metrics):
            is_absent = pd.isna(found["mean"])
            mean = (
                Cell(row["status"])
                if is_absent
                else number_cell(metric, found["mean"], found["sd"])
            )
            cells[METRICS[metric].head] = mean
        cells["accuracy lost (%)"] = number_cell("accuracy", row["drop"])
        rows.append(cells | {key: setting_cell(row[key]) for key in search.settings})
    return rows


def setting_cell(value: Any) -> Cell:
    """A value of a setting as printed; ``-`` where it does not matter."""
    return significant_cell(value, 3) if isinstance(value, float) else cell(value)


def suggestions(search: SearchResults) -> Table:
    """Every suggestion that ended."""
    table = search.table()
    rows = _rows(search, table, list(table.index))
    records = [
        {"suggestion": row["suggestion"], "status": Cell(status), **row}
        for row, status in zip(rows, table["status"], strict=True)
    ]
    caption = (
        f"Every suggestion that ended ({search.ended()}); - where a setting does not matter."
        f"{_flags(search)}"
    )
    return Table("suggestions", caption, records, chosen_by=("status",))


def importance(search: SearchResults) -> Table:
    """Importance of every setting for every metric in percent, and where it was searched."""
    found, defaults = search.outcome.importance, search.defaults
    table = search.table().set_index("number")
    records = []
    for name in search.settings:
        row = {"setting": Cell(name)}
        for metric in search.metrics:
            share = found.shares.get(metric, {}).get(name)
            head = f"importance for {METRICS[metric].title} (%)"
            row[head] = NOTHING if share is None else decimal_cell(100 * share, 1)
        row["searched in"] = _range(search.outcome.settings[name])
        row["default"] = setting_cell(defaults.get(name))
        row["other published"] = _others(search, name)
        if search.chosen is not None:
            row["chosen"] = setting_cell(table.loc[search.chosen, name])
        records.append(row)
    caption = found.statement or (
        f"PED-ANOVA: how far the best {found.top} of {found.done} suggestions are spread "
        "otherwise than all, in percent of the sum over the settings; those beyond the guard count "
        "too. Rough where few count as the best: another measure may order the settings otherwise"
    )
    label = _label(search, "importance")
    return Table("importance", f"{capital(caption)}.", records, label=label)


def _others(search: SearchResults, name: str) -> Cell:
    """Published values of a setting that are not the method's own."""
    values = (point[name] for point in search.published if name in point)
    others = [value for value in values if value != search.defaults.get(name)]
    told = dict.fromkeys(setting_cell(value) for value in others)
    # A single value stays a number, by which the column of the page can be sorted.
    return next(iter(told)) if len(told) == 1 else Cell(", ".join(c.text for c in told))


def _range(setting: dict[str, Any]) -> Cell:
    """Where a setting is searched; sorted by the lower end of a range."""
    low = None
    if "choices" in setting:
        text = " | ".join("null" if c is None else str(c) for c in setting["choices"])
    else:
        low = float(setting["low"])
        text = f"{low:g} to {setting['high']:g}" + ", log" * bool(setting.get("log"))
    needs = [f"{k} is {' or '.join(map(str, v))}" for k, v in setting["only_if"].items()]
    return Cell("; only if ".join([text, *needs]), low)


def share(search: SearchResults) -> Table:
    """How many suggestions are nearly as good as the best within the guard."""
    metric = search.metrics[0]
    unit = _UNITS[METRICS[metric].unit]
    records = [
        {
            f"{METRICS[metric].title} away from the best{unit}": number_cell(metric, row["margin"]),
            "suggestions": decimal_cell(row["within"], 0),
            "of": decimal_cell(row["fillings"], 0),
            "share (%)": decimal_cell(100 * row["share"], 0),
        }
        for _, row in share_within(search.within_guard(), metric).iterrows()
    ]
    caption = (
        f"How wrong one may be: suggestions within the guard whose {METRICS[metric].head} is "
        "nearly the best of them; the others count as far away. It is a share of the space only "
        "with --sampler random or grid; the others try good ones more often."
    )
    return Table("share", caption, records, label=_label(search, "share"))


def optimism(trials: Sequence[Row], believed: Mapping[str, Sequence[Row]],
             metrics: Sequence[str]) -> Table:  # fmt: skip
    """How much better the search looked on ``select`` than it is on ``test``.

    Positive is better on ``select``, whether a smaller or a larger value of the metric is better.

    Args:
        trials: rows of the look at test.
        believed: rows of the search by rung.
        metrics: that were searched for.
    """
    rows = []
    for each in measure_optimism(trials, believed, metrics):
        own = [row for row in trials if row["rung_label"] == each.label]
        flags = [row.get("flags") for row in [*believed[each.label], *own]]
        spread = stdev(each.test) if len(each.test) > 1 else nan
        rows.append([
            signed(each.label, flags),
            METRICS[each.metric].title,
            unit_cell(each.metric, each.searched),
            unit_cell(each.metric, each.fresh),
            unit_cell(each.metric, fmean(each.test), spread),
            unit_cell(each.metric, each.value),
        ])  # fmt: skip
    heads = ["", "metric", "select, searched", "select, fresh", "test, fresh", "optimism"]
    return table_of(heads, rows)
