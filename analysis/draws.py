"""Values of a metric on each bootstrap draw, of the test split and of shifted images."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from analysis.shifts import FAMILIES, FOREIGN_MEAN, MEAN, SEVERITIES, foreign_sets
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_table

Floats = NDArray[np.float64]


def read_draws(out: AnyPath, metric: str, split: str = "test") -> dict[str, Floats]:
    """Values of a metric on each draw, by spec hash.

    The test samples of a draw are the same for all trials on the same number of samples, of
    whichever set: draws of a mean over sets are the means of their draws. Of a trial with several
    numbers of draws the most count; a trial that lacks draws of a set has none.

    Args:
        out: folder of a sweep.
        metric: a name of ``names.METRICS``.
        split: ``test``, a shift set or a mean over some, as ``shifts.read_shifts`` names them.

    Raises:
        DamagedFileError: a file is half-written or foreign.
    """
    if split == "test":
        table, where, sets = read_table(out, "intervals"), "split", [split]
    else:
        table, where = read_table(out, "shifts"), "set"
        sets = _sets(split, table[where].unique().to_pylist())
    is_asked = pc.and_(
        pc.equal(table["metric"], metric), pc.is_in(table[where], pa.array(sets, pa.string()))
    )
    kept = table.filter(pc.and_(is_asked, pc.is_valid(table["draws"]))).sort_by("resamples")
    found: dict[str, dict[str, Floats]] = {}
    columns = (kept[name] for name in ("spec_hash", where, "draws"))
    for spec_hash, name, draws in zip(*columns, strict=True):
        values = draws.values.to_numpy().astype(np.float64)
        found.setdefault(spec_hash.as_py(), {})[name.as_py()] = values
    return {
        spec_hash: np.mean(list(own.values()), axis=0)
        for spec_hash, own in found.items()
        if len(own) == len(sets) and len({len(values) for values in own.values()}) == 1
    }


def _sets(split: str, there: Iterable[str]) -> list[str]:
    """The sets that a split is the mean of: itself, if it is no mean.

    Args:
        split: of shifted images.
        there: sets that trials were looked at on.
    """
    if split == FOREIGN_MEAN:
        return foreign_sets(there)
    family, *parts = split.split("/")
    if family not in FAMILIES:
        return [split]
    kind, severity = (*parts, MEAN)[:2]
    kinds = FAMILIES[family] if kind == MEAN else (kind,)
    severities = SEVERITIES if severity == MEAN else (severity,)
    return [f"{family}/{one}/{level}" for one in kinds for level in severities]
