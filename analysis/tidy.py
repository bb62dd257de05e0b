"""Results as a tidy frame, in the same shape for runs and published tables, and settings."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.load import Run, cached_per_run, load
from analysis.shifts import foreign_sets
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, atomic_write, refuse_existing
from tune_calib.results.tables import is_metric_column
from tune_calib.spec.metrics import BASE, METRICS, NO_BEST, OOD_METRICS, column, rankable_metrics
from tune_calib.spec.names import SLOTS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.text import format_count, nearest

COLUMNS = (
    "source", "method", "dataset", "variant", "backbone", "split", "metric", "value", "status",
    "network_seed", "head_seed", "split_seed", "note", "spec_hash", "flags",
)  # fmt: skip
SEEDS = ("network_seed", "head_seed", "split_seed")
_INTERVAL = ("lower", "upper", "se", "resamples")
_NUMBERS = dict.fromkeys(("value", "lower", "upper", "se"), pa.float64())
_NUMBERS |= dict.fromkeys(("resamples", *SEEDS), pa.int64())
RESULTS = pa.schema(
    [(name, _NUMBERS.get(name, pa.string())) for name in (*COLUMNS, *_INTERVAL, *SLOTS)],
    metadata={"tune_calib": '{"table": "results", "version": 1}'},
)
"""Columns of the results file of any run; texts unless they are numbers."""
_TRIAL = [name for name in COLUMNS if name not in ("split", "metric", "value")]


def tidy(run: Run, metrics: Sequence[str] = (), split: str | None = None) -> pd.DataFrame:
    """Return one row per (planned trial, metric) of a run, with the columns ``COLUMNS``.

    Values are fractions, NaN unless the trial is done. The source is the id of the run, the method
    the label of the rung, the variant a change of the data (``label_noise=0.2``), and the status
    one of ``STATUSES`` or ``missing``. By default, all recorded metrics and splits are returned.
    """
    rows = planned_trials(run)
    columns = list(filter(is_metric_column, map(str, rows)))
    if metrics:
        splits = [split] if split else sorted({name.rpartition("/")[0] for name in columns})
        columns = [column_in(rows, name, metric) for name, metric in product(splits, metrics)]
        rows = rows.reindex(columns=[*_TRIAL, *columns])
    elif split:
        columns = [name for name in columns if name.rpartition("/")[0] == split]
    long = rows.melt(id_vars=_TRIAL, value_vars=columns, var_name="column")
    for index, part in ((0, "split"), (2, "metric")):
        long[part] = long["column"].map({name: name.rpartition("/")[index] for name in columns})
    # Unfinished trials stay, without a number, so that no mean silently leaves them out.
    is_recorded = (long["status"] != "done") | long["value"].notna()
    return long.loc[is_recorded, list(COLUMNS)].reset_index(drop=True)


def write_results_file(out: AnyPath, file: AnyPath) -> str:
    refuse_existing(file)
    run = load(out)
    intervals = run.intervals.reset_index().assign(split="test")
    rows = tidy(run).merge(intervals, how="left", on=["spec_hash", "split", "metric"])
    rows = rows.merge(run.trials[["spec_hash", *SLOTS]], how="left", on="spec_hash")
    # Categories become texts, and a column without a value keeps its type.
    content = pa.Table.from_pandas(rows.astype(dict.fromkeys(SLOTS, object)), RESULTS)
    sink = pa.BufferOutputStream()
    pq.write_table(content, sink)
    atomic_write(file, sink.getvalue())
    trials = format_count(rows["spec_hash"].nunique(), "trial")
    return f"{format_count(len(rows), 'row')} of {trials} written: {file}"


def column_in(rows: pd.DataFrame, split: str, metric: str) -> str:
    name = f"{split}/{metric}"
    return name if name in rows else column(split, metric)


def flags_of_methods(frame: pd.DataFrame) -> dict[str, list[str]]:
    is_flagged = frame["flags"].notna() & (frame["flags"] != "")
    flagged = frame[is_flagged].drop_duplicates(["method", "spec_hash"])
    groups = flagged.groupby("method", sort=False)["flags"]
    return {str(method): cells.tolist() for method, cells in groups}


def complaints(run: Run, metric: str | None = None) -> list[str]:
    rows = planned_trials(run)
    if metric is not None:
        values = rows.loc[:, rows.columns.astype(str).str.endswith(f"/{metric}")]
        is_without = (rows["status"] == "done") & values.isna().all(axis="columns")
        title = METRICS[metric].title if metric in METRICS else metric
        rows = rows.assign(status=rows["status"].mask(is_without, f"done without {title}"))
    planned = Counter(rows["method"])
    lines = []
    bad = rows[rows["status"] != "done"]
    for (method, status), group in bad.groupby(["method", "status"], sort=False):
        numbers = [group[name].astype("string") for name in SEEDS]
        heads, splits = (("/" + number).fillna("") for number in numbers[1:])
        seeds = ", ".join(numbers[0].str.cat(heads).str.cat(splits))
        kind = "network seed" + "/head seed" * any(heads) + "/split seed" * any(splits)
        lines.append(f"{method}: {len(group)} of {planned[str(method)]} {status} ({kind} {seeds})")
    return lines


def incomplete(run: Run, metric: str) -> list[str]:
    lines = complaints(run, metric)
    return [f"INCOMPLETE: {'; '.join(lines)}"] if lines else []


def check_metric(metric: str, of_search: bool = False) -> None:
    if metric not in METRICS:
        names = rankable_metrics() if of_search else list(METRICS)
        raise UserError(f"unknown metric {metric!r}{nearest(metric, names)}")
    if METRICS[metric].direction is None:
        raise UserError(f"metric {metric} {NO_BEST}")
    if of_search and not METRICS[metric].is_of_trials:
        raise UserError(f"{METRICS[metric].title} is not recorded on select, the split of a search")


def parted(metric: str, split: str | None = None) -> tuple[str, str | None]:
    """Split a name such as ``ood/svhn/auroc`` into its metric and its split."""
    prefix, slash, name = metric.rpartition("/")
    if not slash:
        return metric, split
    if split is not None:
        raise UserError(f"`metric` {metric} and `split` {split} both name a split; give only one")
    return name, prefix


def find_foreign_sets(frame: pd.DataFrame, metric: str) -> list[str]:
    if frame["value"].isna().all():
        raise UserError(
            f"no trial has {METRICS[metric].title}, which needs an OOD set: repeat the command of "
            "the run with `shift`, e.g. `shift` noise"
        )
    return foreign_sets(frame["split"])


def find_split(run: Run, metric: str, split: str | None = None) -> str:
    """Return a split with a metric; by default ``test``, or for an OOD metric its only set."""
    if split is None and metric in OOD_METRICS:
        sets = find_foreign_sets(tidy(run, [metric]), metric)
        if len(sets) > 1:
            names = " or ".join(f"{split}/{metric}" for split in sets)
            raise UserError(f"there are several sets with {METRICS[metric].title}; name {names}")
        return sets[0]
    splits, split = [], split or "test"
    for name in filter(is_metric_column, map(str, run.trials)):
        column_split, _, column_metric = name.rpartition("/")
        is_of_base = name.startswith(f"{BASE}/")
        if column_metric == metric and not is_of_base and run.trials[name].notna().any():
            splits.append(column_split)
    if splits and split not in splits:
        title = METRICS[metric].title
        raise UserError(f"no result has {title} on {split!r}{nearest(split, sorted(splits))}")
    return split


def choose(frame: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """Return the rows with one of the wanted values in each column, e.g. ``metric="ece"``."""
    for name, value in wanted.items():
        if name not in frame:
            columns = list(map(str, frame))
            raise UserError(f"no column {name!r} in the results{nearest(name, columns)}")
        if isinstance(value, str) or not isinstance(value, Iterable):
            value = [value]
        choices, texts = list(map(str, value)), frame[name].astype(str)
        present = sorted(texts.unique())
        for text in choices:
            if text not in present:
                raise UserError(f"no result has {name} {text!r}{nearest(text, present)}")
        frame = frame[texts.isin(choices)]
    return frame


@cached_per_run
def planned_trials(run: Run) -> pd.DataFrame:
    """Return one row per planned trial, with its result if there is one."""
    # Rung and seeds come from the plan, since missing trials have no row.
    of_plan = ["rung", *SEEDS]
    entries = map(attrgetter("spec_hash", *of_plan, "imported"), run.manifest.planned)
    planned = pd.DataFrame(entries, columns=["spec_hash", *of_plan, "imported"])
    rows = planned.merge(run.trials.drop(columns=of_plan), on="spec_hash", how="left")
    # A missing trial has the data and backbone of the others if they agree.
    defaults = {"status": "missing", "dataset": run.manifest.dataset}
    for name in ("backbone", "data"):
        values = rows[name].dropna().unique()
        if len(values) == 1:
            defaults[name] = values[0]
    rows = rows.fillna(defaults)
    variants = {text: _variant(text) for text in rows["data"].dropna().unique()}
    variant = rows["data"].astype(object).map(lambda data: variants.get(data, ""))
    # All folders of the user's own images have the same name in the registry.
    is_users = variant.str.contains("#", regex=False).astype(bool)
    if run.manifest.imports:
        # Each import is a data set and a model, by which its missing trials are known too.
        names = rows["imported"].map(run.manifest.imports).str.rpartition("/")
        dataset = names[0].where(names[0] != "", names[2])
        rows = rows.assign(dataset=dataset, backbone=names[2].where(names[0] != "", ""))
        variant, is_users = "#" + rows["imported"], variant == ""
    return rows.assign(
        source=run.manifest.sweep, method=rows["rung"].map(run.labels), variant=variant,
        dataset=rows["dataset"].mask(is_users, rows["dataset"].replace(run.manifest.titles)),
        note=rows["message"].fillna(""), flags=rows["flags"].fillna(""),
        **{name: rows[name].astype("Int64") for name in SEEDS},
    )  # fmt: skip


def _variant(data: str) -> str:
    """Describe the settings of a data slot that are not defaults, the digest of own data last."""
    slot: dict[str, Any] = json.loads(data)
    users_data = slot.pop("imported", None) or slot.pop("found", None)
    defaults = {name: field.default for name, field in DataSlot.model_fields.items()}
    parts = []
    for name, value in slot.items():
        if name not in ("dataset", "split_seed") and value != defaults.get(name):
            parts.append(f"{name}={value}")
    if users_data:
        parts.append(f"#{users_data['digest']}")
    return ", ".join(parts)


def without_identity(variant: str) -> str:
    return ", ".join(part for part in variant.split(", ") if not part.startswith("#"))


def match_seeds(rows: pd.DataFrame, names: Sequence[str] = SEEDS) -> pd.DataFrame:
    """Return values with a row per combination of seeds and a column per method.

    Trials without one of the seeds, such as those of a network's own head, are in every row with
    their other seeds. NaN without a number.
    """
    seeds = rows[[*names]].drop_duplicates()
    for name in names:
        if seeds[name].notna().any():
            seeds = seeds[seeds[name].notna()]
    values: dict[Any, Any] = {}
    for method, trials in rows.groupby("method", sort=False):
        seed_names = [name for name in names if trials[name].notna().any()]
        values[method] = trials["value"].mean()  # also of printed numbers, without any seed
        if seed_names:
            means = trials.groupby(seed_names)["value"].mean()
            values[method] = seeds.join(means, on=seed_names)["value"]
    return pd.DataFrame(values, index=seeds.index).set_axis(seeds.set_index([*names]).index)


@cached_per_run
def pooled_seeds(run: Run) -> dict[str, int]:
    """Return how many network seeds each pool of a rung has, by the labels of rungs with pools."""
    seeds, rows = {}, run.trials.drop_duplicates("rung")
    for rung, network in zip(rows["rung"], rows["network"], strict=True):
        if isinstance(network, str) and '"pool":' in network:
            members = json.loads(network)["pool"]["members"]
            seeds[run.labels[rung]] = len({member.get("seed") for member in members})
    return seeds


def repeat_pools(run: Run, values: pd.DataFrame) -> pd.DataFrame:
    """Repeat the values of pools, in columns by label, for each network seed of their members."""
    for label, seeds in pooled_seeds(run).items():
        if "network_seed" in values.index.names:
            places = values.index.get_level_values("network_seed") // seeds
            values[label] = values[label].groupby(places).transform("first")
    return values


def tied(values: Any) -> Any:
    """Return a frame or an array without last bits, so that equal classifiers tie."""
    return values.round(12)


def unbeaten(rows: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    are_less_better = [METRICS[name].is_less_better for name in metrics]
    losses = tied(rows[metrics].to_numpy(dtype=float)) * np.where(are_less_better, 1, -1)
    is_beaten = [((losses <= loss).all(1) & (losses < loss).any(1)).any() for loss in losses]
    best = rows[~np.array(is_beaten, dtype=bool)]
    return best.sort_values(metrics, ascending=are_less_better, kind="stable")


def as_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame that files can store: a column of numbers and other values becomes text."""
    columns = {}
    for name, values in frame.items():
        kinds = set(map(type, values.dropna()))
        is_mixed = len(kinds) > 1 and kinds != {int, float}
        columns[name] = values.map(str, na_action="ignore") if is_mixed else values
    return pd.DataFrame(columns).infer_objects()


def settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the settings of trials except seeds, one column per ``slot.key``, lists as JSON."""
    points: list[dict[str, Any]] = []
    for texts in zip(*(rows[slot].astype(object) for slot in SLOTS), strict=True):
        points.append({})
        for slot, text in zip(SLOTS, texts, strict=True):
            if isinstance(text, str):
                points[-1].update(_read_slot(slot, text))
    names = sorted(set().union(*points), key=_order)
    # As objects, since pandas would turn integers into floats next to None, and print 8 as 8.0.
    columns = {name: [point.get(name) for point in points] for name in names}
    return pd.DataFrame(columns, index=rows.index, dtype=object)


@lru_cache(10_000)
def _read_slot(slot: str, text: str) -> dict[str, Any]:
    values = json.loads(text)
    values.pop("seed", None)
    if slot == "data":
        values.pop("split_seed", None)
    if pool := values.pop("pool", None):
        values["pooled"] = f"{len(pool['members'])} members, mean of {pool['average']}"
        if "posthoc" in pool:
            values["pooled"] += f" after {pool['posthoc']['method']} of each"
    values.update(values.pop("params", {}))
    plain = (bool, int, float, str)
    return {
        f"{slot}.{key}": value if isinstance(value, plain) else json.dumps(value)
        for key, value in values.items()
    }


def _order(name: str) -> tuple[int, bool, str]:
    slot, _, key = name.partition(".")
    return SLOTS.index(slot), key != "method", key


def by_rung(rows: pd.DataFrame, labels: Mapping[int, str]) -> pd.DataFrame:
    frame = settings(rows)
    present = sorted(rows["rung"].unique())
    records = []
    for name in map(str, frame):
        texts = frame[name].dropna().map(str)
        # Grouped as strings, since pandas treats true and 1 as equal.
        for _, rungs_of_value in rows["rung"][texts.index].groupby(texts, sort=False):
            rungs = sorted(rungs_of_value.unique())
            names = ["all"] if rungs == present else [labels[rung] for rung in rungs]
            value = frame[name][rungs_of_value.index[0]]
            records.append({"setting": name, "value": value, "rungs": ", ".join(names)})
    return pd.DataFrame(records, columns=["setting", "value", "rungs"], dtype=object)
