"""The cost of the trials of a sweep: network, feature bank and own time, each and summed."""

import pandas as pd

from analysis.compare.regime import PLAIN
from analysis.load import Sweep

PARTS = {"network_s": "network", "bank_s": "feature bank", "own_s": "own"}
_MIB = 2**20
_COLUMNS = (
    "spec_hash", "rung", "network_id", "network_method", "network_seed", "head", "posthoc",
    "wall_s", "population", "peak_memory_bytes", "own_s", "bank_s",
)  # fmt: skip


def has_own_time(sweep: Sweep) -> bool:
    """Return whether the trials' own time was recorded; older results have that of Ray trials."""
    return bool(sweep.trials.reindex(columns=["own_s"])["own_s"].notna().any())


def costs(sweep: Sweep) -> pd.DataFrame:
    """Compute seconds and memory of every finished trial; NaN where a part is unknown.

    The network under a head or a post-hoc method is the trial of the network alone, and the bank is
    that under the head: each counts in full, though many trials may share it. total_s adds them to
    own_s, ratio divides that by the plain cross-entropy network of the same seed, seconds is own_s
    (in older results ``_ray_time``) and memory_mib the peak of the whole process or GPU.
    """
    rows = sweep.done.reindex(columns=list(_COLUMNS)).set_index("spec_hash")
    own, is_plain = rows["own_s"].astype(float), rows["head"].isna() & rows["posthoc"].isna()
    networks = own[is_plain].groupby(rows.loc[is_plain, "network_id"]).first()
    beneath = rows["network_id"].map(networks).astype(float).mask(is_plain, 0.0)
    bank = rows["bank_s"].astype(float).mask(rows["head"].isna(), 0.0)
    total = own + beneath + bank
    # Only one rung: others may train such a network with another recipe.
    vanilla = rows[is_plain & (rows["network_method"] == PLAIN)]
    vanilla = vanilla[vanilla["rung"] == vanilla["rung"].min()]
    of_seed = total[vanilla.index].groupby(vanilla["network_seed"]).first()
    return pd.DataFrame(
        {
            "rung": rows["rung"],
            "seconds": own if has_own_time(sweep) else _ray_time(rows),
            "own_s": own,
            "network_s": beneath,
            "bank_s": bank,
            "total_s": total,
            "ratio": total / rows["network_seed"].map(of_seed).astype(float),
            "memory_mib": rows["peak_memory_bytes"].astype(float) / _MIB,
        }
    )


def _ray_time(done: pd.DataFrame) -> "pd.Series[float]":
    """Divide the seconds of Ray trials by their heads; NaN for post-hoc methods on a network."""
    heads = done["population"].where(done["head"].notna(), 1).astype(float)
    is_of_network = done["posthoc"].notna() & done["head"].isna()
    return (done["wall_s"].astype(float) / heads).mask(is_of_network)
