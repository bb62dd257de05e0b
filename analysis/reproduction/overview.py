"""Pages on ``tune-calib reproduce``: each claim with its verdict, each table with a figure."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import get_args

import pandas as pd

from analysis.compare.claims import Outcome
from analysis.compare.network_check import (
    base_rows,
    compute_network_check,
    measure_views,
    name_of,
)
from analysis.figure import LADDER_FIGURES
from analysis.ladder.tables import equal_rungs
from analysis.load import Run
from analysis.published import titled
from analysis.reproduction import tables
from analysis.reproduction.files import Made, has_frozen_networks, read_made, uses_part_of_train
from analysis.reproduction.tables import VerdictRow
from analysis.tables.render import body
from analysis.tables.table import table_of
from analysis.text import capital
from tune_calib.console import printable
from tune_calib.files.paths import AnyPath, atomic_write
from tune_calib.results.folders import read_lock
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.reproduction import REPRODUCTIONS, Claim, Reproduction

PAGE = "claims.md"
TABLES_PAGE = "claims-tables.md"

PAPERS = {
    "maccal": "MaC-Cal (arXiv 2508.09116)",
    "fedlas": "FeDLaS (ECCV 2026)",
    "tst": "TST and V-TST (arXiv 2405.01196)",
}

_OUTCOMES = get_args(Outcome)
# Kinds of networks on which claims are judged, and how the claims judged on none better are listed.
_KINDS = {
    "all images": "On networks trained on all training images, as in the papers:",
    "all images, not fitting the heads' views": (
        f"Judged only on heads whose views the networks do not fit ({tables.MISFIT}), unlike the "
        "papers':"
    ),
    "a part of them": (
        "Judged only on networks trained on a part of the training images, which are far less "
        "accurate than the papers':"
    ),
}
_SUMMARY = {
    "held": "Held wherever decided",
    "not held": "Not held wherever decided",
    "mixed": "Held on some networks or data sets and not on others",
    "not decided": "Not decided",
    "no verdict": (
        "No verdict: a base is under-confident, unlike in the papers, or a quantity has no value"
    ),
}
_NETWORK_HEADS = (
    "network", "trained on", "test accuracy (%)", "train accuracy (%)",
    "head's views (%)", "confidence - accuracy (points)", "networks",
)  # fmt: skip

Pictured = Callable[[Made, Run, str], str | None]
"""Return the path of a figure of some results by its name; None if it was not drawn."""


def read_all(out: AnyPath) -> list[Made]:
    """Read all reproduced tables in a folder, sorted by name."""
    results = []
    for name in sorted(REPRODUCTIONS):
        table = REPRODUCTIONS[name]
        if lock := read_lock(out / table.folder):
            entries, command = lock.get("runs", {}), str(lock.get("command", ""))
            made = read_made(table, out / table.folder, entries, command)
            if made.runs:
                results.append(made)
    # Not every table has unmasked heads on its networks.
    views: dict[str, float] = {}
    for _, run in chain.from_iterable(made.runs for made in results):
        views |= measure_views(run)
    for index, made in enumerate(results):
        runs = [(entry, replace(run, views=views)) for entry, run in made.runs]
        results[index] = replace(made, runs=runs)
    return results


def write_overview(out: AnyPath) -> AnyPath:
    """Write ``claims.md`` and ``claims-tables.md`` into a folder of reproduced tables."""

    def pictured(made: Made, run: Run, name: str) -> str | None:
        file = f"{made.table.folder}/{run.out.name}/figures/{name}.png"
        return file if (out / file).exists() else None

    results = read_all(out)
    atomic_write(out / TABLES_PAGE, printable(describe_tables(results, pictured)).encode())
    atomic_write(out / PAGE, printable(overview(results)).encode())
    return out / PAGE


def overview(results: Sequence[Made]) -> str:
    """Return the page of claims as Markdown: base networks, then a section per paper."""
    papers = defaultdict[str, list[Made]](list)
    for made in results:
        papers[made.table.name.partition("/")[0]].append(made)
    parts = [
        "# The papers' claims and the verdicts on them",
        f"{tables.RULE}. Differences of fractions are in percentage points. Verdicts are not "
        "corrected for the number of claims, so some of them are due to chance. Verdicts "
        "in parentheses are on parts of a mean, for information. A comparison that two tables make "
        "on the same trials counts once. The numbers are on the page of "
        f"[tables]({TABLES_PAGE}).",
        body(table_of(["paper", "networks trained on", *_OUTCOMES], _count_outcomes(papers))),
        "## Base networks",
        body(table_of(_NETWORK_HEADS, _networks(results))),
    ]
    for name, tables_of_paper in papers.items():
        parts += _paper(name, tables_of_paper)
    rows = []
    run_tables = {result.table.name for result in results}
    for reproduction in REPRODUCTIONS.values():
        if reproduction.name not in run_tables:
            rows.append([reproduction.name, reproduction.title, ", ".join(reproduction.scales)])
    if rows:
        parts += ["## Not run", body(table_of(["table", "title", "scales"], rows))]
    return "\n\n".join(parts) + "\n"


def _count_outcomes(papers: Mapping[str, Sequence[Made]]) -> list[list[str]]:
    """Return a row per paper and kind of networks, with the number of verdicts by outcome."""
    rows = []
    for name, results in papers.items():
        verdicts = _distinct(tables.counted(_verdict_rows(results)))
        counts = Counter((_kind_of(row), row.verdict.outcome) for row in verdicts)
        for kind in _KINDS:
            numbers = [counts[kind, outcome] for outcome in _OUTCOMES]
            if any(numbers):
                rows.append([PAPERS.get(name, name), kind, *map(str, numbers)])
    return rows


def _kind_of(row: VerdictRow) -> str:
    """Return the kind of networks that a verdict is on."""
    like_papers, without_views, reduced = _KINDS
    if row.is_reduced:
        return reduced
    return without_views if row.misfits_views else like_papers


def _verdict_rows(results: Iterable[Made]) -> list[VerdictRow]:
    return list(chain.from_iterable(result.verdict_rows for result in results))


def _distinct(rows: Iterable[VerdictRow]) -> list[VerdictRow]:
    """Return the verdicts, but only one of those on equal numbers of the same networks."""
    distinct: dict[object, VerdictRow] = {}
    for row in rows:
        verdict = row.verdict
        pairs = sum(len(comparison.others) for comparison in verdict.claim.comparisons)
        key: object = (
            row.where, verdict.outcome, verdict.comparison.metric, pairs, verdict.difference,
            verdict.low, verdict.high,
        )  # fmt: skip
        if math.isnan(verdict.difference):
            key = id(row)
        distinct.setdefault(key, row)
    return list(distinct.values())


def _networks(results: Sequence[Made]) -> list[list[str]]:
    """Return a row per kind of base network, those trained on all images first."""
    frames = defaultdict[tuple[bool, str], list[pd.DataFrame]](list)
    for made in results:
        for _, run in made.runs:
            rows = base_rows(run)
            rows = rows.assign(views=rows["network_id"].astype(str).map(dict(run.views)))
            frames[uses_part_of_train(run), name_of(run)].append(rows)
    records = []
    columns = ["network_id", "test/accuracy", "train/accuracy", "views", "test/confidence_gap"]
    kinds = {False: next(iter(_KINDS)), True: list(_KINDS)[-1]}
    for is_reduced, name in sorted(frames, key=itemgetter(0)):
        # Imported networks have no accuracy on train.
        networks = pd.concat(frames[is_reduced, name]).reindex(columns=columns)
        networks = networks.drop_duplicates("network_id")
        *accuracies, gap = networks[columns[1:]].astype(float).mean()
        numbers = list(map(METRICS["accuracy"].format, accuracies))
        numbers += [METRICS["confidence_gap"].format(gap, signed=True), str(len(networks))]
        records.append([titled(name.split()), kinds[is_reduced], *numbers])
    return records


def _paper(name: str, results: Sequence[Made]) -> list[str]:
    """Return the section of a paper: a summary of the verdicts, then a row per claim."""
    kinds = list(_KINDS)
    verdicts = sorted(_verdict_rows(results), key=attrgetter("is_reduced"))
    networks = list(dict.fromkeys(row.where for row in verdicts))
    records = []
    # Claims by the kind of networks that is most like the papers', and by outcome.
    claims = {kind: defaultdict[str, list[Claim]](list) for kind in kinds}
    for table, of_table in _by_table(results):
        verdicts = _verdict_rows(of_table)
        for claim in table.claims:
            of_claim = [row for row in verdicts if row.verdict.claim is claim]
            if not of_claim:
                continue
            texts = {row.where: _describe_verdict(row) for row in of_claim}
            link = f"[{table.name}]({TABLES_PAGE}#{table.name.replace('/', '')})"
            printed = next((row.printed for row in of_claim if row.printed), "")
            cells = [texts.get(network, "") for network in networks]
            records.append([tables.title_of(claim), link, *cells, printed])
            counting = tables.counted(of_claim)
            best = min(map(_kind_of, counting), key=kinds.index)
            of_best = [row for row in counting if _kind_of(row) == best]
            claims[best][_summarize(of_best)].append(claim)
    parts = [f"## {PAPERS.get(name, name)}"]
    for kind, claims_by_outcome in claims.items():
        if claims_by_outcome:
            parts += [_KINDS[kind], _list(claims_by_outcome)]
    titles = [titled(network.split()) for network in networks]
    return [*parts, body(table_of(["claim", "table", *titles, "paper"], records))]


def _by_table(results: Iterable[Made]) -> Iterator[tuple[Reproduction, list[Made]]]:
    """Yield each table with its results, which may be of several scales."""
    for _, group in groupby(results, attrgetter("table.name")):
        of_table = list(group)
        yield of_table[0].table, of_table


def _summarize(rows: Sequence[VerdictRow]) -> str:
    """Return the outcome of a claim on all networks; ``mixed`` if decided verdicts differ."""
    outcomes: set[str] = {row.verdict.outcome for row in rows}
    outcomes = outcomes.intersection(tables.DECIDED) or outcomes
    return outcomes.pop() if len(outcomes) == 1 else "mixed"


def _list(claims: Mapping[str, Sequence[Claim]]) -> str:
    """Return a list with an item for each outcome: the paper's claims, then ours."""
    items = []
    for outcome, title in _SUMMARY.items():
        for is_ours, suffix in ((False, ""), (True, ", not in the paper")):
            texts = [claim.text for claim in claims.get(outcome, ()) if claim.is_ours == is_ours]
            if texts:
                items.append(f"- **{title}{suffix}.** {'; '.join(texts)}.")
    return "\n".join(items)


def describe_tables(results: Sequence[Made], pictured: Pictured) -> str:
    """Return the page of tables as Markdown; ``pictured`` returns the paths of figures."""
    parts = [
        "# The papers' tables, reproduced",
        f"Our results next to the published ones. The page of [claims]({PAGE}) has the verdicts. "
        "A command is that of its run; add `--data-root` where it lacks one.",
    ]
    for table, of_table in _by_table(results):
        parts += [f"## {table.name}", f"{table.title}. {table.note}".rstrip()]
        for made in of_table:
            parts += _scale(made, pictured)
        if rows := _verdict_rows(of_table):
            parts += ["Verdicts:", body(tables.claims_table("", rows))]
    return "\n\n".join(parts) + "\n"


def _describe_verdict(row: VerdictRow) -> str:
    (cells,) = tables.claims_table("", [row]).records
    outcome = row.outcome
    if row.verdict.outcome in tables.DECIDED and not row.is_part:
        outcome = f"**{outcome}**"
    if cells["95 %"].is_blank:
        return outcome
    verdict = row.verdict
    # A part of a claim may be on another metric than the claim.
    if verdict.comparison.metric != verdict.claim.metric:
        outcome += f" {verdict.comparison.metric}"
    interval = cells["95 %"].text
    if verdict.seeds:
        interval += f"; {verdict.seeds} seeds"
    return f"{outcome} {cells['difference'].text} ({interval})"


def _scale(made: Made, pictured: Pictured) -> list[str]:
    """Return the part of a table's section on one scale: command, networks, numbers, figures."""
    commands = made.command.replace(" && ", "\n")
    parts = [f"```\n{commands}\n```"]
    for entry, run in made.runs:
        network = titled(name_of(run).split())
        frame = tables.compare_with_print(made.table, entry, run)
        sentences = [compute_network_check(run).sentence]
        # Two rows of one method may differ in the training of its heads.
        for setting in run.manifest.setting.split("; "):
            if setting.startswith("heads "):
                sentences.append(capital(setting))
        sentences += filter(None, [tables.paper_of(frame), equal_rungs(run)])
        comparison = body(tables.printed_table("", "", frame))
        parts += [f"**{network}**. {'. '.join(sentences)}.", comparison]
        if has_frozen_networks(run):
            continue
        for name in made.table.figures[:1]:
            if path := pictured(made, run, name):
                parts.append(f"![{LADDER_FIGURES[name].title}, {network}]({path})")
    return parts
