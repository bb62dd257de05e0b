"""Metrics of finished trials on shifted images, in columns like those on test.

* ``ood/<set>/<metric>``: an OOD set; ``ood/mean/<metric>``: mean over the OOD sets of a folder with
  several of them, for trials that have all of them.
* ``<family>/<kind>/<severity>/<metric>``: corruptions, where the family is ``corrupt`` (published
  files) or ``generated``; ``<family>/<kind>/mean/<metric>``: mean over severities,
  ``<family>/mean/<severity>/<metric>`` over kinds, ``<family>/mean/<metric>`` over both. A mean
  over kinds exists only over all kinds of the benchmark (all that can be generated).
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tune_calib.files.paths import AnyPath
from tune_calib.results.columns import TableName
from tune_calib.results.tables import read_table
from tune_calib.spec.names import CORRUPTION_KINDS, NOT_GENERATED

Floats = NDArray[np.float64]

OOD = "ood"
MEAN = "mean"
FOREIGN_MEAN = f"{OOD}/{MEAN}"
FAMILIES = {
    "corrupt": CORRUPTION_KINDS,
    "generated": tuple(kind for kind in CORRUPTION_KINDS if kind not in NOT_GENERATED),
}
"""Families of corruptions, and the kinds that a mean over kinds requires."""
TITLES = {"corrupt": "published corruptions", "generated": "generated corruptions"}
SEVERITIES = ("1", "2", "3", "4", "5")
_KEPT = ("spec_hash", "set", "metric", "value")
_KEY = ["spec_hash", "family", "kind", "severity", "metric"]


def kind_title(kind: str) -> str:
    return kind.replace("_", " ").replace("gaussian", "Gaussian").replace("jpeg", "JPEG")


def read_shifts(out: AnyPath) -> pd.DataFrame:
    """Return the metrics on shifted images and their means, with one row per trial."""
    long: pd.DataFrame = read_table(out, "shifts", columns=_KEPT).to_pandas()
    if long.empty:
        return pd.DataFrame(index=pd.Index([], name="spec_hash"))
    # A killed run may have written some rows twice.
    long = long.drop_duplicates(["spec_hash", "set", "metric"], keep="last")
    severities = dict.fromkeys(FAMILIES, len(SEVERITIES))
    # The kinds of OOD images are their sets; a single set needs no mean.
    kinds = {family: len(names) for family, names in FAMILIES.items()}
    kinds[OOD] = max(len(foreign_sets(long["set"])), 2)
    parts = long["set"].str.split("/", n=2, expand=True).reindex(columns=range(3)).fillna("")
    rows = long.assign(family=parts[0], kind=parts[1], severity=parts[2])
    rows = rows[rows["family"].isin(kinds) & (rows["set"] != FOREIGN_MEAN)]
    is_of_benchmark = rows["kind"].isin(CORRUPTION_KINDS) | (rows["family"] == OOD)
    of_severity = _mean(rows[is_of_benchmark], "kind", kinds)
    of_kind = _mean(rows, "severity", severities)
    of_both = _mean(of_severity, "severity", severities)
    rows = pd.concat([long, of_kind, of_severity, of_both])
    rows["column"] = rows["set"] + "/" + rows["metric"]
    return rows.pivot(index="spec_hash", columns="column", values="value")


def foreign_sets(sets: Iterable[str]) -> list[str]:
    return sorted({name for name in sets if name.startswith(f"{OOD}/")} - {FOREIGN_MEAN})


def _mean(rows: pd.DataFrame, over: str, needed: dict[str, int]) -> pd.DataFrame:
    """Average over kinds or severities for trials that have all of them."""
    key = [name for name in _KEY if name != over]
    groups = rows.groupby(key, as_index=False, sort=False)["value"]
    means = groups.agg(["mean", "count"]).rename(columns={"mean": "value"})
    means = means[means["count"] == means["family"].map(needed)].assign(**{over: MEAN})
    parts = means[["family", "kind", "severity"]].astype(str)
    names = parts["family"] + "/" + parts["kind"] + "/" + parts["severity"]
    # Also ``ood/mean/``, whose sets have no severity.
    return means.assign(set=names.str.replace(r"/mean/(mean)?$", "/mean", regex=True))


def read_draws(out: AnyPath, metric: str, split: str = "test") -> dict[str, Floats]:
    """Return the values of a metric on each bootstrap draw of the samples, by spec hash.

    ``split`` is ``test``, a shift set or a mean over shift sets. A draw has the same test samples
    in all trials and sets, so draws of a mean are the means of draws. If a trial has several sets
    of draws, the largest is used; a trial that lacks draws of a shift set is left out.
    """
    table_name: TableName = "intervals" if split == "test" else "shifts"
    set_column = "split" if split == "test" else "set"
    columns = ["spec_hash", "metric", "resamples", "draws", set_column]
    table = read_table(out, table_name, columns=columns)
    # The sets over which the split is the mean, or the split itself if it is no mean.
    sets = [split]
    family, *parts = split.split("/")
    if split == FOREIGN_MEAN:
        sets = foreign_sets(table["set"].unique().to_pylist())
    elif family in FAMILIES:
        kind, severity = (*parts, MEAN)[:2]
        kinds = FAMILIES[family] if kind == MEAN else (kind,)
        severities = SEVERITIES if severity == MEAN else (severity,)
        sets = [f"{family}/{kind}/{severity}" for kind, severity in product(kinds, severities)]
    is_in_sets = pc.is_in(table[set_column], pa.array(sets, pa.string()))
    is_requested = pc.and_(pc.equal(table["metric"], metric), is_in_sets)
    rows = table.filter(pc.and_(is_requested, pc.is_valid(table["draws"]))).sort_by("resamples")
    draws_by_set = defaultdict[str, dict[str, Floats]](dict)
    keys = zip(rows["spec_hash"].to_pylist(), rows[set_column].to_pylist(), strict=True)
    for (spec_hash, name), draws in zip(keys, rows["draws"], strict=True):
        draws_by_set[spec_hash][name] = draws.values.to_numpy().astype(np.float64)
    means = {}
    for spec_hash, by_set in draws_by_set.items():
        # Means need all sets, with equally many draws.
        if len(by_set) == len(sets) and len(set(map(len, by_set.values()))) == 1:
            means[spec_hash] = np.mean(list(by_set.values()), axis=0)
    return means
