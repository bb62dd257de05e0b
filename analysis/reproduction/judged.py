"""The verdicts on the claims of a table as rows: in words for a reader, as numbers for others."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.compare.claims import Verdict
from analysis.reproduction.quantities import QUANTITIES, RANK, printed_of
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import Cell, Printed, Record, cell, number_cell, span_cell
from analysis.tidy import parted
from tune_calib.spec.reproduction import Claim, Comparison

SEEDS_ALONE = "over seeds alone"
RULE = (
    "A claim is held, or not held, if the 95 % interval of its paired difference, over seeds and "
    "test samples together (over seeds alone for quantities that are not metrics), lies on one "
    "side of what is claimed. A claim with several parts is held if each part is; the numbers are "
    "those of the part that decides. On frozen networks the pairs are the networks, with the seeds "
    "of their heads averaged. Seeds to decide: if difference and spread stayed as they are. There "
    "is no verdict if the base network is not over-confident"
)


@dataclass(frozen=True)
class Judged:
    """A verdict with the folder and setting of its results."""

    folder: str
    where: str
    verdict: Verdict
    is_part: bool = False  # of the mean that the claim is about: for information, not counted
    printed: str = ""  # what the paper prints of it, and whether that supports it


def table(folder: str, judged: Sequence[Judged]) -> Table:
    """Return a row per claim and folder of results."""
    rows: list[Record] = []
    for one in judged:
        verdict = one.verdict
        comparison = verdict.comparison
        metric = _unit(comparison)
        rows.append(
            {
                "claim": Cell(title_of(verdict.claim)),
                "results": Cell(one.where),
                "verdict": Cell(f"({verdict.outcome})" if one.is_part else verdict.outcome),
                "compared": Cell(_describe_comparison(verdict)),
                "difference": number_cell(metric, verdict.difference, signed=True),
                "95 %": span_cell(metric, verdict.low, verdict.high, signed=True),
                "seeds": cell(verdict.pairs),
                "seeds to decide": cell(verdict.seeds),
                "paper": Cell(one.printed),
                "why": Cell("; ".join(_reasons(verdict))),
            }
        )
    first = ["verdict", "results", "difference", "seeds to decide"]
    label = label_of(folder, "claims")
    return Table("claims", f"{RULE}.", rows, first=first, label=label, is_main=True)


def title_of(claim: Claim) -> str:
    """Return the text of a claim, marked if the paper does not state it."""
    return f"Not in the paper: {claim.text}" if claim.is_ours else claim.text


def _unit(comparison: Comparison) -> Printed:
    """Return how differences of a comparison are printed."""
    return RANK if comparison.kind == "rank" else printed_of(parted(comparison.metric)[0])


def _describe_comparison(verdict: Verdict) -> str:
    """Describe what the difference is between."""
    comparison = verdict.comparison
    metric = printed_of(parted(comparison.metric)[0])
    if comparison.kind == "trend":
        return f"{metric.title}: slope from {comparison.rung} to {comparison.than[-1]}"
    # It is compared with a rung, or with a number.
    other = verdict.than or number_cell(metric, comparison.number).text
    factor = f"{comparison.least:g} x " if comparison.kind == "ratio" else ""
    rank = "rank by " if comparison.kind == "rank" else ""
    less = f" - ({' - '.join(comparison.less)})" if comparison.less else ""
    return f"{rank}{metric.title}: {comparison.rung} - {factor}{other}{less}"


def _reasons(verdict: Verdict) -> list[str]:
    """Explain an interval over less than usual, and why there is no decision."""
    alone = [SEEDS_ALONE] if verdict.comparison.metric in QUANTITIES and verdict.pairs else []
    return [*alone, *([verdict.why] if verdict.why else [])]


def numbers(judged: Sequence[Judged]) -> pd.DataFrame:
    """Return the verdicts as numbers; fractions."""
    rows = [
        {
            "folder": one.folder,
            "claim": one.verdict.claim.text,
            "kind": one.verdict.comparison.kind,
            "metric": one.verdict.comparison.metric,
            "rung": one.verdict.comparison.rung,
            "than": one.verdict.than,
            "number": one.verdict.comparison.number,
            "least": one.verdict.comparison.least,
            "verdict": one.verdict.outcome,
            "difference": one.verdict.difference,
            "low": one.verdict.low,
            "high": one.verdict.high,
            "seeds": one.verdict.pairs,
            "seeds_to_decide": one.verdict.seeds,
            "why": "; ".join(_reasons(one.verdict)),
            "is_ours": one.verdict.claim.is_ours,
            "is_part": one.is_part,
            "paper": one.printed,
        }
        for one in judged
    ]
    return pd.DataFrame(rows)
