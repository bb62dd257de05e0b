"""The verdicts on the claims of a table as rows: in words for a reader, as numbers for others."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.compare.claims import Verdict
from analysis.text import Cell, Record, cell, number_cell, span_cell
from analysis.tidy import parted
from tune_calib.console import Table
from tune_calib.names import METRICS


@dataclass(frozen=True)
class Judged:
    """A verdict, and the folder and setting whose results it is of."""

    folder: str
    where: str
    verdict: Verdict


def records(judged: Sequence[Judged]) -> list[Record]:
    """A row a claim and folder."""
    rows = []
    for one in judged:
        verdict, claim = one.verdict, one.verdict.claim
        metric, _ = parted(claim.metric)
        rows.append(
            {
                "claim": Cell(claim.text),
                "results": Cell(one.where),
                "verdict": Cell(verdict.outcome),
                "compared": Cell(f"{METRICS[metric].title}: {claim.rung} - {verdict.than}"),
                "difference": number_cell(metric, verdict.difference, signed=True),
                "95 %": span_cell(metric, verdict.low, verdict.high, signed=True),
                "seeds": cell(verdict.pairs),
                "seeds to decide": cell(verdict.seeds),
                "why": Cell(verdict.why),
            }
        )
    return rows


def csv(judged: Sequence[Judged]) -> str:
    """The same as numbers; fractions."""
    rows = [
        {
            "folder": one.folder,
            "claim": one.verdict.claim.text,
            "kind": one.verdict.claim.kind,
            "metric": one.verdict.claim.metric,
            "rung": one.verdict.claim.rung,
            "than": one.verdict.than,
            "least": one.verdict.claim.least,
            "verdict": one.verdict.outcome,
            "difference": one.verdict.difference,
            "low": one.verdict.low,
            "high": one.verdict.high,
            "seeds": one.verdict.pairs,
            "seeds_to_decide": one.verdict.seeds,
            "why": one.verdict.why,
        }
        for one in judged
    ]
    return pd.DataFrame(rows).to_csv(index=False)


def printed(judged: Sequence[Judged]) -> Table:
    """For a terminal."""
    heads = ["verdict", "claim", "results", "difference", "seeds to decide"]
    rows = records(judged)
    return Table(heads, [[row[head].text for head in heads] for row in rows], is_main=True)
