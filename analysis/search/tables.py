"""Tables of a search: best suggestions, importance of settings, near-best share, optimism."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from operator import itemgetter
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.network_check import compute_baseline_check
from analysis.search.load import SearchResults, setting_cell
from analysis.tables.latex import label_of
from analysis.tables.table import MAX_ROWS, Table, table_of
from analysis.text import NOTHING, Cell, Record, capital, full_stops
from analysis.tidy import tied
from tune_calib.results.selection import Row
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import append_flag_signs, legend
from tune_calib.spec.samplers import SAMPLERS

BEST = 10
MARGINS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
_ROUNDING = 1e-9  # a suggestion exactly at the margin is within it
_LOG_FROM = 100  # ratio of largest to smallest value from which the scale of a setting is log
_WIDE_FROM = 5  # the same ratio for a metric
_UNITS = {"fraction": " (points)", "nats": " (nats)", "score": ""}


def best(search: SearchResults, count: int = BEST) -> Table:
    table = search.table()
    away = distances(table, search.metrics[0])
    within = tied(away[table["is_within"]]).sort_values(kind="stable").index[:count]
    is_default = search.are_defaults(table)
    # The defaults are always included, since a search has to beat them.
    chosen = list(dict.fromkeys([*table.index[is_default][:1], *within]))
    baseline = search.outcome.baseline
    first = {"suggestion": Cell("baseline, cross entropy")}
    for metric in search.metrics_and_accuracy:
        first[METRICS[metric].head] = Cell.number(metric, baseline[metric])
    first["accuracy lost (%)"] = Cell.number("accuracy", 0)
    first |= dict.fromkeys(search.settings, NOTHING)
    caption = (
        f"{capital(search.manifest.rule)}; on select, {search.seeds()}. The choice was made on "
        "these numbers, so they are optimistic."
    )
    caption = " ".join([caption, *full_stops(legend(search.trials["flags"]))])
    notes = [f"{compute_baseline_check(search.trials).sentence}."]
    records = [first, *_rows(search, table, chosen)]
    label = label_of("search", search.manifest.question.method, "best")
    return Table("best", caption, records, label=label, is_main=True, notes=notes)


def _rows(search: SearchResults, table: pd.DataFrame, chosen: Sequence[Any]) -> list[Record]:
    values = {metric: search.table(metric) for metric in search.metrics_and_accuracy}
    is_default, rows = search.are_defaults(table), []
    for index in chosen:
        row = table.loc[index]
        is_chosen = row["number"] == search.outcome.chosen
        marks = {"defaults": is_default[index], "chosen": is_chosen}
        text = ", ".join(mark for mark, is_true in marks.items() if is_true)
        name = f"{row['number']} ({text})" if text else str(row["number"])
        cells = {"suggestion": Cell(append_flag_signs(name, [row["flags"]]), float(row["number"]))}
        for metric, statistics in values.items():
            mean, sd = statistics.loc[index, "mean"], statistics.loc[index, "sd"]
            cell = Cell(row["status"]) if pd.isna(mean) else Cell.number(metric, mean, sd)
            cells[METRICS[metric].head] = cell
        cells["accuracy lost (%)"] = Cell.number("accuracy", row["drop"])
        rows.append(cells | {key: setting_cell(row[key]) for key in search.settings})
    return rows


def suggestions(search: SearchResults) -> Table:
    table = search.table()
    shown = table.head(MAX_ROWS)
    pairs = zip(_rows(search, table, list(shown.index)), shown["status"], strict=True)
    records = [{"suggestion": row["suggestion"], "status": Cell(s), **row} for row, s in pairs]
    caption = f"Every suggestion that ended ({search.ended()}); a dash: the setting does not apply."
    caption = " ".join([caption, *full_stops(legend(search.trials["flags"]))])
    return Table("suggestions", caption, records, chosen_by=("status",), total=len(table))


def importance(search: SearchResults) -> Table:
    importances, defaults = search.outcome.importance, search.defaults
    label = label_of("search", search.manifest.question.method, "importance")
    table = search.table().set_index("number")
    records = []
    for name in search.settings:
        row = {"setting": Cell(name)}
        for metric in search.metrics:
            title, ends = METRICS[metric].title, importances.intervals.get(metric, {}).get(name, [])
            share = importances.shares.get(metric, {}).get(name, math.nan)
            row[f"importance for {title} (%)"] = _share_cell([share, *ends])
            if metric in importances.variances:
                cell = _share_cell(importances.variances[metric][name])
                row[f"fANOVA for {title} (%)"] = cell
        row["searched in"] = _range_cell(search.outcome.settings[name])
        row["default"] = setting_cell(defaults.get(name))
        others = list(map(setting_cell, search.others_of(name)))
        # A single value stays a number, so that the page can sort by it.
        if len(others) != 1:
            others = [Cell(", ".join(cell.text for cell in others))]
        row["other published"] = others[0]
        if search.outcome.chosen is not None:
            row["chosen"] = setting_cell(table.loc[search.outcome.chosen, name])
        records.append(row)
    texts = [importances.statement] if importances.statement else []
    if importances.shares:
        texts.append(
            "PED-ANOVA: difference between the distributions of a setting in the best "
            f"{importances.top} and in all {importances.done} suggestions, in percent of the sum "
            "over settings; suggestions beyond the guard are included. With few best ones it is "
            "rough: another measure may order the settings differently"
        )
    for metric, shares in importances.variances.items():
        pairs = [name for name in shares if " x " in name]
        pairs.sort(key=lambda name: -shares[name][0])
        listed = ", ".join(f"{name} {_share_cell(shares[name]).text}" for name in pairs[:3])
        texts.append(
            f"fANOVA for {METRICS[metric].title}: share of the variance of a random forest over "
            f"the space (cross-validated R2 {importances.r2[metric]:.2f}); largest interactions: "
            f"{listed}. In brackets: 5 and 95 % quantiles over resampled suggestions"
        )
    caption = " ".join(full_stops(list(map(capital, texts))))
    return Table("importance", caption, records, label=label)


def list_importance(search: SearchResults) -> list[dict[str, Any]]:
    """Return a row per metric, measure and setting or pair, with its share and quantiles."""
    importances, rows = search.outcome.importance, []
    for metric, shares in importances.shares.items():
        quantiles = importances.intervals.get(metric, {})
        divergences = {name: [share, *quantiles.get(name, [])] for name, share in shares.items()}
        measures = {"PED-ANOVA": divergences, "fANOVA": importances.variances.get(metric, {})}
        for measure, numbers_by_name in measures.items():
            for name, numbers in numbers_by_name.items():
                row = {"metric": metric, "measure": measure, "setting": name}
                rows.append(row | dict(zip(("share", "low", "high"), numbers, strict=False)))
    return rows


def _share_cell(shares: Sequence[float]) -> Cell:
    """Return the cell of a share in percent, with the ends of its interval if it has one."""
    share, *ends = (100 * value for value in shares)
    if not ends:
        return Cell.formatted(share, ".1f")
    return Cell(f"{share:.1f} ({ends[0]:.0f} to {ends[1]:.0f})", share)


def _range_cell(setting: Mapping[str, Any]) -> Cell:
    """Return the cell of the values that are tried, by the lowest of which the page sorts."""
    low = None
    if "choices" in setting:
        values = ["null" if value is None else str(value) for value in setting["choices"]]
        text = " | ".join(values)
    else:
        low = float(setting["low"])
        text = f"{low:g} to {setting['high']:g}"
        if setting.get("log"):
            text += ", log"
    for name, values in setting["only_if"].items():
        text += f"; only if {name} is {' or '.join(map(str, values))}"
    return Cell(text, low)


def find_varied(search: SearchResults, setting: str) -> dict[int, Any]:
    """Return the values of a setting by the number of the suggestions that vary it alone."""
    center = search.manifest.question.around or search.outcome.defaults
    varied = {}
    for suggestion in search.outcome.suggestions:
        others = (suggestion.point.keys() & center.keys()) - {setting}
        is_alone = all(suggestion.point[name] == center[name] for name in others)
        if suggestion.status == "done" and setting in suggestion.point and is_alone:
            varied[suggestion.number] = suggestion.point[setting]
    return varied if setting in center else {}


def measure_sensitivity(search: SearchResults) -> list[dict[str, Any]]:
    """Return a row per setting with what its changes alone lose; none for other samplers.

    ``flat`` has the values that lose at most the noise, of a range only the two ends.
    """
    if not SAMPLERS[search.manifest.question.sampler].is_local:
        return []
    metric = METRICS[search.metrics[0]]
    center = search.manifest.question.around or search.outcome.defaults
    sign, rows = 1 if metric.is_less_better else -1, []
    values = search.trials.set_index("spec_hash")[column("select", metric.name)]
    for name in search.settings:
        varied = find_varied(search, name)
        is_range = "choices" not in search.outcome.settings[name]
        texts = {number: str(value) for number, value in varied.items()}
        levels = sorted(varied, key=texts.__getitem__)
        if is_range:
            levels = sorted(varied, key=varied.__getitem__)
        first = [number for number in levels if varied[number] == center[name]][:1]
        losses, noise = {}, {}
        for number in levels if first else ():
            reference = values.reindex(search.specs_of(first[0])).to_numpy()
            loss = sign * (values.reindex(search.specs_of(number)).to_numpy() - reference)
            losses[number] = float(loss.mean())
            noise[number] = float(loss.std(ddof=1)) / len(loss) ** 0.5 if len(loss) > 1 else np.nan
        if len(losses) < 2:
            continue
        flat = [number for number in levels if number in first or losses[number] <= noise[number]]
        if is_range:  # the levels on both sides of the center, up to the first that loses more
            index = levels.index(first[0])
            low = [*first, *takewhile(flat.__contains__, reversed(levels[:index]))][-1]
            high = [*first, *takewhile(flat.__contains__, levels[index + 1 :])][-1]
            flat = list(dict.fromkeys([low, high]))
        worst = max(losses, key=losses.__getitem__)
        rows.append({
            "setting": name, "center": center[name], "flat": [varied[number] for number in flat],
            "worst": varied[worst], "loses": losses[worst], "noise": noise[worst],
        })  # fmt: skip
    return rows


def sensitivity(search: SearchResults) -> list[Table]:
    """Build the table of ``measure_sensitivity``; none for searches of other samplers."""
    if not SAMPLERS[search.manifest.question.sampler].is_local:
        return []
    metric, rows, notes = METRICS[search.metrics[0]], [], list[str]()
    for row in measure_sensitivity(search):
        flat = [setting_cell(value).text for value in row["flat"]]
        text = ", ".join(flat)
        if "choices" not in search.outcome.settings[row["setting"]]:
            text = " to ".join(flat)
            if len(flat) > 1:
                notes.append(f"{row['setting']} from {text} loses at most the noise.")
        rows.append([
            row["setting"], setting_cell(row["center"]), Cell(text), setting_cell(row["worst"]),
            Cell.number(metric.name, row["loses"]), Cell.number(metric.name, row["noise"]),
        ])  # fmt: skip
    heads = ["setting", "center", "loses at most the noise", "worst", "loses", "noise"]
    caption = (
        f"{metric.title} on select if one setting alone differs from the center. Noise: standard "
        "error of the difference, paired by seed."
    )
    return [Table("sensitivity-rows", caption, table_of(heads, rows).records, notes=notes)]


def share(search: SearchResults) -> Table:
    metric = search.metrics[0]
    head = f"{METRICS[metric].title} away from the best{_UNITS[METRICS[metric].unit]}"
    away, records = distances(search.within_guard(), metric), []
    for margin in MARGINS if away.notna().any() else ():
        count = int((away <= margin + _ROUNDING).sum())
        record = {head: Cell.number(metric, margin), "suggestions": Cell.of(count)}
        record["of"] = Cell.of(len(away))
        records.append({**record, "share (%)": Cell.formatted(100 * count / len(away), ".0f")})
    caption = (
        f"Suggestions within the guard whose {METRICS[metric].head} is at most this far from the "
        "best of them, as a share of all. It estimates a share of the search space only with "
        "--sampler random or grid; the others try good suggestions more often."
    )
    if search.manifest.question.race or search.manifest.question.halving:
        caption += " Suggestions that ended early count as farther away."
    label = label_of("search", search.manifest.question.method, "share")
    return Table("share", caption, records, label=label)


def optimism(trials: Sequence[Row], searched: Mapping[str, Sequence[Row]],
             metrics: Sequence[str]) -> Table:  # fmt: skip
    """Return how much better the search looked on ``select`` than fresh trials are on ``test``.

    A row per metric, and accuracy, for each rung with finished trials in ``searched`` and fresh.
    """
    rows = []
    for label, searched_rows in searched.items():
        fresh_rows = [row for row in trials if row["rung_label"] == label]
        flags = [row.get("flags") for row in [*searched_rows, *fresh_rows]]
        searched_done = [row for row in searched_rows if row["status"] == "done"]
        fresh_done = [row for row in fresh_rows if row["status"] == "done"]
        if not (searched_done and fresh_done):
            continue
        for metric in dict.fromkeys([*metrics, "accuracy"]):
            select = itemgetter(column("select", metric))
            promised = fmean(map(select, searched_done))
            test = list(map(itemgetter(column("test", metric)), fresh_done))
            spread = stdev(test) if len(test) > 1 else math.nan
            sign = 1 if METRICS[metric].is_less_better else -1
            rows.append([
                append_flag_signs(label, flags),
                METRICS[metric].title,
                Cell.unit(metric, promised),
                Cell.unit(metric, fmean(map(select, fresh_done))),
                Cell.unit(metric, fmean(test), spread),
                Cell.unit(metric, sign * (fmean(test) - promised)),
            ])  # fmt: skip
    heads = ["", "metric", "select, searched", "select, fresh", "test, fresh", "optimism"]
    return table_of(heads, rows)


def is_numeric(values: Iterable[Any]) -> bool:
    """Return whether all values are numbers; Booleans do not count."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def sort_texts(values: "pd.Series[Any]") -> list[str]:
    """Return the texts of the distinct values: numbers by size, and then the others."""
    texts = {}
    for value in values:
        is_number = is_numeric([value])
        texts[str(value)] = (not is_number, value if is_number else 0, str(value))
    return sorted(texts, key=texts.__getitem__)


def is_wide(values: "pd.Series[float]") -> bool:
    low, high = values.min(), values.max()
    return bool(low > 0 and high / low >= _WIDE_FROM)


def trend(table: pd.DataFrame, setting: str, bins: int = 6) -> pd.DataFrame:
    """Return the median and quartiles in bins of one setting with equally many suggestions."""
    rows = table.dropna(subset=[setting, "mean"])
    values = rows[setting]
    parts = _as_category(values)
    if is_numeric(values):
        parts = values = values.astype(float)
        # Equally many per bin: a sampler that learns tries some regions much more often.
        if values.nunique() > bins:
            parts = pd.qcut(values, bins, duplicates="drop")
    groups = rows.assign(value=values).groupby(parts, observed=True)
    names = {"50%": "median", "25%": "low", "75%": "high", "count": "suggestions"}
    quartiles = groups["mean"].describe()[[*names]].rename(columns=names)
    middles = groups["value"].median() if is_numeric(values) else quartiles.index.astype(str)
    quartiles.insert(0, "value", middles)
    return quartiles.reset_index(drop=True)


def heat_map(
    table: pd.DataFrame, down: str, across: str, bins: int = 6,
    levels: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> pd.DataFrame:  # fmt: skip
    """Return ``mean`` of a metric and ``count`` of the suggestions in bins of two settings.

    Values of ``levels`` (of a grid) are cells of their own, and other values are left out.
    """
    rows = table.dropna(subset=[down, across])
    for name, values in levels.items():
        if name in (down, across):
            rows, bins = rows[rows[name].isin(values)], max(bins, len(values))
    keys = rows.assign(**{name: _binned(rows[name], bins) for name in (down, across)})
    return keys.dropna(subset="mean").pivot_table(
        index=down, columns=across, values="mean", aggfunc=["mean", "count"], observed=True
    )


def _as_category(values: "pd.Series[Any]") -> "pd.Series[Any]":
    return values.map(str).astype(pd.CategoricalDtype(sort_texts(values), ordered=True))


def _binned(values: "pd.Series[Any]", bins: int) -> "pd.Series[Any]":
    """Return the centres of equal bins, on a log scale if the values span two decades."""
    if not is_numeric(values):
        return _as_category(values)
    if values.nunique() <= bins:
        return values.map(lambda value: float(f"{value:.6g}"))
    numbers = values.astype(float)
    is_log = numbers.min() > 0 and numbers.max() / numbers.min() >= _LOG_FROM
    if is_log:
        numbers = numbers.map(math.log10)
    middles = [interval.mid for interval in pd.cut(numbers, bins)]
    middles = [10**middle if is_log else middle for middle in middles]
    return pd.Series([float(f"{middle:.2g}") for middle in middles], index=values.index)


def distances(table: pd.DataFrame, metric: str = "ece") -> "pd.Series[float]":
    """Return how much worse each mean is than the best one; NaN without a mean."""
    sign = 1 if METRICS[metric].is_less_better else -1
    losses: pd.Series[float] = sign * table["mean"]
    return losses - losses.min()
