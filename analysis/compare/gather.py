"""Numbers to compare: means in columns for ranks and averages, matched blocks for tests.

A column is a (data set, variant, backbone, split). A block is what the compared values share: a
seed, or a column.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd

from analysis.compare.regime import regime_of
from analysis.load import Sweep, cached_per_sweep, load
from analysis.published import published, published_titles
from analysis.shifts import FOREIGN_MEAN
from analysis.tidy import (
    check_is_evaluated,
    check_metric,
    choose,
    flags_of_methods,
    incomplete,
    parted,
    tidy,
    without_identity,
)
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.spec.metrics import METRICS, OOD_METRICS
from tune_calib.spec.names import CHANCE, legend, signed

KEY = ["dataset", "variant", "backbone", "split"]


class Collected(NamedTuple):
    """Results to compare."""

    frame: pd.DataFrame  # with the columns of ``tidy.tidy``
    notes: list[str]  # the network check of each run, and planned trials without numbers
    titles: dict[str, str]  # printed names of data sets and backbones


def collect(
    folders: Sequence[AnyPath], table: str | None, metric: str, split: str | None = None
) -> Collected:
    """Read the results of runs or of a published table, on ``test`` or every ``ood/`` set."""
    metric, split = parted(metric, split)
    check_metric(metric)
    if bool(folders) == (table is not None):
        raise UserError("name folders of runs, or a table by `published`, not both")
    sweeps = [load(folder, metric) for folder in folders]
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = list(map(str, folders))
    checked: dict[str, list[str]] = {}  # runs on the same networks have one sentence
    for name, sweep in zip(names, sweeps, strict=True):
        checked.setdefault(regime_of(sweep).sentence, []).append(name)
    notes = [f"{', '.join(runs)}: {text[0].lower()}{text[1:]}" for text, runs in checked.items()]
    notes += [line for sweep in sweeps for line in incomplete(sweep, metric)]
    # Runs recorded before there were titles have those of the papers.
    titles = published_titles()
    for sweep in sweeps:
        titles |= sweep.manifest.titles
    if table is None:
        frame = pd.concat([tidy(sweep, [metric]) for sweep in sweeps], ignore_index=True)
        check_is_evaluated(frame, metric)
    else:
        frame = published(table)
    # The mean over foreign sets counts only where a user names it.
    is_ood = frame["split"].str.startswith("ood/") & (frame["split"] != FOREIGN_MEAN)
    if split is not None:
        frame = choose(frame, split=split)
    else:
        frame = frame[is_ood if metric in OOD_METRICS else frame["split"] == "test"]
    return Collected(frame, notes, titles)


class Flagged:
    """Results of methods, some of whose trials are flagged."""

    flags: Mapping[str, list[str]]  # cells of the column ``flags`` of the trials of each method

    def label(self, method: str) -> str:
        """Return the name of a method with the signs of its flags."""
        return signed(method, self.flags.get(method, []))

    def legend(self) -> list[str]:
        """Explain the signs."""
        return legend(cell for cells in self.flags.values() for cell in cells)


@dataclass(frozen=True, eq=False)
class Scores(Flagged):
    """Means of one metric over seeds, methods down and columns across."""

    metric: str
    source: str  # the published tables, or the ids of the sweeps
    is_published: bool
    values: pd.DataFrame  # of methods with a number, in the order of the source; fractions
    n: pd.DataFrame  # trials behind each value
    at_chance: pd.DataFrame  # values that include a trial at chance
    uncounted: tuple[Any, ...]  # columns in which a method has no number
    flags: Mapping[str, list[str]]
    notes: tuple[str, ...]  # what is left out or does not count, and why


def gather(frame: pd.DataFrame, metric: str) -> Scores:
    """Compute the scores of a metric, in the columns in which all methods with numbers have one."""
    rows = frame[frame["metric"] == metric]
    parts = _average_seeds(rows, metric)
    absent = parts[0].index[parts[0].isna().all(axis="columns")]
    values, n, at_chance = (part.drop(index=absent) for part in parts)
    keys: list[Any] = values.columns.to_list()
    without = {key: values.index[values[key].isna()] for key in keys}
    uncounted = tuple(key for key, methods in without.items() if len(methods))
    notes = [f"left out, without any number: {', '.join(absent)}"] if len(absent) else []
    notes += [
        f"{column_name(key)} does not count: no number of {', '.join(without[key])}"
        for key in uncounted
    ]
    if len(uncounted) == len(without):
        raise UserError("no column has a number of every method: " + "; ".join(notes))
    return Scores(
        metric=metric,
        source=", ".join(frame["source"].astype(str).unique()),
        is_published=bool((frame["status"] == "published").all()),
        values=values,
        n=n,
        at_chance=at_chance,
        uncounted=uncounted,
        flags=flags_of_methods(rows),
        notes=tuple(notes),
    )


def column_name(key: Iterable[str]) -> str:
    """Return the name of a column, without its split where that is ``test``."""
    dataset, identity, backbone, split = key
    variant = without_identity(identity)
    parts = [dataset, f"({variant})" if variant else "", backbone, split if split != "test" else ""]
    return " ".join(part for part in parts if part)


def without_nan(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with None for NaN, which JSON does not have."""
    return frame.astype(object).where(frame.notna(), None)


def _average_seeds(rows: pd.DataFrame, metric: str) -> Sequence[pd.DataFrame]:
    """Return mean, count and whether one is at chance over seeds, columns across."""
    has_rows = len(rows) > 0
    rows = rows[(rows["backbone"] != "average") & (rows["dataset"] != "average")]
    if rows["value"].isna().all():
        why = "only averages are printed" if has_rows and rows.empty else "is the split right?"
        raise UserError(f"no {METRICS[metric].title} of a column in these results; {why}")
    # A spec that two sweeps share is one trial; a printed number is known by its table.
    trial = rows["spec_hash"].where(rows["spec_hash"] != "", rows["source"])
    is_chance = rows["flags"].astype(str).str.contains(CHANCE)
    rows = rows.assign(trial=trial, is_chance=is_chance).reset_index(drop=True)
    # It may have crashed in one of them: its number in the other counts.
    numbers_first = rows["value"].isna().sort_values(kind="stable").index
    rows = rows.loc[numbers_first].drop_duplicates(["trial", "method", *KEY]).sort_index()
    seeds = ["method", *KEY, "network_seed", "head_seed"]
    mixed = rows[rows["value"].notna() & rows.duplicated(seeds, keep=False)]
    if len(mixed):
        first = mixed.iloc[0]
        raise UserError(
            f"{first['method']!r} is two different methods on {column_name(first[KEY])}: same "
            "seeds, other settings; rank these folders apart"
        )
    # Grouping drops rows without a key: trials that are missing may not know their backbone.
    groups = rows.fillna({"backbone": "unknown"}).groupby(["method", *KEY], sort=False)
    cells = groups.agg(mean=("value", "mean"), n=("value", "count"), chance=("is_chance", "any"))
    mean, n, chance = (cells[part].unstack(KEY, sort=False) for part in cells)
    return mean, n.fillna(0).astype(int), chance.eq(True)


@dataclass(frozen=True, eq=False)
class Matched(Flagged):
    """Values of one metric in matched blocks; NaN where a method has no number."""

    metric: str
    unit: str  # what a block is, in words
    values: pd.DataFrame  # index block, columns method in the order of the sweep
    fixed: tuple[str, ...] = ()  # methods of one trial, whose value stands in every block
    notes: tuple[str, ...] = ()  # what is missing, and the network check
    flags: Mapping[str, list[str]] = field(default_factory=dict)


@cached_per_sweep
def over_seeds(sweep: Sweep, metric: str, split: str = "test") -> Matched:
    """Match the trials of a sweep by their seeds.

    Heads on one network are no independent repetitions of it, so with several networks a block is
    a network, its head seeds averaged. With one network a block is a head seed, and the number of
    the network's own head is the same in all of them.
    """
    rows = tidy(sweep, [metric], split)
    labels = [rung.label for rung in sweep.rungs]
    is_paired, networks = sweep.manifest.paired_seeds, len(sweep.manifest.network_seeds)
    is_by_network = is_paired or networks > 1 or rows["head_seed"].isna().all()
    block = "network_seed" if is_by_network else "head_seed"
    # The network's own head has no head seed: its number is put into every block below.
    matching = rows.dropna(subset=block)
    values = matching.pivot_table(index=block, columns="method", values="value", dropna=False)
    # A pivot sorts the methods by name, and lacks those without any row.
    values = values.reindex(columns=labels)
    checked = (f"{regime_of(sweep).sentence}.", *incomplete(sweep, metric))
    unit = "network seed" if is_paired else "network seed, head seeds averaged"
    own: dict[Any, float] = {}
    if not is_by_network:
        unit = "head seed on one network, which tells nothing of other networks"
        alone = rows[rows["head_seed"].isna()].dropna(subset="value")
        own = alone.groupby("method")["value"].mean().to_dict()
    notes = [f"{method} has one trial, which stands in every block" for method in own]
    values, notes = values.assign(**own), [*notes, *checked]
    return Matched(metric, unit, values, tuple(own), tuple(notes), flags_of_methods(rows))


def over_columns(table: Scores) -> Matched:
    """Match methods by the columns of their scores, seeds averaged."""
    values = table.values.T.set_axis([column_name(key) for key in table.values.columns.to_list()])
    unit = "(data set, backbone) column"
    return Matched(table.metric, unit, values, (), table.notes, table.flags)
