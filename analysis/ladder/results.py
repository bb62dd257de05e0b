"""Compute the results that the tables and figures of a ladder's report share."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.compare.regime import PLAIN
from analysis.compare.resampling import over_samples
from analysis.compare.significance import Verdict, for_report
from analysis.compare.tests import PAIRED_TESTS, Friedman
from analysis.ladder.samples import sample_statistics
from analysis.load import Sweep

COST_PARTS = {"network_s": "network", "bank_s": "feature bank", "own_s": "own"}
_COSTS = (
    "spec_hash", "rung", "network_id", "network_method", "network_seed", "head", "posthoc",
    "wall_s", "population", "peak_memory_bytes", "own_s", "bank_s",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class LadderResults:
    """The results of a ladder or comparison, computed from its sweep on first use."""

    sweep: Sweep
    test: str = PAIRED_TESTS[0]

    @cached_property
    def statistics(self) -> pd.DataFrame:
        """Return the statistics of single samples by trial, split and epoch."""
        return sample_statistics(self.sweep.out)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        """Return the intervals of each trial over the test samples."""
        return over_samples(self.sweep)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Return the paired test and Friedman's; none for a ladder, whose steps are not rivals."""
        return for_report(self.sweep, self.test)

    @property
    def friedman(self) -> Friedman | None:
        """Return Friedman's test of the methods of a comparison."""
        return next((v.friedman for v in self.verdicts if v.friedman is not None), None)

    @property
    def binned(self) -> list[str]:
        """Return the hashes of the trials that have bins on test."""
        bins = self.sweep.bins
        return list(bins.loc[bins["split"] == "test", "spec_hash"].unique())


def has_own_time(sweep: Sweep) -> bool:
    """Return whether results have the time of each trial; older ones have that of Ray trials."""
    return bool(sweep.trials.reindex(columns=["own_s"])["own_s"].notna().any())


def costs(sweep: Sweep) -> pd.DataFrame:
    """Compute seconds and memory of every finished trial; NaN where a part is unknown.

    ``total_s`` adds the full cost of the network and feature bank of a trial, though trials share
    them; ``ratio`` divides it by the total of the plain cross-entropy network of the same seed.
    """
    rows = sweep.done.reindex(columns=list(_COSTS)).set_index("spec_hash")
    own, is_plain = rows["own_s"].astype(float), rows["head"].isna() & rows["posthoc"].isna()
    networks = own[is_plain].groupby(rows.loc[is_plain, "network_id"]).first()
    beneath = rows["network_id"].map(networks).astype(float).mask(is_plain, 0.0)
    bank = rows["bank_s"].astype(float).mask(rows["head"].isna(), 0.0)
    total = own + beneath + bank
    # From one rung: others may train plain networks with another recipe.
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
            "memory_mib": rows["peak_memory_bytes"].astype(float) / 2**20,
        }
    )


def _ray_time(done: pd.DataFrame) -> "pd.Series[float]":
    """Divide the seconds of Ray trials by their heads; NaN for post-hoc methods on a network."""
    heads = done["population"].where(done["head"].notna(), 1).astype(float)
    return (done["wall_s"].astype(float) / heads).mask(
        done["posthoc"].notna() & done["head"].isna()
    )


def angles(logits: NDArray[np.float64], labels: Any) -> NDArray[np.float64]:
    """Return the angles in degrees between the mean logits of every two classes with samples."""
    means = np.stack([logits[labels == label].mean(0) for label in np.unique(labels)])
    centred = means - means.mean(0)
    units = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    above = np.triu_indices(len(units), k=1)
    # Rounding may push a cosine past 1, for which there is no angle.
    found: NDArray[np.float64] = np.degrees(np.arccos((units @ units.T)[above].clip(-1, 1)))
    return found
