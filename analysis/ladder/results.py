"""Compute the results that the tables and figures of a ladder's report share.

Among them are statistics of FeDLaS's single samples: gates, flips, and correlations of the
indicator. A gate of +1 treats samples with large indicators as over-confident (they are smoothed
more), and a gate of -1 as under-confident (FeDLaS, ECCV 2026, Fig. 3).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from analysis.compare.hypotheses import PAIRED_TESTS, Friedman
from analysis.compare.intervals import over_samples
from analysis.compare.network_check import PLAIN
from analysis.compare.significance import DeclaredTest, for_report
from analysis.ladder.means import trials_of_each
from analysis.load import Run
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import Cell, Record
from tune_calib.files.paths import AnyPath
from tune_calib.results.tables import read_files

COST_PARTS = {"network_s": "network", "bank_s": "feature bank", "own_s": "own"}
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


@dataclass(frozen=True, eq=False)
class LadderResults:
    """The results of a ladder or comparison, computed from its run on first use."""

    run: Run
    test: str = PAIRED_TESTS[0]

    @cached_property
    def statistics(self) -> pd.DataFrame:
        return sample_statistics(self.run.out)

    @cached_property
    def intervals(self) -> pd.DataFrame:
        return over_samples(self.run)

    @cached_property
    def verdicts(self) -> list[DeclaredTest]:
        """Return the paired test and Friedman's; none for a ladder, whose steps are not rivals."""
        return for_report(self.run, self.test)

    @property
    def friedman(self) -> Friedman | None:
        return next((v.friedman for v in self.verdicts if v.friedman is not None), None)

    @property
    def binned(self) -> list[str]:
        """Return the hashes of the trials that have bins on test."""
        bins = self.run.bins
        return list(bins.loc[bins["split"] == "test", "spec_hash"].unique())


def costs(run: Run) -> pd.DataFrame:
    """Compute seconds and memory of every finished trial; NaN where a part is unknown.

    ``total_s`` adds the full cost of the network and feature bank of a trial, though trials share
    them; ``ratio`` divides it by the total of the plain cross-entropy network of the same seed.
    """
    rows = run.done.set_index("spec_hash")
    own_s, is_plain = rows["own_s"].astype(float), rows["head"].isna() & rows["posthoc"].isna()
    networks = own_s[is_plain].groupby(rows.loc[is_plain, "network_id"]).first()
    beneath = rows["network_id"].map(networks).astype(float).mask(is_plain, 0.0)
    bank = rows["bank_s"].astype(float).mask(rows["head"].isna(), 0.0)
    total = own_s + beneath + bank
    # From one rung: others may train plain networks with another recipe.
    vanilla = rows[is_plain & (rows["network_method"] == PLAIN)]
    vanilla = vanilla[vanilla["rung"] == vanilla["rung"].min()]
    of_seed = total[vanilla.index].groupby(vanilla["network_seed"]).first()
    return rows[["rung"]].assign(
        own_s=own_s,
        network_s=beneath,
        bank_s=bank,
        total_s=total,
        ratio=total / rows["network_seed"].map(of_seed).astype(float),
        memory_mib=rows["peak_memory_bytes"].astype(float) / 2**20,
    )


def angles(logits: NDArray[np.float64], labels: Any) -> NDArray[np.float64]:
    """Return the angles in degrees between the mean logits of every two classes with samples."""
    means = np.stack([logits[labels == label].mean(0) for label in np.unique(labels)])
    centred = means - means.mean(0)
    units = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    above = np.triu_indices(len(units), k=1)
    # Rounding may push a cosine past 1, for which there is no angle.
    degrees: NDArray[np.float64] = np.degrees(np.arccos((units @ units.T)[above].clip(-1, 1)))
    return degrees


def sample_statistics(out: AnyPath) -> pd.DataFrame:
    """Summarise the per-sample records of a run by (trial, split, epoch); fractions.

    Columns n and accuracy; over and under, the shares of gates +1 and -1; flipped, the share of
    the previous epoch's samples whose gate changed; and the correlations of the indicator with
    correctness and with confidence, NaN where one does not vary.
    """
    rows: list[dict[str, Any]] = []
    # File by file: the samples of all networks may not fit into memory at once.
    for table in read_files(out, "samples"):
        previous = pd.Series(dtype="int8")
        for key, seen in table.to_pandas().groupby(_KEY, observed=True):
            gate = seen.set_index("sample")["gate"]
            row: dict[str, Any] = dict(zip(_KEY, key, strict=True))
            if not rows or any(row[name] != rows[-1][name] for name in _KEY[:2]):
                previous = previous[:0]  # of another trial or split
            shared = gate.index.intersection(previous.index)
            row |= {"n": len(seen), "accuracy": seen["correct"].mean()}
            row |= {"over": (gate == 1).mean(), "under": (gate == -1).mean()}
            row["flipped"] = (gate[shared] != previous[shared]).mean()
            row |= correlations(seen["indicator"], seen["correct"])
            row |= correlations(seen["indicator"], seen["confidence"], "confidence_")
            rows.append(row)
            previous = gate
    columns = [*_KEY, "n", "accuracy", *QUANTITIES]
    return pd.DataFrame(rows, columns=columns).drop_duplicates(_KEY)


def correlations(
    indicator: "pd.Series[float]", other: "pd.Series[Any]", prefix: str = ""
) -> dict[str, float]:
    """Compute Pearson's and Spearman's correlation; NaN where one of the two does not vary."""
    # The stored half precision overflows in sums over thousands of samples.
    values, others = indicator.to_numpy(dtype=float), other.to_numpy(dtype=float)
    varies = np.ptp(values) > 0 and np.ptp(others) > 0
    coefficients = {f"{prefix}pearson": np.nan, f"{prefix}spearman": np.nan}
    if varies:
        coefficients[f"{prefix}pearson"] = float(stats.pearsonr(values, others).statistic)
        coefficients[f"{prefix}spearman"] = float(stats.spearmanr(values, others).statistic)
    return coefficients


def last_epochs(run: Run, statistics: pd.DataFrame) -> pd.DataFrame:
    """Compute the mean and spread over the trials of each rung at the last recorded epoch."""
    last = statistics.sort_values("epoch").groupby(["spec_hash", "split"]).last().reset_index()
    last = last.merge(run.done[["spec_hash", "rung"]], on="spec_hash")
    rows = []
    for rung, split, quantity in product(run.rungs_in(last), SPLITS, QUANTITIES):
        is_shown = (last["rung"] == rung.index) & (last["split"] == split)
        values = last.loc[is_shown, quantity].dropna()
        numbers = (len(values), values.mean(), values.std(ddof=1))
        rows.append((rung.index, rung.label, split, quantity, *numbers))
    # With column names: a trial that diverged may be the only one with records.
    names = ["rung", "label", "split", "quantity", "n", "mean", "sd"]
    return pd.DataFrame(rows, columns=names)


def samples(run: Run, last: pd.DataFrame) -> Table:
    records: list[Record] = []
    for (_, label, split), rows in last.groupby(["rung", "label", "split"], sort=False):
        record = {run.row_name: Cell(str(label)), "split": Cell(str(split))}
        for _, row in rows.iterrows():
            scale, form = (100, ".1f") if row["quantity"] in SHARES else (1, ".2f")
            cell = Cell.formatted(scale * row["mean"], form)
            if not np.isnan(row["sd"]):
                cell = replace(cell, text=f"{cell.text} ± {scale * row['sd']:{form}}")
            record[QUANTITIES[row["quantity"]].replace("\n", " ")] = cell
        records.append(record)
    numbers = list(filter(None, last["n"])) or [0]
    mean = "mean ± sd, " if max(numbers) > 1 else ""
    caption = (
        f"{run.manifest.title}. Single samples at the last epoch; {mean}"
        f"{trials_of_each(run, numbers)}.\nTrain: as the loss saw each sample, in training mode; "
        "select: after the epoch. A dash: a quantity does not vary or was not recorded."
    )
    label = label_of("samples", run.manifest.dataset)
    return Table("samples", caption, records, chosen_by=("split",), label=label)
