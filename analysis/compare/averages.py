"""Averages of metrics over (data set, backbone) columns, as MaC-Cal's figure 4 draws them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.compare.ranks import Collected, Gathered, gather, is_published, name, source_of
from tune_calib.errors import UserError
from tune_calib.spec.names import legend


@dataclass(frozen=True, eq=False)
class Averages:
    """Means of methods over the columns in which every method has every metric.

    Attributes:
        source: the published tables, or the ids of the sweeps.
        is_published: whether the values are printed ones.
        values: index method in the order of the source, columns metric; fractions where a metric
            is one; NaN where a method has no number of a metric at all.
        columns: names of those that count.
        at_chance: methods with a trial at chance in one of them; such a one is never the best.
        flags: cells of the column ``flags`` of the trials of each method that has some.
        notes: the regime of each sweep, and what was left out and why, a line each.
    """

    source: str
    is_published: bool
    values: pd.DataFrame
    columns: tuple[str, ...]
    at_chance: frozenset[str]
    flags: Mapping[str, list[str]]
    notes: tuple[str, ...]


def average(collected: Mapping[str, Collected]) -> Averages:
    """Average each metric over the columns that count for all of them.

    Seeds are averaged first, so that each column counts alike.

    Args:
        collected: what ``ranks.collect`` gives, by metric; at least one.

    Raises:
        UserError: a metric has no numbers, or no column has all metrics of all methods.
    """
    found = {metric: gather(each.frame, metric) for metric, each in collected.items()}
    counted: list[list[Any]] = [
        [key for key in each.values.columns if key not in each.uncounted] for each in found.values()
    ]
    columns = [key for key in counted[0] if all(key in own for own in counted)]
    if not columns:
        raise UserError("no column has a number of every method and metric: name fewer metrics")
    means = {m: each.values[columns].mean(axis="columns") for m, each in found.items()}
    methods = list(dict.fromkeys(method for each in found.values() for method in each.values.index))
    flags = {m: cells for each in found.values() for m, cells in each.flags.items()}
    notes = [note for each in collected.values() for note in each.notes]
    notes += [note for each in found.values() for note in each.notes]
    lost = [name(key) for own in counted for key in own if key not in columns]
    notes += [f"{column} does not count: a metric has no number there" for column in lost]
    notes += legend(cell for cells in flags.values() for cell in cells)
    frame = next(iter(collected.values())).frame
    return Averages(
        source=source_of(frame),
        is_published=is_published(frame),
        values=pd.DataFrame(means).reindex(methods),
        columns=tuple(name(key) for key in columns),
        at_chance=frozenset(method for each in found.values() for method in _chance(each, columns)),
        flags=flags,
        notes=tuple(dict.fromkeys(notes)),
    )


def _chance(found: Gathered, columns: list[tuple[str, ...]]) -> list[str]:
    is_so = found.at_chance[columns].any(axis="columns")
    return [str(method) for method in is_so.index[is_so]]
