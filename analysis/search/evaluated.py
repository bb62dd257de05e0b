"""The look at the test split, as the page of its search tells it."""

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from analysis.load import Sweep, load
from analysis.page.page import Link
from analysis.search.load import SearchResults
from analysis.tables.table import Table
from analysis.text import Cell, Record, capital, cell, number_cell, title
from tune_calib.results.manifests import SWEEP_MANIFEST
from tune_calib.results.selection import (
    BASELINE,
    CHOSEN,
    DEFAULTS,
    EVALUATION,
    OPTIMISM,
    of_reads,
    seen,
)
from tune_calib.spec.names import legend, signed


@dataclass(frozen=True)
class Evaluated:
    """What the page of a search says of its look at test; nothing before there is one."""

    links: tuple[Link, ...] = ()
    texts: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


def evaluated(search: SearchResults) -> Evaluated:
    """What the page of a search says of its look at test.

    Raises:
        DamagedFileError: a file of it is half-written or foreign.
    """
    folder = search.out / EVALUATION
    if not (folder / SWEEP_MANIFEST).exists():
        return Evaluated()
    sweep = load(folder)
    links = (Link("The evaluation on test", f"{EVALUATION}/report.html"),)
    texts = tuple(f"{capital(of_reads(reads))}." for reads in [search.reads] if reads)
    if not (records := _records(search, sweep)):
        return Evaluated(links, (*texts, "No trial of it has ended."))
    note = f"{capital(OPTIMISM)} ± is the standard deviation over the seeds."
    note += "".join(f" {line}." for line in legend(sweep.flags()))
    return Evaluated(links, texts, (Table("on-test-rows", note, records),))


def _records(search: SearchResults, sweep: Sweep) -> list[Record]:
    fresh: list[Any] = sweep.trials.to_dict("records")
    rows = []
    for each in seen(fresh, _believed(search), search.metrics):
        flags = [row["flags"] for row in fresh if row["rung_label"] == each.label]
        spread = stdev(each.test) if len(each.test) > 1 else float("nan")
        rows.append(
            {
                "rung": Cell(signed(each.label, flags)),
                "metric": Cell(title(each.metric)),
                "select, searched": number_cell(each.metric, each.searched),
                "select, fresh seeds": number_cell(each.metric, each.fresh),
                "test, fresh seeds": number_cell(each.metric, fmean(each.test), spread),
                "seeds": cell(len(each.test)),
                "optimism": number_cell(each.metric, each.optimism, signed=True),
            }
        )
    return rows


def _believed(search: SearchResults) -> dict[str, list[Any]]:
    """Rows of the search behind each rung of the look."""
    trials = search.trials
    specs = {entry.number: entry.specs for entry in search.outcome.suggestions}
    found: dict[str, list[Any]] = {BASELINE: trials[trials["rung"] < 0].to_dict("records")}
    # The first suggestion of a search is always the method's own settings.
    for label, number in ((DEFAULTS, 0), (CHOSEN, search.chosen)):
        own: Any = trials["spec_hash"].isin(specs.get(number, [])) if number is not None else []
        found[label] = trials[own].to_dict("records") if len(own) else []
    return found
