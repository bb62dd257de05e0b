"""The verdicts on the claims of a table as rows: in words for a reader, as numbers for others."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.compare.claims import Verdict
from analysis.reproduction.quantities import QUANTITIES, printed_of
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import Cell, Record, cell, number_cell, span_cell
from analysis.tidy import parted

SEEDS_ALONE = "over seeds alone"
RULE = (
    "Held, or not held: the 95 % interval of the paired difference, over seeds and test samples "
    "together (of what is no metric over seeds alone), is on one side of what is claimed. On given "
    "networks the pairs are the networks, of heads the mean over their seeds. Seeds to decide: if "
    "difference and spread stayed as they are. No verdict where the base network is not in the "
    "paper's regime"
)


@dataclass(frozen=True)
class Judged:
    """A verdict with the folder and setting of its results."""

    folder: str
    where: str
    verdict: Verdict


def table(folder: str, judged: Sequence[Judged]) -> Table:
    """Return a row a claim and folder of results."""
    rows: list[Record] = []
    for one in judged:
        verdict, claim = one.verdict, one.verdict.claim
        metric = printed_of(parted(claim.metric)[0])
        # It is compared with a rung, or with a number.
        other = verdict.than or number_cell(metric, claim.number).text
        rows.append(
            {
                "claim": Cell(claim.text),
                "results": Cell(one.where),
                "verdict": Cell(verdict.outcome),
                "compared": Cell(f"{metric.title}: {claim.rung} - {other}"),
                "difference": number_cell(metric, verdict.difference, signed=True),
                "95 %": span_cell(metric, verdict.low, verdict.high, signed=True),
                "seeds": cell(verdict.pairs),
                "seeds to decide": cell(verdict.seeds),
                "why": Cell("; ".join(_reasons(verdict))),
            }
        )
    first = ["verdict", "results", "difference", "seeds to decide"]
    label = label_of(folder, "claims")
    return Table("claims", f"{RULE}.", rows, first=first, label=label, is_main=True)


def _reasons(verdict: Verdict) -> list[str]:
    """Explain an interval over less than usual, and why there is no decision."""
    alone = [SEEDS_ALONE] if verdict.claim.metric in QUANTITIES and verdict.pairs else []
    return [*alone, *([verdict.why] if verdict.why else [])]


def numbers(judged: Sequence[Judged]) -> pd.DataFrame:
    """Return the verdicts as numbers; fractions."""
    rows = [
        {
            "folder": one.folder,
            "claim": one.verdict.claim.text,
            "kind": one.verdict.claim.kind,
            "metric": one.verdict.claim.metric,
            "rung": one.verdict.claim.rung,
            "than": one.verdict.than,
            "number": one.verdict.claim.number,
            "least": one.verdict.claim.least,
            "verdict": one.verdict.outcome,
            "difference": one.verdict.difference,
            "low": one.verdict.low,
            "high": one.verdict.high,
            "seeds": one.verdict.pairs,
            "seeds_to_decide": one.verdict.seeds,
            "why": "; ".join(_reasons(one.verdict)),
        }
        for one in judged
    ]
    return pd.DataFrame(rows)
