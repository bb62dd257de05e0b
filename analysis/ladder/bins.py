"""Bins of a rung, its trials pooled, and how far chance alone takes a calibrated network."""

import numpy as np
import pandas as pd

from analysis.load import Sweep

RESAMPLES = 2000
LEVEL = 0.95
_SEED = 0


def pooled_bins(sweep: Sweep, rung: int, split: str = "test") -> pd.DataFrame:
    """Bins of a rung, its trials pooled by their counts.

    Returns:
        Columns lower, upper, count, confidence, accuracy (NaN in an empty bin), share, and
        trials, how many were pooled.
    """
    hashes = set(sweep.of_rung(rung)["spec_hash"])
    chosen = sweep.bins["spec_hash"].isin(hashes) & (sweep.bins["split"] == split)
    bins = sweep.bins[chosen]
    # By counts: in a plain mean of the trials a bin of one sample would weigh as one of hundreds.
    weighted = bins.assign(
        confidence=bins["confidence"] * bins["count"], accuracy=bins["accuracy"] * bins["count"]
    )
    pooled = weighted.groupby("bin")[["count", "confidence", "accuracy"]].sum()
    edges = bins.groupby("bin")[["lower", "upper"]].first()
    total = pooled["count"].where(pooled["count"] > 0)
    return edges.assign(
        count=pooled["count"],
        confidence=pooled["confidence"] / total,
        accuracy=pooled["accuracy"] / total,
        share=pooled["count"] / max(1, pooled["count"].sum()),
        trials=bins["spec_hash"].nunique(),
    )


def consistency_band(bins: pd.DataFrame, seed: int = _SEED) -> pd.DataFrame:
    """How far the accuracy of a bin may lie from its confidence by chance alone.

    Consistency resampling: as many test samples as the split has are drawn anew with the shares
    of the bins, each is right with the mean confidence of its bin, and the accuracy of each bin is
    taken; ``RESAMPLES`` times. The trials of a rung share the test split, so pooling them makes the
    sample no larger. Unlike a bootstrap of the outcomes, it is not 0 wide in a bin of one sample.

    Args:
        bins: as of ``pooled_bins``.
        seed: of the draws.

    Returns:
        Index of ``bins`` without those that are empty; columns low and high, the middle ``LEVEL``
        of the draws. Fractions.
    """
    shown = bins[bins["count"] > 0]
    chance = np.random.default_rng(seed)
    samples = round(shown["count"].sum() / shown["trials"].max())
    drawn = chance.multinomial(samples, shown["share"], size=RESAMPLES)
    drawn = np.maximum(drawn, 1)  # a bin that is drawn empty has no accuracy to lie anywhere
    # Pooling may round a mean confidence past 1, which a binomial refuses.
    right = chance.binomial(drawn, shown["confidence"].clip(0, 1))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(right / drawn, [tail, 1 - tail], axis=0)
    return pd.DataFrame({"low": low, "high": high}, index=shown.index)
