"""Which of several rows no other one beats."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tune_calib.spec.metrics import METRICS


def unbeaten(rows: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """The rows that no other one beats, best first metric first; equal ones all stay.

    Args:
        rows: a column for each metric.
        metrics: names of ``names.METRICS``, which say what is better.

    Returns:
        Those rows for which no other is at least as good in all metrics and better in one.
    """
    signs = [1 if METRICS[name].is_less_better else -1 for name in metrics]
    losses: NDArray[np.float64] = rows[metrics].to_numpy(dtype=float) * signs
    is_beaten = [bool(((losses <= own).all(1) & (losses < own).any(1)).any()) for own in losses]
    best = rows[~np.array(is_beaten, dtype=bool)]
    return best.sort_values(metrics, ascending=[sign > 0 for sign in signs], kind="stable")
