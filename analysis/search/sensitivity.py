"""Frames of the sensitivity of a metric to hyper-parameters, which ``axes`` draws.

A *filling* is one choice of every setting; its trials differ by their seeds alone.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis.load import with_flags
from analysis.settings import settings
from analysis.tidy import check_metric
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_table
from tune_calib.spec.metrics import METRICS, column
from tune_calib.text import nearest

MARGINS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
_ROUNDING = 1e-9  # a filling at the margin is within it, whatever its last bits
_LOG_FROM = 100  # largest over smallest value from which an axis is logarithmic


def trials_of(out: AnyPath) -> pd.DataFrame:
    """Return the ``trials`` table of a sweep or a search, one row per trial."""
    rows = with_flags(read_table(out, "trials").to_pandas())
    if rows.empty:
        raise UserError(f"{out} holds no result; name the folder of a sweep or a search")
    # A trial that was run again may stand in two files: that it is done counts. Then the order of
    # the files again.
    done_first = rows.sort_values("status", key=lambda state: state != "done", kind="stable")
    return done_first.drop_duplicates("spec_hash").sort_index().reset_index(drop=True)


def varied_settings(rows: pd.DataFrame) -> list[str]:
    """Return the settings (``slot.key``) with more than one value, in the order of the slots."""
    frame = settings(rows)
    return [str(name) for name in frame if frame[name].nunique() > 1]


def fillings(rows: pd.DataFrame, metric: str = "ece", split: str = "select") -> pd.DataFrame:
    """Average every filling over its seeds; ``bad`` are its trials without a number."""
    check_metric(metric, of_search=True)
    name = column(split, metric)
    if name not in rows or rows[name].isna().all():
        raise UserError(f"no {METRICS[metric].title} on {split} in these results")
    names = varied_settings(rows)
    values = rows[name].where(rows["status"] == "done")
    filled = settings(rows)[names].assign(value=values)
    # By texts, since None and numbers of one setting cannot be ordered.
    groups = filled.groupby(filled[names].map(str).agg("|".join, axis="columns"), sort=False)
    numbers = groups["value"].agg(mean="mean", sd="std", n="count", trials="size")
    numbers["bad"] = numbers.pop("trials") - numbers["n"]
    firsts = groups.head(1)[names].set_axis(numbers.index)
    return pd.concat([firsts, numbers], axis=1).reset_index(drop=True)


def hold(table: pd.DataFrame, **held: Any) -> pd.DataFrame:
    """Return the fillings that have the given values, e.g. ``hold(table, **{"head.lr": 0.01})``."""
    for name, value in held.items():
        chosen = table[_known(table, name).map(str) == str(value)]
        if chosen.empty:
            texts = sorted(set(table[name].map(str)))
            raise UserError(f"no filling has {name} {value!r}{nearest(str(value), texts)}")
        table = chosen
    return table


def _known(table: pd.DataFrame, name: str) -> "pd.Series[Any]":
    names = [str(column) for column in table if "." in str(column)]
    if name not in names:
        raise UserError(f"no setting {name!r} varies in these results{nearest(name, names)}")
    return table[name]


def against(table: pd.DataFrame, setting: str) -> pd.DataFrame:
    """Return the metric of ``fillings`` against one setting, a row per value.

    low and high are mean ± sd over the seeds of one filling, else the smallest and the largest of
    the means. Fillings that do not have the setting are left out.
    """
    rows = table[_known(table, setting).notna()]
    found = []
    # Numbers rise along an axis; texts stay in the order in which they were tried.
    for value, own in rows.groupby(setting, sort=is_numeric(rows[setting])):
        is_alone = len(own) == 1
        spread = own["sd"].item() if is_alone else np.nan
        mean = own["mean"].mean()
        found.append(
            {
                "value": value,
                "mean": mean,
                "low": mean - spread if is_alone else own["mean"].min(),
                "high": mean + spread if is_alone else own["mean"].max(),
                "n": own["n"].sum(),
                "fillings": len(own),
                "bad": own["bad"].sum(),
            }
        )
    return pd.DataFrame(found)


def is_numeric(values: "pd.Series[Any]") -> bool:
    """Return whether all values are numbers; a truth value is none."""
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def is_log(values: Sequence[float]) -> bool:
    """Return whether values are so far apart that a logarithmic axis shows them better."""
    return min(values) > 0 and max(values) / min(values) >= _LOG_FROM


def trend(table: pd.DataFrame, setting: str, bins: int = 6) -> pd.DataFrame:
    """Return median and quartiles of a metric along one setting, whatever the others are.

    Numbers of more than ``bins`` values are cut into so many parts of equally many fillings.
    """
    rows = table[_known(table, setting).notna() & table["mean"].notna()]
    values = rows[setting]
    if is_numeric(values):
        values = values.astype(float)
        # Equally many in each part: a sampler that learns tries some regions much more often.
        parts = pd.qcut(values, bins, duplicates="drop") if values.nunique() > bins else values
    else:
        parts = values.map(str)
    groups = rows.assign(value=values).groupby(parts, observed=True)
    found = groups["mean"].describe()[["50%", "25%", "75%", "count"]]
    found.columns = pd.Index(["median", "low", "high", "fillings"])
    middles = groups["value"].median() if is_numeric(values) else found.index
    found.insert(0, "value", middles)
    return found.reset_index(drop=True)


def heat_map(
    table: pd.DataFrame,
    down: str,
    across: str,
    bins: int = 8,
    aggregate: Literal["mean", "count"] = "mean",
) -> pd.DataFrame:
    """Return the mean of a metric over two settings, or the number of fillings in each cell.

    A setting with more than ``bins`` values is cut into so many equal parts, named by their
    middles, on a logarithmic scale where its values span two decades; NaN where none was tried.
    """
    rows = table[_known(table, down).notna() & _known(table, across).notna()]
    parts = {name: _binned(rows[name], bins) for name in (down, across)}
    keys = rows.assign(**parts).dropna(subset="mean")
    return keys.pivot_table(
        index=down, columns=across, values="mean", aggfunc=aggregate, observed=True
    )


def _binned(values: "pd.Series[Any]", bins: int) -> "pd.Series[Any]":
    """Return values as ordered categories."""
    if not is_numeric(values):
        return values.map(str)
    if values.nunique() <= bins:
        return values.astype(float)
    numbers = values.astype(float)
    is_wide = is_log(list(numbers))
    scaled = numbers.map(math.log10) if is_wide else numbers
    parts = pd.cut(scaled, bins)
    middles = [float(f"{10**part.mid if is_wide else part.mid:.2g}") for part in parts]
    return pd.Series(middles, index=values.index)


def distances(table: pd.DataFrame, metric: str = "ece") -> "pd.Series[float]":
    """Return how much worse each filling's mean is than the best one; NaN where it has none."""
    sign = 1 if METRICS[metric].is_less_better else -1
    losses: pd.Series[float] = sign * table["mean"]
    return losses - losses.min()


def share_within(
    table: pd.DataFrame, metric: str = "ece", margins: Sequence[float] = MARGINS
) -> pd.DataFrame:
    """Return the share of the fillings that are at most each margin worse than the best.

    It is the share of the space only where the fillings were drawn at random or are a grid; a
    sampler that learns tries the good ones more often. A filling without a number is not good.
    """
    away = distances(table, metric)
    within = [int((away <= margin + _ROUNDING).sum()) for margin in margins]
    return pd.DataFrame(
        {"margin": list(margins), "within": within, "fillings": len(table)}
    ).assign(share=lambda rows: rows["within"] / rows["fillings"])  # fmt: skip
