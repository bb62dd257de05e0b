"""How far test metrics of one trial would move with other test samples: bootstrap from its bins."""

import numpy as np
import pandas as pd

from analysis.load import Sweep

RESAMPLES = 2000
_ENDS = (2.5, 97.5)


def over_samples(sweep: Sweep, split: str = "test") -> pd.DataFrame:
    """Intervals of every finished trial over the samples of a split.

    A resample draws as many samples with replacement: counts of the bins are multinomial, the right
    ones among them binomial. The mean confidence of a bin is held, for the bins hold no more.
    Resampling adds noise to every bin and so makes the ECE larger on average; the basic (reverse
    percentile) interval takes that back.

    Args:
        sweep: its bins are read.
        split: of them.

    Returns:
        One row a trial: rung (label), network_seed, head_seed, samples, accuracy, accuracy_low,
        accuracy_high, ece, ece_low, ece_high; fractions, 95 %. Empty without bins of the split.
    """
    bins = sweep.bins[sweep.bins["split"] == split]
    labels = {rung["index"]: rung["label"] for rung in sweep.rungs}
    trials = sweep.trials[sweep.trials["status"] == "done"].set_index("spec_hash")
    rows = []
    for spec_hash, own in bins.groupby("spec_hash", observed=True, sort=False):
        if spec_hash not in trials.index:
            continue
        trial = trials.loc[spec_hash]
        row = {
            "rung": labels[trial["rung"]],
            "network_seed": trial["network_seed"],
            "head_seed": trial["head_seed"],
        }
        rows.append((trial["rung"], {**row, **_intervals(own)}))
    rows.sort(key=lambda pair: (pair[0], pair[1]["network_seed"], str(pair[1]["head_seed"])))
    return pd.DataFrame([row for _, row in rows])


def _intervals(bins: pd.DataFrame) -> dict[str, float]:
    filled = bins[bins["count"] > 0]
    counts, right = filled["count"].to_numpy(), filled["accuracy"].to_numpy()
    total = int(counts.sum())
    chance = np.random.default_rng(0)
    drawn = chance.multinomial(total, counts / total, size=RESAMPLES)
    hits = chance.binomial(drawn, right)
    confidence = filled["confidence"].to_numpy()
    found = {
        "accuracy": ((counts * right).sum() / total, hits.sum(1) / total),
        "ece": (
            np.abs(counts * (right - confidence)).sum() / total,
            np.abs(hits - drawn * confidence).sum(1) / total,
        ),
    }
    row: dict[str, float] = {"samples": total}
    for metric, (value, resampled) in found.items():
        least, most = np.percentile(resampled, _ENDS)
        ends = np.clip([2 * value - most, 2 * value - least], 0.0, 1.0)
        row |= {metric: value, f"{metric}_low": ends[0], f"{metric}_high": ends[1]}
    return row
