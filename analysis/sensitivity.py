"""How much a metric depends on hyper-parameters: one, two, and the share of the space that is good.

A *filling* is one choice of every setting; its trials differ by their seeds alone. For notebooks:
frames first, then axes to draw them on (``style.apply()`` before, ``style.save`` after).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from analysis import style
from analysis.settings import settings
from analysis.tables import number, title
from analysis.tidy import check_metric
from tune_calib.errors import UserError
from tune_calib.names import METRICS, column
from tune_calib.places import Place
from tune_calib.registry import nearest
from tune_calib.results import read_table

MARGINS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
_LOG_FROM = 100  # largest over smallest value from which an axis is logarithmic


def trials_of(out: Place) -> pd.DataFrame:
    """The ``trials`` table of a sweep or a search, one row a trial.

    Raises:
        UserError: the folder holds no result, or a file of it is damaged.
    """
    rows: pd.DataFrame = read_table(out, "trials").to_pandas()
    if rows.empty:
        raise UserError(f"{out} holds no result; name the folder of a sweep or a search")
    done_first = rows.sort_values("status", key=lambda state: state != "done", kind="stable")
    return done_first.drop_duplicates("spec_hash").sort_index().reset_index(drop=True)


def varied(trials: pd.DataFrame) -> list[str]:
    """The settings (``slot.key``) that have more than one value, in the order of the slots."""
    frame = settings(trials)
    return [str(name) for name in frame if frame[name].nunique() > 1]


def fillings(trials: pd.DataFrame, metric: str = "ece", split: str = "select") -> pd.DataFrame:
    """Mean over the seeds of every filling.

    Args:
        trials: one row a trial.
        metric: a name of ``names.METRICS``.
        split: that a search shows is ``select``; ``test`` in a sweep.

    Returns:
        One row a filling, in the order of the trials: every setting that varies as ``slot.key``
        (None where a filling has none), then mean, sd (with n - 1), n (trials with a number) and
        bad (trials without one: diverged, crashed or stopped). Fractions where the metric is one.

    Raises:
        UserError: there is no such metric, or no trial has it on the split.
    """
    check_metric(metric)
    name = column(split, metric)
    if name not in trials or trials[name].isna().all():
        raise UserError(f"no {METRICS[metric].title} on {split} in these results")
    names = varied(trials)
    values = trials[name].where(trials["status"] == "done")
    rows = settings(trials)[names].assign(value=values)
    # By texts, since None and numbers of one setting cannot be ordered.
    groups = rows.groupby(rows[names].map(str).agg("|".join, axis="columns"), sort=False)
    told = groups["value"].agg(mean="mean", sd="std", n="count", trials="size")
    told["bad"] = told.pop("trials") - told["n"]
    return pd.concat([groups.head(1)[names].set_axis(told.index), told], axis=1).reset_index(
        drop=True
    )


def hold(table: pd.DataFrame, **held: Any) -> pd.DataFrame:
    """The fillings that have the given values, e.g. ``hold(table, **{"head.lr": 0.01})``.

    Raises:
        UserError: there is no such setting, or no filling has the value.
    """
    for name, value in held.items():
        chosen = table[_known(table, name).map(str) == str(value)]
        if chosen.empty:
            raise UserError(
                f"no filling has {name} {value!r}{nearest(str(value), _texts(table, name))}"
            )
        table = chosen
    return table


def _known(table: pd.DataFrame, name: str) -> "pd.Series[Any]":
    names = [str(column) for column in table if "." in str(column)]
    if name not in names:
        raise UserError(f"no setting {name!r} varies in these results{nearest(name, names)}")
    return table[name]


def _texts(table: pd.DataFrame, name: str) -> list[str]:
    return sorted(set(table[name].map(str)))


def against(table: pd.DataFrame, setting: str) -> pd.DataFrame:
    """A metric against one setting.

    Args:
        table: as of ``fillings``, perhaps held at some values.
        setting: ``slot.key``.

    Returns:
        One row a value, ascending where they are numbers: value, mean (over the fillings that
        have a number), low and high (with one filling mean ± sd over its seeds, with several the
        smallest and the largest of their means), n (trials), fillings and bad. Fillings that do
        not have the setting are left out.

    Raises:
        UserError: the setting does not vary.
    """
    rows = table[_known(table, setting).notna()]
    found = []
    for value, own in rows.groupby(setting, sort=_is_numeric(rows[setting])):
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


def _is_numeric(values: "pd.Series[Any]") -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _is_log(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= _LOG_FROM


def heat_map(table: pd.DataFrame, down: str, across: str, bins: int = 8) -> pd.DataFrame:
    """Mean of a metric over two settings.

    Args:
        table: as of ``fillings``.
        down: setting of the rows.
        across: setting of the columns.
        bins: a setting with more values than this is cut into so many equal parts, on a
            logarithmic scale where its values span two decades.

    Returns:
        Index and columns: values as text, or the middles of the parts; NaN where none was tried.

    Raises:
        UserError: a setting does not vary.
    """
    rows = table[_known(table, down).notna() & _known(table, across).notna()]
    places = {name: _binned(rows[name], bins) for name in (down, across)}
    keys = rows.assign(**places).dropna(subset="mean")
    return keys.pivot_table(index=down, columns=across, values="mean", observed=True)


def _binned(values: "pd.Series[Any]", bins: int) -> "pd.Series[Any]":
    """Values as ordered categories."""
    if not _is_numeric(values):
        return values.map(str)
    if values.nunique() <= bins:
        return values.astype(float)
    numbers = values.astype(float)
    is_log = _is_log(list(numbers))
    scaled = numbers.map(math.log10) if is_log else numbers
    parts = pd.cut(scaled, bins)
    middles = [float(f"{10**part.mid if is_log else part.mid:.2g}") for part in parts]
    return pd.Series(middles, index=values.index)


def share_within(table: pd.DataFrame, margins: Sequence[float] = MARGINS) -> pd.DataFrame:
    """How wrong one may be: the share of the fillings that are nearly as good as the best.

    It is the share of the space only where the fillings were drawn at random or are a grid; a
    sampler that learns tries the good ones more often. A filling without a number is not good.

    Args:
        table: as of ``fillings``, its metric one of which less is better.
        margins: distances from the best mean, as large as the metric's values.

    Returns:
        One row a margin: margin, within (fillings), fillings (all) and share, in (0, 1].
    """
    best, total = table["mean"].min(), len(table)
    within = [int((table["mean"] <= best + margin).sum()) for margin in margins]
    return pd.DataFrame(
        {"margin": list(margins), "within": within, "fillings": total}
    ).assign(share=lambda rows: rows["within"] / rows["fillings"])  # fmt: skip


def draw_against(
    axis: Axes,
    table: pd.DataFrame,
    setting: str,
    metric: str = "ece",
    default: float | str | None = None,
    index: int = 0,
) -> None:
    """Draw a metric against one setting.

    Args:
        axis: where.
        table: as of ``against``.
        setting: name of the horizontal axis.
        metric: of the table.
        default: the paper's value, which is marked; None for no mark.
        index: of colour and mark.
    """
    scale = 100 if METRICS[metric].unit == "fraction" else 1
    values, is_numeric = list(table["value"]), _is_numeric(table["value"])
    places = values if is_numeric else list(range(len(values)))
    color = style.color(index)
    axis.plot(
        places, scale * table["mean"], color=color, marker=style.marker(index), markersize=4,
        linewidth=1.2,
    )  # fmt: skip
    axis.fill_between(
        places, scale * table["low"], scale * table["high"], color=color, alpha=0.2, linewidth=0
    )
    if not is_numeric:
        axis.set_xticks(places, [str(value) for value in values])
    elif _is_log(values):
        axis.set_xscale("log")
    if default is not None and (is_numeric or default in values):
        place = float(default) if is_numeric else values.index(default)
        axis.axvline(place, color="0.3", linestyle="--", linewidth=0.8)
        axis.annotate(
            "paper", (place, 1), xycoords=("data", "axes fraction"), xytext=(2, -8),
            textcoords="offset points", fontsize=6.5, color="0.3",
        )  # fmt: skip
    axis.set(xlabel=setting, ylabel=title(metric))
    axis.set_title(_reading(table), fontsize=6.5)


def _reading(table: pd.DataFrame) -> str:
    """What the band is, and how many trials stand behind the line."""
    is_seeds = bool((table["fillings"] == 1).all())
    band = "mean ± sd over seeds" if is_seeds else "smallest to largest of the other settings"
    bad = f", {table['bad'].sum()} without a number" if table["bad"].any() else ""
    return f"band: {band}; n = {table['n'].sum()}{bad}"


def draw_heat_map(
    axis: Axes, table: pd.DataFrame, metric: str = "ece", default: Mapping[str, Any] | None = None
) -> None:
    """Draw the frame of ``heat_map``, the metric as number and as shade, better lighter.

    Args:
        axis: where.
        table: as of ``heat_map``.
        metric: of the table.
        default: the paper's values by setting; the cell that is nearest gets a frame.
    """
    is_less_better = METRICS[metric].direction == "min"
    scale = 100 if METRICS[metric].unit == "fraction" else 1
    sns.heatmap(
        scale * table, ax=axis, cmap="cividis_r" if is_less_better else "cividis",
        annot=table.map(lambda value: number(metric, value)), fmt="", annot_kws={"fontsize": 6},
        cbar_kws={"label": title(metric)}, linewidths=0.5,
    )  # fmt: skip
    axis.invert_yaxis()
    if default is not None:
        down = _nearest_place(list(table.index), default[str(table.index.name)])
        across = _nearest_place(list(table.columns), default[str(table.columns.name)])
        axis.add_patch(_frame(across, down))


def _nearest_place(values: Sequence[Any], wanted: Any) -> int:
    if isinstance(values[0], str):
        return values.index(str(wanted))
    return int(np.argmin([abs(value - wanted) for value in values]))


def _frame(across: int, down: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((across, down), 1, 1, fill=False, edgecolor=style.color(3), linewidth=1.5)


def draw_share(axis: Axes, table: pd.DataFrame, label: str = "", index: int = 0) -> None:
    """Draw the share of fillings within a distance of the best, for every distance.

    Args:
        axis: where.
        table: as of ``fillings``, its metric a fraction of which less is better.
        label: for a legend.
        index: of colour.
    """
    distances = np.sort((table["mean"] - table["mean"].min()).dropna().to_numpy())
    shares = np.arange(1, len(distances) + 1) / len(table)
    axis.step(100 * distances, 100 * shares, where="post", color=style.color(index), label=label)
    axis.set(xlabel="distance from the best (points)", ylabel="fillings (%)", ylim=(0, 100))
    axis.set_title(f"n = {len(table)} fillings", fontsize=6.5)
