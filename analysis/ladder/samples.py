"""Statistics of FeDLaS's single samples: gates, flips, and correlations of the indicator.

A gate of +1 treats large indicators as over-confident (they are smoothed more), one of -1 as
under-confident (FeDLaS, ECCV 2026, Fig. 3).
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from analysis.ladder.means import trials_of_each
from analysis.load import Sweep
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import NOTHING, Cell, Record, decimal_cell
from tune_calib.paths import AnyPath
from tune_calib.results.tables import read_files

QUANTITIES = {
    "over": "gate +1:\nover-confident (%)",
    "under": "gate -1:\nunder-confident (%)",
    "flipped": "gate flipped since\nthe epoch before (%)",
    "pearson": "Pearson r, indicator\nand correctness",
    "spearman": "Spearman rho, indicator\nand correctness",
    "confidence_pearson": "Pearson r, indicator\nand confidence",
    "confidence_spearman": "Spearman rho, indicator\nand confidence",
}
SPLITS = {"train": "train, as the loss saw it", "select": "select, after the epoch"}
SHARES = ("over", "under", "flipped")
LAST_EPOCH = ["rung", "label", "split", "quantity", "n", "mean", "sd"]


def sample_statistics(out: AnyPath) -> pd.DataFrame:
    """Summarise the per-sample records of a sweep, one network in memory at a time.

    Args:
        out: folder of the sweep.

    Returns:
        One row per (trial, split, epoch): spec_hash, split, epoch, n, accuracy; over and under,
        shares of samples with gate +1 and -1; flipped, share of the samples of the previous epoch
        whose gate changed (NaN in the first epoch); pearson and spearman of the indicator with
        correctness (NaN where one of them does not vary), confidence_pearson and
        confidence_spearman with the softmax confidence (NaN too where that was not recorded).
        Fractions.

    Raises:
        DamagedFileError: a file is half-written or foreign.
    """
    # File by file, since the samples of all networks at once may not fit into memory.
    rows = [row for table in read_files(out, "samples") for row in _rows(table.to_pandas())]
    columns = ["spec_hash", "split", "epoch", "n", "accuracy", *QUANTITIES]
    return pd.DataFrame(rows, columns=columns).drop_duplicates(["spec_hash", "split", "epoch"])


def _rows(records: pd.DataFrame) -> Iterator[dict[str, object]]:
    for (spec_hash, split), of_split in records.groupby(["spec_hash", "split"], observed=True):
        before = pd.Series(dtype="int8")
        for epoch, seen in of_split.groupby("epoch"):
            gate = seen.set_index("sample")["gate"]
            both = gate.index.intersection(before.index)
            changed = gate[both].to_numpy() != before[both].to_numpy()
            is_recorded = "confidence" in seen and seen["confidence"].notna().all()
            # Zeros do not vary, so that both correlations are NaN.
            confidence = seen["confidence"] if is_recorded else pd.Series(0.0, seen.index)
            with_confidence = correlations(seen["indicator"], confidence)
            yield {
                "spec_hash": spec_hash,
                "split": split,
                "epoch": epoch,
                "n": len(seen),
                "accuracy": seen["correct"].mean(),
                "over": (gate == 1).mean(),
                "under": (gate == -1).mean(),
                "flipped": changed.mean() if len(both) else np.nan,
                **correlations(seen["indicator"], seen["correct"]),
                **{f"confidence_{k}": v for k, v in with_confidence.items()},
            }
            before = gate


def correlations(indicator: "pd.Series[float]", other: "pd.Series[Any]") -> dict[str, float]:
    """Compute Pearson's and Spearman's correlation; NaN where one of the two does not vary."""
    # Stored in half precision, in which sums over some thousand samples overflow.
    values, others = indicator.to_numpy(dtype=float), other.to_numpy(dtype=float)
    if np.ptp(values) == 0 or np.ptp(others) == 0:
        return {"pearson": np.nan, "spearman": np.nan}
    return {
        "pearson": float(stats.pearsonr(values, others).statistic),
        "spearman": float(stats.spearmanr(values, others).statistic),
    }


def last_epochs(sweep: Sweep, statistics: pd.DataFrame) -> pd.DataFrame:
    """Compute mean and spread over the trials of each rung at the last epoch.

    Returns:
        One row per (rung, split, quantity of ``QUANTITIES``): rung, label, split, quantity, n
        (trials), mean, sd (ddof 1). Rungs without records are left out.
    """
    last = statistics.sort_values("epoch").groupby(["spec_hash", "split"]).last().reset_index()
    rows = []
    for rung in sweep.rungs:
        of_rung = last[last["spec_hash"].isin(set(sweep.of_rung(rung.index)["spec_hash"]))]
        for split in SPLITS if len(of_rung) else ():
            for quantity in QUANTITIES:
                values = of_rung.loc[of_rung["split"] == split, quantity].dropna()
                numbers = (len(values), values.mean(), values.std(ddof=1))
                rows.append((rung.index, rung.label, split, quantity, *numbers))
    # With column names: a trial that diverged may be the only one with records.
    return pd.DataFrame(rows, columns=LAST_EPOCH)


def samples(sweep: Sweep, last: pd.DataFrame) -> list[Table]:
    """Build the table of ``last_epochs``, shares in percent; none without records."""
    if last.empty:
        return []
    heads = {quantity: head.replace("\n", " ") for quantity, head in QUANTITIES.items()}
    records: list[Record] = [
        {"rung": Cell(str(label)), "split": Cell(str(split))}
        | {heads[row["quantity"]]: _cell(row) for _, row in rows.iterrows()}
        for (_, label, split), rows in last.groupby(["rung", "label", "split"], sort=False)
    ]
    manifest = sweep.manifest
    numbers = [n for n in last["n"] if n] or [0]
    mean = "mean ± sd, " if max(numbers) > 1 else ""
    caption = (
        f"{manifest.title}. Single samples at the last epoch; {mean}{trials_of_each(numbers)}.\n"
        "On train as the loss saw each sample (in training mode), on select after the epoch; "
        "- where nothing varies, or confidence was not recorded."
    )
    label = label_of("samples", manifest.dataset)
    return [Table("samples", caption, records, ("split",), label=label)]


def _cell(row: "pd.Series[Any]") -> Cell:
    mean, sd = float(row["mean"]), float(row["sd"])
    if math.isnan(mean):
        return NOTHING
    scale, digits = (100, 1) if row["quantity"] in SHARES else (1, 2)
    shown = decimal_cell(scale * mean, digits)
    if math.isnan(sd):
        return shown
    return Cell(f"{shown.text} ± {scale * sd:.{digits}f}", shown.value)
