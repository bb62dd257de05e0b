"""The verdicts on the claims of a table as rows: in words for a reader, as numbers for others."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.compare.claims import Verdict
from analysis.reproduction.quantities import QUANTITIES, head, interval_cell, value_cell
from analysis.text import Cell, Record, cell
from analysis.tidy import parted
from tune_calib.console import Table
from tune_calib.spec.metrics import METRICS

SEEDS_ALONE = "over seeds alone"


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
                "compared": Cell(f"{_named(metric)}: {claim.rung} - {_other(verdict)}"),
                "difference": value_cell(metric, verdict.difference, signed=True),
                "95 %": interval_cell(metric, verdict.low, verdict.high),
                "seeds": cell(verdict.pairs),
                "seeds to decide": cell(verdict.seeds),
                "why": Cell("; ".join(_reasons(verdict))),
            }
        )
    return rows


def _named(metric: str) -> str:
    return METRICS[metric].title if metric in METRICS else head(metric)


def _other(verdict: Verdict) -> str:
    """What it is compared with: a rung, or a number."""
    claim = verdict.claim
    return verdict.than or value_cell(parted(claim.metric)[0], claim.number).text


def _reasons(verdict: Verdict) -> list[str]:
    """What its interval is over where that is less than usual, and why there is no decision."""
    alone = [SEEDS_ALONE] if verdict.claim.metric in QUANTITIES and verdict.pairs else []
    return [*alone, *([verdict.why] if verdict.why else [])]


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
    return pd.DataFrame(rows).to_csv(index=False)


def printed(judged: Sequence[Judged]) -> Table:
    """For a terminal."""
    heads = ["verdict", "claim", "results", "difference", "seeds to decide"]
    rows = records(judged)
    return Table(heads, [[row[head].text for head in heads] for row in rows], is_main=True)
