"""Results as a tidy frame, in the same shape for runs and published tables, and settings."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.load import Sweep, cached_per_sweep
from analysis.shifts import foreign_sets
from tune_calib.errors import UserError
from tune_calib.results.folders import LOST
from tune_calib.results.tables import is_metric_column
from tune_calib.spec.metrics import BASE, METRICS, NO_BEST, OOD_METRICS, column, rankable_metrics
from tune_calib.spec.names import SLOTS
from tune_calib.spec.slots.data import DataSlot
from tune_calib.text import nearest

COLUMNS = (
    "source", "method", "dataset", "variant", "backbone", "split", "metric", "value", "status",
    "network_seed", "head_seed", "note", "spec_hash", "flags",
)  # fmt: skip
_SEED = re.compile(r'"seed": ?\d+')
_TRIAL = [name for name in COLUMNS if name not in ("split", "metric", "value")]


def tidy(sweep: Sweep, metrics: Sequence[str] = (), split: str | None = None) -> pd.DataFrame:
    """Return one row per (planned trial, metric) of a run, with the columns ``COLUMNS``.

    Values are fractions, NaN unless the trial is done. The source is the id of the run, the method
    the label of the rung, the variant a change of the data (``label_noise=0.2``), and the status
    one of ``STATUSES`` or ``missing``. By default, all recorded metrics and splits are returned.
    """
    rows = planned_trials(sweep)
    found = [name for name in map(str, rows) if is_metric_column(name)]
    if metrics:
        splits = [split] if split else sorted({name.rpartition("/")[0] for name in found})
        found = [column_in(rows, of, metric) for of in splits for metric in metrics]
        rows = rows.reindex(columns=[*_TRIAL, *found])
    elif split:
        found = [name for name in found if name.rpartition("/")[0] == split]
    long = rows.melt(id_vars=_TRIAL, value_vars=found, var_name="column")
    parts = {name: name.rpartition("/") for name in found}
    long["split"] = long["column"].map({name: part[0] for name, part in parts.items()})
    long["metric"] = long["column"].map({name: part[2] for name, part in parts.items()})
    # Unfinished trials stay, without a number, so that no mean silently leaves them out.
    is_recorded = (long["status"] != "done") | long["value"].notna()
    return long.loc[is_recorded, list(COLUMNS)].reset_index(drop=True)


def column_in(rows: pd.DataFrame, split: str, metric: str) -> str:
    """Return the column of a metric or of another quantity in the rows."""
    name = f"{split}/{metric}"
    return name if name in rows else column(split, metric)


def flags_of_methods(frame: pd.DataFrame) -> dict[str, list[str]]:
    """Return the flags of the flagged trials of each method."""
    is_flagged = frame["flags"].notna() & (frame["flags"] != "")
    flagged = frame[is_flagged].drop_duplicates(["method", "spec_hash"])
    groups = flagged.groupby("method", sort=False)["flags"]
    return {str(method): cells.tolist() for method, cells in groups}


def complaints(sweep: Sweep, metric: str | None = None) -> list[str]:
    """Return a line per rung and reason for planned trials without numbers, or without a metric."""
    rows = planned_trials(sweep)
    if metric is not None:
        found = [name for name in map(str, rows) if name.endswith(f"/{metric}")]
        is_without = (rows["status"] == "done") & rows[found].isna().all(axis="columns")
        lacking = f"done without {METRICS[metric].title if metric in METRICS else metric}"
        rows = rows.assign(status=rows["status"].mask(is_without, lacking))
    planned = Counter(rows["method"])
    lines = [LOST] if sweep.manifest.is_lost else []
    bad = rows[rows["status"] != "done"]
    for (method, status), group in bad.groupby(["method", "status"], sort=False):
        seeds = ", ".join(
            f"{network}" if pd.isna(head) else f"{network}/{head}"
            for network, head in zip(group["network_seed"], group["head_seed"], strict=True)
        )
        kind = "network seed" if group["head_seed"].isna().all() else "network seed/head seed"
        lines.append(f"{method}: {len(group)} of {planned[str(method)]} {status} ({kind} {seeds})")
    return lines


def incomplete(sweep: Sweep, metric: str) -> list[str]:
    """Return all ``complaints`` as one line, or an empty list."""
    lines = complaints(sweep, metric)
    return [f"INCOMPLETE: {'; '.join(lines)}"] if lines else []


def check_metric(metric: str, of_search: bool = False) -> None:
    """Refuse a metric that is unknown, without a best value, or not recorded in searches."""
    if metric not in METRICS:
        known = rankable_metrics() if of_search else list(METRICS)
        raise UserError(f"unknown metric {metric!r}{nearest(metric, known)}")
    if METRICS[metric].direction is None:
        raise UserError(f"metric {metric} {NO_BEST}")
    if of_search and not METRICS[metric].is_of_trials:
        raise UserError(f"{METRICS[metric].title} is not recorded on select, the split of a search")


def parted(metric: str, split: str | None = None) -> tuple[str, str | None]:
    """Split a name such as ``ood/svhn/auroc`` into its metric and its split."""
    own, slash, name = metric.rpartition("/")
    if not slash:
        return metric, split
    if split is not None:
        raise UserError(f"`metric` {metric} and `split` {split} both name a split; give only one")
    return name, own


def check_is_evaluated(frame: pd.DataFrame, metric: str) -> None:
    """Refuse a metric of OOD images if no trial was evaluated on any."""
    if metric in OOD_METRICS and frame["value"].isna().all():
        raise UserError(
            f"no trial has {METRICS[metric].title}, which needs an OOD set: repeat the command of "
            "the run with `shift`, e.g. `shift` noise"
        )


def check_split(sweep: Sweep, metric: str, split: str) -> str:
    """Return a split; refuse it if no result has the metric there but some have it elsewhere."""
    splits = []
    for name in filter(is_metric_column, map(str, sweep.trials)):
        is_of_base = name.startswith(f"{BASE}/")
        column_metric, column_split = parted(name)
        if column_metric == metric and not is_of_base and sweep.trials[name].notna().any():
            splits.append(str(column_split))
    if splits and split not in splits:
        title = METRICS[metric].title
        raise UserError(f"no result has {title} on {split!r}{nearest(split, sorted(splits))}")
    return split


def default_split(sweep: Sweep, metric: str) -> str:
    """Return ``test``, or for an OOD metric the only set with results."""
    if metric not in OOD_METRICS:
        return "test"
    frame = tidy(sweep, [metric])
    check_is_evaluated(frame, metric)
    found = foreign_sets(frame["split"])
    if len(found) > 1:
        named = " or ".join(f"{split}/{metric}" for split in found)
        raise UserError(f"there are several sets with {METRICS[metric].title}; name {named}")
    return str(found[0])


def choose(frame: pd.DataFrame, **wanted: object) -> pd.DataFrame:
    """Return the rows with one of the wanted values in each column, e.g. ``metric="ece"``."""
    for name, value in wanted.items():
        if name not in frame:
            raise UserError(
                f"no column {name!r} in the results{nearest(name, list(map(str, frame)))}"
            )
        several = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        values = [str(each) for each in several]
        texts = frame[name].astype(str)
        known = sorted(texts.unique())
        for text in values:
            if text not in known:
                raise UserError(f"no result has {name} {text!r}{nearest(text, known)}")
        frame = frame[texts.isin(values)]
    return frame


@cached_per_sweep
def planned_trials(sweep: Sweep) -> pd.DataFrame:
    """Return one row per planned trial, with its result if there is one."""
    ours = ["rung", "network_seed", "head_seed"]
    entries = [(p.spec_hash, p.rung, p.network_seed, p.head_seed) for p in sweep.manifest.planned]
    planned = pd.DataFrame(entries, columns=["spec_hash", *ours])
    # Rung and seeds come from the plan, since missing trials have no row.
    rows = planned.merge(sweep.trials.drop(columns=ours), on="spec_hash", how="left")
    variants = {text: _variant(text) for text in rows["data"].dropna().unique()}
    # A missing trial has the data and backbone of the others if they agree.
    known = {name: rows[name].dropna().unique() for name in ("backbone", "data")}
    agreed = {name: values[0] for name, values in known.items() if len(values) == 1}
    rows = rows.fillna({"status": "missing", "dataset": sweep.manifest.dataset, **agreed})
    return rows.assign(
        source=sweep.manifest.sweep,
        method=rows["rung"].map(sweep.labels),
        variant=[variants.get(data, "") for data in rows["data"]],
        # All folders of the user's own images have the same name in the registry.
        dataset=[
            sweep.manifest.titles.get(name, name) if "#" in variants.get(data, "") else name
            for name, data in zip(rows["dataset"], rows["data"], strict=True)
        ],
        network_seed=rows["network_seed"].astype("Int64"),
        head_seed=rows["head_seed"].astype("Int64"),
        note=rows["message"].fillna(""),
        flags=rows["flags"].fillna(""),
    )


def seeds_of(row: Mapping[Any, Any]) -> str:
    """Describe the network seed and, if any, the head seed of a trial."""
    network, head = row["network_seed"], row["head_seed"]
    text = f"network seed {network:.0f}"
    return text if pd.isna(head) else f"{text}, head seed {head:.0f}"


def _variant(data: str) -> str:
    """Describe the settings of a data slot that are not defaults, the digest of own data last."""
    slot: dict[str, Any] = json.loads(data)
    own = slot.pop("imported", None) or slot.pop("found", None)
    defaults = {name: field.default for name, field in DataSlot.model_fields.items()}
    changed = [
        f"{name}={value}"
        for name, value in slot.items()
        if name != "dataset" and value != defaults.get(name)
    ]
    return ", ".join([*changed, *([f"#{own['digest']}"] if own else [])])


def without_identity(variant: str) -> str:
    """Return a variant without the digest of own data, in place of which tables show a title."""
    return ", ".join(part for part in variant.split(", ") if not part.startswith("#"))


def unbeaten(rows: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Return the Pareto-optimal rows, sorted by the metrics."""
    signs = [1 if METRICS[name].is_less_better else -1 for name in metrics]
    losses = rows[metrics].to_numpy(dtype=float) * signs
    is_beaten = [bool(((losses <= own).all(1) & (losses < own).any(1)).any()) for own in losses]
    best = rows[~np.array(is_beaten, dtype=bool)]
    return best.sort_values(metrics, ascending=[sign > 0 for sign in signs], kind="stable")


def settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the settings of trials except seeds, one column per ``slot.key``, lists as JSON."""
    kinds, known = _kinds(rows)
    names = sorted({name for own in known for name in own}, key=_order)
    # As objects, since pandas would turn integers into floats next to None, and print 8 as 8.0.
    frame = pd.DataFrame(
        {name: pd.Series([own.get(name) for own in known], dtype=object) for name in names}
    )
    return frame.take(kinds).set_axis(rows.index)


def _kinds(rows: pd.DataFrame) -> tuple[NDArray[Any], list[dict[str, Any]]]:
    """Number distinct settings without seeds; return the number of each trial, and the settings."""
    codes, texts = {}, {}
    for slot in SLOTS:
        distinct = rows.reindex(columns=[slot])[slot].astype("category").cat
        numbers: dict[str, int] = {}
        own = []
        # One text at a time, since those of 200,000 trials would take hundreds of megabytes.
        for text in distinct.categories:
            plain, count = _SEED.subn('"seed":0', text)
            # Two seeds: the method has a hyper-parameter of that name too.
            is_own = count == 1 and slot in ("network", "head")
            own.append(numbers.setdefault(plain if is_own else text, len(numbers)))
        codes[slot] = np.array([*own, -1])[distinct.codes]
        texts[slot] = [*numbers, None]
    frame = pd.DataFrame(codes)
    known = [
        {name: value for slot in SLOTS if (text := texts[slot][kind[slot]]) is not None
         for name, value in _read_slot(slot, text).items()}
        for kind in frame.drop_duplicates().to_dict("records")
    ]  # fmt: skip
    return frame.groupby(list(SLOTS), sort=False).ngroup().to_numpy(), known


@cache
def _read_slot(slot: str, text: str) -> dict[str, Any]:
    entries = json.loads(text)
    own = {key: value for key, value in entries.items() if key not in ("params", "seed")}
    return {
        f"{slot}.{key}": value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for key, value in {**own, **entries.get("params", {})}.items()
    }


def _order(name: str) -> tuple[int, bool, str]:
    """Return the sort key of a setting: in the order of slots, with the method first."""
    slot, _, key = name.partition(".")
    return SLOTS.index(slot), key != "method", key


def by_rung(rows: pd.DataFrame, labels: Mapping[int, str]) -> pd.DataFrame:
    """Return a row per setting and value with its rungs (labels or ``all``)."""
    # One trial per rung and combination of settings is enough.
    pairs = pd.DataFrame({"settings": _kinds(rows)[0], "rung": rows["rung"].to_numpy()})
    rows = rows[~pairs.duplicated().to_numpy()]
    frame = settings(rows)
    present = sorted(rows["rung"].unique())
    found = []
    for name in map(str, frame):
        texts = frame[name].dropna().map(str)
        # Grouped as strings, since pandas treats true and 1 as equal.
        for _, own in rows["rung"][texts.index].groupby(texts, sort=False):
            rungs = sorted(own.unique())
            where = "all" if rungs == present else ", ".join(labels[rung] for rung in rungs)
            found.append({"setting": name, "value": frame[name][own.index[0]], "rungs": where})
    return pd.DataFrame(found, columns=["setting", "value", "rungs"], dtype=object)
