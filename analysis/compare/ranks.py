"""Mean ranks and averages of methods over (data set, backbone) columns, as in the papers."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure as Drawing

from analysis import style
from analysis.compare.gather import KEY, Collected, Flagged, Scores, column_name, gather
from analysis.published import published_titles
from analysis.tables.latex import label_of
from analysis.tables.render import View, with_none
from analysis.tables.table import BEST, Table
from analysis.text import Cell, full_stops, ranked, records_of, rounded
from analysis.tidy import check_metric, without_identity
from tune_calib.errors import UserError
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import legend
from tune_calib.text import format_count

TIES: dict[str, Literal["min", "average"]] = {"competition": "min", "average": "average"}
_TIED = {"competition": "smallest", "average": "mean"}
_PARTS = ("o_ece", "u_ece")  # together the ECE
_BAR_IN, _FRAME_IN = 0.22, 0.9  # height of a bar, and of axes and legend


@dataclass(frozen=True, eq=False)
class RankTable(Scores):
    """Scores and ranks of methods."""

    ranking: str  # how ties are ranked, of ``TIES``; the papers use ``competition``
    ranks: pd.DataFrame  # from 1, of the values as printed; NaN in columns that do not count
    titles: Mapping[str, str]  # printed names of data sets and backbones, if distinct

    @property
    def summary(self) -> pd.DataFrame:
        ranks = self.ranks[self.counted]
        best = ranks.eq(ranks.min()) & ~self.never_best[self.counted]
        parts = {"mean_rank": ranks.mean(axis="columns"), "wins": best.sum(axis="columns")}
        table = pd.DataFrame(parts).assign(columns=len(self.counted))
        # Stable, so that methods with equal mean ranks stay in the order of the source.
        return table.sort_values("mean_rank", kind="stable")


def rank(
    frame: pd.DataFrame, metric: str, ranking: str = "competition", notes: Sequence[str] = (),
    titles: Mapping[str, str] | None = None,
) -> RankTable:  # fmt: skip
    """Rank the methods of a tidy frame in the columns that count, under printed ``titles``."""
    check_metric(metric)
    if ranking not in TIES:
        raise UserError(f"unknown ranking {ranking!r}; known: {', '.join(TIES)}")
    scores = gather(frame, metric)
    # Values that are equal as printed tie, as in the papers.
    printed = scores.values.map(partial(rounded, metric))
    is_less_better = METRICS[metric].is_less_better
    # A classifier at chance or a trivial control is ranked last, however low its ECE is.
    printed = printed.mask(scores.never_best, math.inf if is_less_better else -math.inf)
    ranks = printed.rank(method=TIES[ranking], ascending=is_less_better)
    # Tables show the values of these columns without ranks.
    ranks.loc[:, ~ranks.columns.isin(scores.counted)] = math.nan
    remarks = [*notes, *scores.notes]
    counted = ranks[scores.counted]
    if len(counted) == 1:
        remarks.append("ranks are meaningless with only one method")
    elif (counted.nunique() == 1).all():
        remarks.append("ranks are meaningless, since all methods tie in every column")
    elif counted.shape[1] == 1:
        remarks.append("there is only one column, so the mean rank is the rank in it")
    remarks += scores.legend()
    if scores.never_best.any(axis=None):
        remarks.append("a method at chance in a column, or a trivial control, is ranked last there")
    if titles is None:
        titles = published_titles()
    counts = Counter(titles.values())
    return RankTable(
        **{**vars(scores), "notes": tuple(remarks)},
        ranking=ranking,
        ranks=ranks,
        # Columns with the same title would be indistinguishable.
        titles={name: title for name, title in titles.items() if counts[title] == 1},
    )


def view(table: RankTable) -> View:
    summary = table.summary
    order = summary.index
    keys: list[Any] = table.values.columns.to_list()
    datasets = list(dict.fromkeys(key[:2] for key in keys))
    may_win = ~table.never_best.loc[order]
    columns = {"method": list(map(Cell, map(table.label, order)))}
    groups = {}
    # LaTeX and HTML put a shared head over adjacent columns only.
    for key in sorted(keys, key=lambda key: datasets.index(key[:2])):
        upper, lower = _heads(key, table.titles)
        groups[f"{upper} {lower}"] = (upper, lower)
        cells = [Cell.number(table.metric, value) for value in table.values.loc[order, key]]
        columns[f"{upper} {lower}"] = ranked(cells, METRICS[table.metric], may_win[key])
    ranks = [Cell.formatted(rank, form=".2f") for rank in summary["mean_rank"]]
    columns["Mean rank"] = ranked(ranks, "min", may_win.all(axis="columns"))
    columns["Wins"] = list(map(Cell.of, summary["wins"]))
    counts = sorted({*table.n.to_numpy().flat} - {0})
    span = " to ".join(dict.fromkeys([str(counts[0]), str(counts[-1])]))
    kind = f"mean over trials (n = {span} per cell)"
    if table.is_published:
        kind = f"printed in {table.source}"
    lines = [
        f"{METRICS[table.metric].head}, {kind}; values are ranked as printed.",
        f"Mean rank over {format_count(len(table.counted), 'column')}; ties share the "
        f"{_TIED[table.ranking]} rank; wins: columns without a better method. {BEST}",
        *full_stops(table.notes),
    ]
    main = Table(
        "ranks", "\n".join(lines), records_of(columns), first=["Mean rank", "Wins"],
        groups=groups, label=label_of("ranks", table.metric), is_main=True,
    )  # fmt: skip
    parts = {"value": table.values, "n": table.n, "rank": table.ranks}
    long = pd.concat({part: frame.loc[order].stack(KEY) for part, frame in parts.items()}, axis=1)
    rows = long.reset_index().merge(summary, left_on="method", right_index=True)
    rows = rows.assign(metric=table.metric, ranking=table.ranking, source=table.source)
    names = list(map(column_name, table.values.columns))
    entries = summary.assign(metric=table.metric, ranking=table.ranking).reset_index(names="method")
    for part, frame in (("ranks", table.ranks), ("values", table.values)):
        named = frame.loc[order].set_axis(names, axis="columns")
        entries[part] = pd.Series(with_none(named).to_dict("records"))
    return View([main], entries.to_dict("records"), rows, table.notes)


def _heads(key: tuple[str, ...], titles: Mapping[str, str]) -> tuple[str, str]:
    dataset, identity, backbone, split = key
    upper, lower = titles.get(dataset, dataset), titles.get(backbone, backbone)
    if variant := without_identity(identity):
        upper += f" ({variant})"
    if split.startswith("ood/"):
        shifted = split.removeprefix("ood/")
        lower += f" vs {titles.get(shifted, shifted)}"
    elif split != "test":
        lower += f" {split}"
    return upper, lower


@dataclass(frozen=True, eq=False)
class Averages(Flagged):
    """Means of methods over the columns in which every method has every metric."""

    kind: str  # what the means are over
    values: pd.DataFrame  # index method, columns metric; fractions; NaN without a number
    columns: tuple[str, ...]  # names of the columns that count
    never_best: frozenset[str]  # methods with a trial of ``NEVER_BEST`` in a column
    flags: Mapping[str, list[str]]
    notes: tuple[str, ...]  # the network check of each run, and omissions with their reasons


def average(collected: Mapping[str, Collected]) -> Averages:
    tables = [gather(results.frame, metric) for metric, results in collected.items()]
    common = set.intersection(*(set(table.counted) for table in tables))
    columns = [column for column in tables[0].counted if column in common]
    if not columns:
        raise UserError("no column has a number for every method and metric; request fewer metrics")
    means = {table.metric: table.values[columns].mean(axis="columns") for table in tables}
    is_barred = pd.concat([table.never_best[columns].any(axis="columns") for table in tables])
    flags: dict[str, list[str]] = {}
    notes = list(chain.from_iterable(results.notes for results in collected.values()))
    notes += chain.from_iterable(table.notes for table in tables)
    for table in tables:
        flags |= table.flags
        for key in table.counted:
            if key not in common:
                name = column_name(key)
                notes.append(f"{name} does not count, since a metric has no number there")
    notes += legend(chain.from_iterable(flags.values()))
    is_published = tables[0].is_published
    return Averages(
        kind=f"printed in {tables[0].source}" if is_published else "each the mean over trials",
        values=pd.concat(means, axis="columns"),
        columns=tuple(map(column_name, columns)),
        never_best=frozenset(map(str, is_barred.index[is_barred])),
        flags=flags,
        notes=tuple(dict.fromkeys(notes)),
    )


def view_averages(averages: Averages) -> View:
    may_win = ~averages.values.index.isin(list(averages.never_best))
    columns = {"method": list(map(Cell, map(averages.label, averages.values.index)))}
    for metric, values in averages.values.items():
        record = METRICS[str(metric)]
        cells = [Cell.number(record, value) for value in values]
        columns[record.head] = ranked(cells, record, may_win)
    count = format_count(len(averages.columns), "column")
    lines = [f"Mean over {count} ({', '.join(averages.columns)}), {averages.kind}. {BEST}"]
    lines += full_stops(averages.notes)
    label = label_of("averages")
    table = Table("averages", "\n".join(lines), records_of(columns), label=label, is_main=True)
    means = with_none(averages.values).to_dict("index")
    content = {"columns": averages.columns, "means": means, "notes": averages.notes}
    long = averages.values.rename_axis("method").reset_index()
    long = long.melt(id_vars="method", var_name="metric", value_name="mean")
    return View([table], content, long.assign(columns=len(averages.columns)), averages.notes)


def draw_averages(averages: Averages) -> Drawing | None:
    if not set(_PARTS) <= set(averages.values):
        return None
    parts = 100 * averages.values[list(_PARTS)]
    names = list(map(averages.label, map(str, parts.index)))
    height = _FRAME_IN + _BAR_IN * len(parts)
    figure, axis = style.subplots(figsize=(style.COLUMN_IN, height))
    over, under = parts["o_ece"], parts["u_ece"]
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
