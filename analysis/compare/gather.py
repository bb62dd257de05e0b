"""Numbers to compare: means in columns for ranks and averages, matched blocks for tests.

A column is a combination of data set, variant, backbone and split. A block is a seed or a column in
which methods are compared.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd

from analysis import tidy
from analysis.compare.network_check import compute_network_check, name_of
from analysis.load import Run, cached_per_run, load
from analysis.published import published, published_titles, read_result_files
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.folders import has_result_files
from tune_calib.results.tables import contradiction
from tune_calib.spec.metrics import METRICS, OOD_METRICS
from tune_calib.spec.names import NEVER_BEST, append_flag_signs, legend

KEY = ["dataset", "variant", "backbone", "split"]


class Collected(NamedTuple):
    """Results to compare."""

    frame: pd.DataFrame  # with the columns of ``tidy.tidy``
    notes: list[str]  # the network check of each run, and planned trials without numbers
    titles: dict[str, str]  # printed names of data sets and backbones


def collect(
    folders: Sequence[AnyPath], table: str | None, metric: str, split: str | None = None
) -> Collected:
    """Read the results of runs or a published table, on ``split``, ``test`` or all OOD sets."""
    metric, split = tidy.parted(metric, split)
    tidy.check_metric(metric)
    if bool(folders) == (table is not None):
        raise UserError("name either folders of runs or a table by `published`")
    files = [folder for folder in folders if has_result_files(folder)]
    runs = [load(folder) for folder in folders if folder not in files]
    has_names = len({run.out.name for run in runs}) == len(runs)
    checks = defaultdict[str, list[str]](list)  # runs with the same networks share a sentence
    for run in runs:
        name = run.out.name if has_names else str(run.out)
        checks[compute_network_check(run).sentence].append(name)
    notes = [f"{', '.join(runs)}: {text[0].lower()}{text[1:]}" for text, runs in checks.items()]
    # The papers' titles apply to what the runs do not name.
    titles = published_titles()
    for run in runs:
        notes += tidy.incomplete(run, metric)
        titles |= run.manifest.titles
    if table is None:
        frames = [tidy.tidy(run, [metric]).assign(folder=str(run.out)) for run in runs]
        frames += [read_result_files(folder).assign(folder=str(folder)) for folder in files]
        frame = pd.concat(frames, ignore_index=True)
        trials = frame[frame["spec_hash"] != ""]  # files of others have none
        counts = trials.groupby(["spec_hash", *KEY], dropna=False)["value"].nunique()
        if len(mixed := counts[counts > 1].reset_index()):
            spec_hash = mixed["spec_hash"].iloc[0]
            of_trial = frame["folder"][frame["spec_hash"] == spec_hash]
            raise contradiction(spec_hash, of_trial.unique())
    else:
        frame = published(table)
    if split is not None:
        frame = tidy.choose(frame, split=split)
    elif metric in OOD_METRICS:  # the mean over OOD sets counts only if the user names it
        frame = frame[frame["split"].isin(tidy.find_foreign_sets(frame, metric))]
    else:
        frame = frame[frame["split"] == "test"]
    return Collected(frame, notes, titles)


class Flagged:
    """Results of methods, some of whose trials are flagged."""

    flags: Mapping[str, list[str]]  # values of the column ``flags`` in the trials of each method

    def label(self, method: str) -> str:
        return append_flag_signs(method, self.flags.get(method, []))

    def legend(self) -> list[str]:
        return legend(chain.from_iterable(self.flags.values()))


@dataclass(frozen=True, eq=False)
class Scores(Flagged):
    """Means of one metric over seeds: a row per method, a column per combination."""

    metric: str
    source: str  # the published tables, or the ids of the runs
    is_published: bool
    values: pd.DataFrame  # of methods with a number, in the order of the source; fractions
    n: pd.DataFrame  # number of trials of each value
    never_best: pd.DataFrame  # values that include a trial of ``NEVER_BEST``
    counted: list[Any]  # columns in which every method has a number
    flags: Mapping[str, list[str]]
    notes: tuple[str, ...]  # methods that are left out, columns that do not count, and reasons


def gather(frame: pd.DataFrame, metric: str) -> Scores:
    """Average a metric over seeds; a column counts if no method with numbers lacks one there."""
    rows = frame[frame["metric"] == metric]
    *parts, notes = average_seeds(rows, metric)
    absent = parts[0].index[parts[0].isna().all(axis="columns")]
    values, n, never_best = (part.drop(index=absent) for part in parts)
    if len(absent):
        notes.append(f"left out, without any number: {', '.join(absent)}")
    is_counted = values.notna().all()
    for key in values.columns[~is_counted]:
        lacking = ", ".join(values.index[values[key].isna()])
        notes.append(f"{column_name(key)} does not count: no number for {lacking}")
    if not is_counted.any():
        raise UserError("no column has a number for every method: " + "; ".join(notes))
    return Scores(
        metric=metric, source=", ".join(frame["source"].astype(str).unique()),
        is_published=bool((frame["status"] == "published").all()), values=values, n=n,
        never_best=never_best, counted=values.columns[is_counted].to_list(),
        flags=tidy.flags_of_methods(rows), notes=tuple(notes),
    )  # fmt: skip


def column_name(key: Iterable[str]) -> str:
    dataset, identity, backbone, split = key
    variant = tidy.without_identity(identity)
    parts = (dataset, f"({variant})", backbone, split)
    return " ".join(part for part in parts if part not in ("", "()", "test"))


def average_seeds(rows: pd.DataFrame, metric: str) -> tuple[Any, Any, Any, list[str]]:
    """Return the mean over shared seeds, the count, whether one is never the best, and notes."""
    is_average = (rows["backbone"] == "average") | (rows["dataset"] == "average")
    rows = rows[~is_average]
    if rows["value"].isna().all():
        why = "; only averages are printed" if is_average.any() and rows.empty else ""
        raise UserError(f"no column of these results has {METRICS[metric].title}{why}")
    # A spec that two runs share is one trial; a printed number is identified by its table.
    trial = rows["spec_hash"].where(rows["spec_hash"] != "", rows["source"])
    never_best = rows["flags"].astype(str).str.contains("|".join(NEVER_BEST))
    rows = rows.assign(trial=trial, never_best=never_best).reset_index(drop=True)
    # It may have crashed in one run; its number in the other one counts.
    numbers_first = rows["value"].isna().sort_values(kind="stable").index
    rows = rows.loc[numbers_first].drop_duplicates(["trial", "method", *KEY]).sort_index()
    is_mixed = rows.duplicated(["method", *KEY, *tidy.SEEDS], keep=False)
    mixed = rows[rows["value"].notna() & is_mixed]
    if len(mixed):
        first = mixed.iloc[0]
        raise UserError(
            f"{first['method']!r} is two different methods on {column_name(first[KEY])}, with the "
            "same seeds and different settings; rank these folders separately"
        )
    # Grouping drops rows without a key, and missing trials may lack a backbone.
    groups = rows.fillna({"backbone": "unknown"}).groupby(["method", *KEY], sort=False)
    cells = groups.agg(
        mean=("value", "mean"), n=("value", "count"), never_best=("never_best", "any")
    )
    mean, n, is_barred = (cells[part].unstack(KEY, sort=False) for part in cells)
    notes = _match_columns(rows.dropna(subset="value"), mean, n)
    return mean, n.fillna(0).astype(int), is_barred.eq(True), notes


def _match_columns(rows: pd.DataFrame, mean: pd.DataFrame, n: pd.DataFrame) -> list[str]:
    """Average columns whose methods differ in their seeds over shared ones; return notes."""
    combinations = rows.groupby(list(tidy.SEEDS), dropna=False).ngroup()
    cells = combinations.groupby([rows[name] for name in ("method", *KEY)], sort=False)
    sets = cells.agg(frozenset).unstack(KEY)
    notes = []
    for key in sets.columns[sets.nunique() > 1]:
        matched = tidy.match_seeds(rows[(rows[KEY] == list(key)).all(axis="columns")])
        shared = matched.dropna()
        if len(shared) == len(matched):
            continue
        text = "no seed has a number for every method, so that means are over different seeds"
        if len(shared):
            mean[key] = shared.mean().reindex(mean.index)
            n[key] = n[key].clip(upper=len(shared))
            text = f"means are over the {len(shared)} of {len(matched)} seeds that all methods have"
        notes.append(f"{column_name(key)}: {text}")
    return notes


@dataclass(frozen=True, eq=False)
class Matched(Flagged):
    """Values of one metric in matched blocks; NaN where a method has no number."""

    metric: str
    unit: str  # description of a block
    values: pd.DataFrame  # index block, columns method in the order of the run
    fixed: tuple[str, ...] = ()  # methods with one trial, whose value is repeated in every block
    notes: tuple[str, ...] = ()  # the network check and missing trials
    flags: Mapping[str, list[str]] = field(default_factory=dict)
    why_no_test: str = ""  # why the spread over blocks tests nothing; empty if it does


@cached_per_run
def over_seeds(run: Run, metric: str, split: str = "test") -> Matched:
    """Match the trials of a run by their seeds.

    With several networks, a block is a network seed, averaged over head seeds, because heads on one
    network are not independent repetitions. With one network, a block is a head seed, and the value
    of the network's own head is repeated in every block. If the splits vary, a block is a split.
    """
    rows = tidy.tidy(run, [metric], split)
    block = run.manifest.block
    if block == "head_seed" and rows["head_seed"].isna().all():
        block = "network_seed"
    # The network's own head has no head seed, and no split seed where only select and calib are
    # drawn; its value is repeated in every block.
    values = tidy.match_seeds(rows, [block]).sort_index()
    values = tidy.repeat_pools(run, values.reindex(columns=list(run.labels.values())))
    fixed = tuple(rows[rows[block].isna()].dropna(subset="value")["method"].unique())
    notes = [f"{method} has one trial, which is repeated in every block" for method in fixed]
    unit = "network seed" if run.manifest.paired_seeds else "network seed, head seeds averaged"
    if block == "head_seed":
        unit = "head seed on one network, so the results do not generalise to other networks"
    if block == "split_seed":
        unit = "split of the data, other seeds averaged"
        if run.has_one_network:
            unit = "split of the calibration data on one network"
        notes.append(
            "Splits have samples in common and the same test split: tests over them tell which "
            "method is better on these samples, not on new ones."
        )
    notes += [f"{compute_network_check(run).sentence}.", *tidy.incomplete(run, metric)]
    flags, why = tidy.flags_of_methods(rows), ""
    if block == "head_seed" or (block == "split_seed" and run.has_one_network):
        why = "blocks on one network share its test samples, which only a decision takes as chance"
    return Matched(metric, unit, values, fixed, tuple(notes), flags, why)


def over_columns(table: Scores) -> Matched:
    values = table.values.T.set_axis(list(map(column_name, table.values.columns)))
    unit = "(data set, backbone) column"
    return Matched(table.metric, unit, values, notes=table.notes, flags=table.flags)


def over_seeds_of(runs: Sequence[Run], metric: str, split: str | None = None) -> Matched:
    values, notes = [], []
    flags = defaultdict[str, list[str]](list)
    for run in runs:
        matched = over_seeds(run, metric, tidy.find_split(run, metric, split))
        name = name_of(run)
        values.append(matched.values.rename(index=f"{name} {{}}".format))
        notes += [f"{name}: {note}" for note in matched.notes]
        for method, cells in matched.flags.items():
            flags[method] += cells
    frame = pd.concat(values)
    if len(repeated := frame.index[frame.index.duplicated()]):
        raise UserError(
            f"two runs have {repeated[0]} (data set, backbone, seed); a block counts once"
        )
    unit = "data set, backbone and seed; those of one data set share its test samples"
    return Matched(metric, unit, frame, notes=tuple(dict.fromkeys(notes)), flags=flags)
