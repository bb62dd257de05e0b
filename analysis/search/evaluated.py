"""The look at the test split, as the page of its search tells it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from statistics import fmean, stdev
from typing import Any

from analysis.load import load
from analysis.page.page import Link
from analysis.search.load import SearchResults
from analysis.tables.table import Table, table_of
from analysis.text import capital, unit_cell
from tune_calib.results.manifests import SWEEP_MANIFEST
from tune_calib.results.selection import (
    BASELINE,
    CHOSEN,
    DEFAULTS,
    EVALUATION,
    OPTIMISM,
    Row,
    of_reads,
    seen,
)
from tune_calib.spec.metrics import METRICS
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
    trials: list[Any] = sweep.trials.to_dict("records")
    table = optimism(trials, _believed(search), search.metrics)
    if not table.records:
        return Evaluated(links, (*texts, "No trial of it has ended."))
    note = f"{capital(OPTIMISM)} ± is the standard deviation over the seeds."
    note += "".join(f" {line}." for line in legend(sweep.flags()))
    return Evaluated(links, texts, (replace(table, key="on-test-rows", caption=note),))


def optimism(trials: Sequence[Row], believed: Mapping[str, Sequence[Row]],
             metrics: Sequence[str]) -> Table:  # fmt: skip
    """How much better the search looked on ``select`` than it is on ``test``.

    Positive is better on ``select``, whether a smaller or a larger value of the metric is better.

    Args:
        trials: rows of the look at test.
        believed: rows of the search by rung.
        metrics: that were searched for.
    """
    rows = []
    for each in seen(trials, believed, metrics):
        own = [row for row in trials if row["rung_label"] == each.label]
        flags = [row.get("flags") for row in [*believed[each.label], *own]]
        spread = stdev(each.test) if len(each.test) > 1 else nan
        rows.append([
            signed(each.label, flags),
            METRICS[each.metric].title,
            unit_cell(each.metric, each.searched),
            unit_cell(each.metric, each.fresh),
            unit_cell(each.metric, fmean(each.test), spread),
            unit_cell(each.metric, each.optimism),
        ])  # fmt: skip
    heads = ["", "metric", "select, searched", "select, fresh", "test, fresh", "optimism"]
    return table_of(heads, rows)


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
