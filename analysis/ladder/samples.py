"""Statistics of FeDLaS's single samples: gates, flips, and correlations of the indicator.

A gate of +1 treats samples with large indicators as over-confident (they are smoothed more), and a
gate of -1 as under-confident (FeDLaS, ECCV 2026, Fig. 3).
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from analysis.ladder.means import trials_of_each
from analysis.load import Sweep
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import Cell, Record, format_cell
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
_KEY = ["spec_hash", "split", "epoch"]
LAST_EPOCH = ["rung", "label", "split", "quantity", "n", "mean", "sd"]


def sample_statistics(out: AnyPath) -> pd.DataFrame:
    """Summarise the per-sample records of a sweep by (trial, split, epoch); fractions.

    Columns n and accuracy; over and under, the shares of gates +1 and -1; flipped, the share of
    the previous epoch's samples whose gate changed; and the correlations of the indicator with
    correctness and with confidence, NaN where one does not vary or was not recorded.
    """
    # File by file: the samples of all networks may not fit into memory at once.
    rows = [row for table in read_files(out, "samples") for row in _rows(table.to_pandas())]
    columns = [*_KEY, "n", "accuracy", *QUANTITIES]
    return pd.DataFrame(rows, columns=columns).drop_duplicates(_KEY)


def _rows(records: pd.DataFrame) -> Iterator[dict[str, object]]:
    for (spec_hash, split), of_split in records.groupby(["spec_hash", "split"], observed=True):
        before = pd.Series(dtype="int8")
        for epoch, seen in of_split.groupby("epoch"):
            gate = seen.set_index("sample")["gate"]
            both = gate.index.intersection(before.index)
            is_recorded = "confidence" in seen and seen["confidence"].notna().all()
            # Zeros do not vary, so both correlations are NaN.
            confidence = seen["confidence"] if is_recorded else pd.Series(0.0, seen.index)
            yield {
                "spec_hash": spec_hash,
                "split": split,
                "epoch": epoch,
                "n": len(seen),
                "accuracy": seen["correct"].mean(),
                "over": (gate == 1).mean(),
                "under": (gate == -1).mean(),
                "flipped": (gate[both] != before[both]).mean(),
                **correlations(seen["indicator"], seen["correct"]),
                **correlations(seen["indicator"], confidence, "confidence_"),
            }
            before = gate


def correlations(
    indicator: "pd.Series[float]", other: "pd.Series[Any]", prefix: str = ""
) -> dict[str, float]:
    """Compute Pearson's and Spearman's correlation; NaN where one of the two does not vary."""
    # The stored half precision overflows in sums over thousands of samples.
    values, others = indicator.to_numpy(dtype=float), other.to_numpy(dtype=float)
    varies = np.ptp(values) > 0 and np.ptp(others) > 0
    measures = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}
    return {
        f"{prefix}{name}": float(measure(values, others).statistic) if varies else np.nan
        for name, measure in measures.items()
    }


def last_epochs(sweep: Sweep, statistics: pd.DataFrame) -> pd.DataFrame:
    """Compute the mean and spread over the trials of each rung at the last recorded epoch."""
    last = statistics.sort_values("epoch").groupby(["spec_hash", "split"]).last().reset_index()
    last = last.merge(sweep.done[["spec_hash", "rung"]], on="spec_hash")
    rows = []
    for rung in sweep.rungs:
        of_rung = last[last["rung"] == rung.index]
        for split, quantity in product(SPLITS if len(of_rung) else (), QUANTITIES):
            values = of_rung.loc[of_rung["split"] == split, quantity].dropna()
            numbers = (len(values), values.mean(), values.std(ddof=1))
            rows.append((rung.index, rung.label, split, quantity, *numbers))
    # With column names: a trial that diverged may be the only one with records.
    return pd.DataFrame(rows, columns=LAST_EPOCH)


def samples(sweep: Sweep, last: pd.DataFrame) -> Table:
    """Build the table of ``last_epochs``, shares in percent."""
    heads = {quantity: head.replace("\n", " ") for quantity, head in QUANTITIES.items()}
    records: list[Record] = [
        {sweep.row_name: Cell(str(label)), "split": Cell(str(split))}
        | {heads[row["quantity"]]: _cell(row) for _, row in rows.iterrows()}
        for (_, label, split), rows in last.groupby(["rung", "label", "split"], sort=False)
    ]
    numbers = [n for n in last["n"] if n] or [0]
    mean = "mean ± sd, " if max(numbers) > 1 else ""
    caption = (
        f"{sweep.manifest.title}. Single samples at the last epoch; {mean}"
        f"{trials_of_each(sweep, numbers)}.\nTrain: as the loss saw each sample, in training mode; "
        "select: after the epoch. A dash: a quantity does not vary or was not recorded."
    )
    label = label_of("samples", sweep.manifest.dataset)
    return Table("samples", caption, records, ("split",), label=label)


def _cell(row: "pd.Series[Any]") -> Cell:
    scale, form = (100, ".1f") if row["quantity"] in SHARES else (1, ".2f")
    shown, spread = (format_cell(scale * row[name], form) for name in ("mean", "sd"))
    return shown if spread.is_blank else replace(shown, text=f"{shown.text} ± {spread.text}")
