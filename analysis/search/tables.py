"""The tables of a search: its best suggestions, importance, how wrong one may be, the space."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.ladder.captions import capital
from analysis.ladder.page_tables import Table
from analysis.ladder.tables import number, title
from analysis.search.load import Search
from analysis.search.sensitivity import distances, share_within
from tune_calib.names import METRICS, legend, signed

BEST = 10
_UNITS = {"fraction": " (points)", "nats": " (nats)", "score": ""}
Record = dict[str, str]


def shown_metrics(search: Search) -> list[str]:
    """What was searched for, and accuracy, which the guard is about."""
    return list(dict.fromkeys([*search.metrics, "accuracy"]))


def best_rows(search: Search, count: int = BEST) -> list[Record]:
    """Baseline, the method's defaults and the best suggestions within the guard, as text."""
    table = search.table()
    away = distances(table, search.metrics[0])
    within = away[table["is_within"]].sort_values(kind="stable").index[:count]
    is_default = search.are_defaults(table)
    chosen = list(dict.fromkeys([*table.index[is_default][:1], *within]))
    baseline = search.outcome.baseline
    first = {"suggestion": "baseline, cross entropy"}
    first |= {title(m): number(m, baseline[m]) for m in shown_metrics(search)}
    first |= {"accuracy lost (%)": number("accuracy", 0), **dict.fromkeys(search.settings, "-")}
    return [first, *_rows(search, table, chosen)]


def _rows(search: Search, table: pd.DataFrame, places: Sequence[Any]) -> list[Record]:
    metrics = shown_metrics(search)
    values = {metric: search.table(metric) for metric in metrics}
    is_default = search.are_defaults(table)
    rows = []
    for place in places:
        row = table.loc[place]
        marks = {"defaults": is_default[place], "chosen": row["number"] == search.chosen}
        told = ", ".join(mark for mark, is_so in marks.items() if is_so)
        name = f"{row['number']} ({told})" if told else f"{row['number']}"
        name = signed(name, [row["flags"]])
        numbers = {title(m): _mean(m, values[m].loc[place], row["status"]) for m in metrics}
        lost = "-" if pd.isna(row["drop"]) else number("accuracy", row["drop"])
        settings = {key: setting_text(row[key]) for key in search.settings}
        rows.append({"suggestion": name, **numbers, "accuracy lost (%)": lost, **settings})
    return rows


def _mean(metric: str, row: "pd.Series[Any]", status: str) -> str:
    if pd.isna(row["mean"]):
        return status
    spread = "" if pd.isna(row["sd"]) else f" ± {number(metric, row['sd'])}"
    return f"{number(metric, row['mean'])}{spread}"


def setting_text(value: Any) -> str:
    """A value of a setting as printed; ``-`` where it does not matter."""
    if isinstance(value, float):
        return "-" if pd.isna(value) else f"{value:.3g}"
    return "-" if value is None else str(value)


def all_rows(search: Search) -> list[Record]:
    """Every suggestion that ended, as text."""
    table = search.table()
    rows = _rows(search, table, list(table.index))
    return [
        {"suggestion": row.pop("suggestion"), "status": status, **row}
        for row, status in zip(rows, table["status"], strict=True)
    ]


def importance_rows(search: Search) -> list[Record]:
    """Importance of every setting for every metric in percent, and where it was searched."""
    shares, defaults = search.outcome.importance.shares, search.defaults
    chosen = search.table().set_index("number")
    rows = []
    for name in search.settings:
        row = {"setting": name}
        for metric in search.metrics:
            share = shares.get(metric, {}).get(name)
            row[f"importance for {METRICS[metric].title} (%)"] = (
                "-" if share is None else f"{100 * share:.1f}"
            )
        row["searched in"] = _range(search.outcome.settings[name])
        row["default"] = setting_text(defaults.get(name))
        values = (point[name] for point in search.published if name in point)
        others = dict.fromkeys(setting_text(v) for v in values if v != defaults.get(name))
        row["other published"] = ", ".join(others)
        if search.chosen is not None:
            row["chosen"] = setting_text(chosen.loc[search.chosen, name])
        rows.append(row)
    return rows


def _range(setting: dict[str, Any]) -> str:
    if "choices" in setting:
        text = " | ".join("null" if c is None else str(c) for c in setting["choices"])
    else:
        text = f"{setting['low']:g} to {setting['high']:g}" + ", log" * bool(setting.get("log"))
    needs = [f"{k} is {' or '.join(map(str, v))}" for k, v in setting["only_if"].items()]
    return "; only if ".join([text, *needs])


def share_rows(search: Search) -> list[Record]:
    """How many suggestions are nearly as good as the best within the guard, as text."""
    metric = search.metrics[0]
    unit = _UNITS[METRICS[metric].unit]
    return [
        {
            f"{METRICS[metric].title} away from the best{unit}": number(metric, row["margin"]),
            "suggestions": f"{row['within']:.0f}",
            "of": f"{row['fillings']:.0f}",
            "share (%)": f"{100 * row['share']:.0f}",
        }
        for _, row in share_within(search.within_guard(), metric).iterrows()
    ]


def notes(search: Search) -> dict[str, str]:
    """What stands over each table: best, importance, share and suggestions."""
    rule = f"{capital(search.manifest.rule)}; on select, {search.seeds()}"
    told = search.outcome.importance
    importance = told.statement or (
        f"PED-ANOVA: how far the best {told.top} of {told.done} suggestions are spread "
        "otherwise than all, in percent of the sum over the settings; those beyond the guard count "
        "too. Rough where few count as the best: another measure may order the settings otherwise"
    )
    metric = title(search.metrics[0])
    flags = "".join(f" {line}." for line in legend(search.trials["flags"]))
    return {
        "best": f"{rule}. The choice was made on these numbers, so they look better than it is."
        + flags,
        "importance": f"{capital(importance)}.",
        "share": (
            f"How wrong one may be: suggestions within the guard whose {metric} is nearly the best "
            "of them; the others count as far away. It is a share of the space only with "
            "--sampler random or grid; the others try good ones more often."
        ),
        "suggestions": f"Every suggestion that ended ({search.ended()}); - where a setting does "
        f"not matter.{flags}",
    }


def page_tables(search: Search) -> dict[str, Table]:
    """The tables of the page, by name of their files."""
    told = notes(search)
    rows = {
        "best": best_rows(search),
        "importance": importance_rows(search),
        "share": share_rows(search),
        "suggestions": all_rows(search),
    }
    return {
        name: Table(f"{name}-rows", told[name], records,
                    chosen_by=("status",) if name == "suggestions" else ())
        for name, records in rows.items()
        if records
    }  # fmt: skip
