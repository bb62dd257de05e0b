"""Pages on ``tune-calib reproduce``: each claim with its verdict, each table with a figure."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, product
from typing import get_args

import pandas as pd

from analysis.compare.claims import Outcome
from analysis.compare.network_check import base_rows, compute_network_check, name_of
from analysis.figure import LADDER_FIGURES
from analysis.ladder.tables import equal_rungs
from analysis.load import Sweep
from analysis.published import titled
from analysis.reproduction.files import (
    Made,
    has_frozen_networks,
    read_made,
    uses_part_of_train,
)
from analysis.reproduction.tables import (
    RULE,
    Judged,
    claims_table,
    compare_with_print,
    paper_of,
    printed_table,
    title_of,
)
from analysis.tables.render import body
from analysis.tables.table import table_of
from tune_calib.console import printable
from tune_calib.paths import AnyPath, atomic_write
from tune_calib.results.folders import read_lock
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.reproduction import REPRODUCTIONS, Claim

PAGE = "claims.md"
TABLES_PAGE = "claims-tables.md"

PAPERS = {
    "maccal": "MaC-Cal (arXiv 2508.09116)",
    "fedlas": "FeDLaS (ECCV 2026)",
    "tst": "TST and V-TST (arXiv 2405.01196)",
}

_OUTCOMES = get_args(Outcome)
_SUMMARY = {
    "held": "Held wherever decided",
    "not held": "Not held wherever decided",
    "mixed": "Held on some networks or data sets and not on others",
    "not decided": "Not decided",
    "no verdict": "No verdict: the base network is not over-confident, or a quantity has no value",
}
_IMAGES = {False: "all images", True: "a part of them"}
_NETWORK_HEADS = (
    "network", "trained on", "test accuracy (%)", "train accuracy (%)",
    "confidence - accuracy (points)", "networks",
)  # fmt: skip

Pictured = Callable[[Made, Sweep, str], str | None]
"""Return the path of a figure of some results by its name; None if it was not drawn."""


def read_all(out: AnyPath) -> list[Made]:
    """Read all reproduced tables in a folder, sorted by name."""
    found = []
    for name in sorted(REPRODUCTIONS):
        table = REPRODUCTIONS[name]
        if lock := read_lock(out / table.folder):
            runs, command = lock.get("runs", {}), str(lock.get("command", ""))
            made = read_made(table, out / table.folder, runs, command)
            found += [made] if made.sweeps else []
    return found


def write_overview(out: AnyPath) -> AnyPath:
    """Write ``claims.md`` and ``claims-tables.md`` into a folder of reproduced tables."""

    def pictured(made: Made, sweep: Sweep, name: str) -> str | None:
        file = f"{made.table.folder}/{sweep.out.name}/figures/{name}.png"
        return file if (out / file).exists() else None

    tables = read_all(out)
    atomic_write(out / TABLES_PAGE, printable(describe_tables(tables, pictured)).encode())
    atomic_write(out / PAGE, printable(overview(tables)).encode())
    return out / PAGE


def overview(tables: Sequence[Made]) -> str:
    """Return the page of claims as Markdown: base networks, then a section per paper."""
    papers: dict[str, list[Made]] = {}
    for own in tables:
        papers.setdefault(own.table.name.partition("/")[0], []).append(own)
    absent = [REPRODUCTIONS[name] for name in sorted(REPRODUCTIONS)
              if name not in {own.table.name for own in tables}]  # fmt: skip
    rows = [[table.name, table.title, ", ".join(table.scales)] for table in absent]
    counts = []
    for (name, of_paper), (is_reduced, images) in product(papers.items(), _IMAGES.items()):
        judged = _distinct(one for own in of_paper for one in own.judged if not one.is_part)
        counted = Counter[str](o.verdict.outcome for o in judged if o.is_reduced == is_reduced)
        if counted:
            numbers = [str(counted[each]) for each in _OUTCOMES]
            counts.append([PAPERS.get(name, name), images, *numbers])
    parts = [
        "# The papers' claims and the verdicts on them",
        f"{RULE}. Differences of fractions are in percentage points. Verdicts are not "
        "corrected for the number of claims, so some of them are due to chance. Verdicts "
        "in parentheses are on parts of a mean, for information. A comparison that two tables make "
        "on the same trials counts once. The numbers are on the page of "
        f"[tables]({TABLES_PAGE}).",
        body(table_of(["paper", "networks trained on", *_OUTCOMES], counts)),
        "## Base networks",
        body(table_of(_NETWORK_HEADS, _networks(tables))),
        *(part for name, own in papers.items() for part in _paper(name, own)),
        *(["## Not run", body(table_of(["table", "title", "scales"], rows))] if absent else []),
    ]
    return "\n\n".join(parts) + "\n"


def _distinct(judged: Iterable[Judged]) -> list[Judged]:
    """Return the verdicts, but only one of those on equal numbers of the same networks."""
    found: dict[object, Judged] = {}
    for one in judged:
        own = one.verdict
        pairs = sum(len(part.others) for part in own.claim.comparisons)
        numbers = own.difference, own.low, own.high
        key = (one.where, own.outcome, own.comparison.metric, pairs, *numbers)
        found.setdefault(id(one) if math.isnan(own.low) else key, one)
    return list(found.values())


def _networks(tables: Sequence[Made]) -> list[list[str]]:
    """Return a row per kind of base network: accuracy on test and train, and over-confidence.

    Networks trained on all images come first, as in the tables of claims.
    """
    found: dict[tuple[bool, str], list[pd.DataFrame]] = {}
    for own in tables:
        for _, sweep in own.sweeps:
            key = uses_part_of_train(sweep), name_of(sweep)
            found.setdefault(key, []).append(base_rows(sweep))
    rows = []
    for (is_reduced, name), parts in sorted(found.items(), key=lambda own: own[0][0]):
        columns = ["network_id", "test/accuracy", "train/accuracy", "test/confidence_gap"]
        # Rows of earlier versions may lack some.
        networks = pd.concat(parts).reindex(columns=columns).drop_duplicates("network_id")
        mean = networks[columns[1:]].mean()
        shown = [METRICS["accuracy"].format(value) for value in mean.iloc[:2]]
        gap = METRICS["confidence_gap"].format(mean.iloc[2], signed=True)
        rows.append([titled(name.split()), _IMAGES[is_reduced], *shown, gap, str(len(networks))])
    return rows


def _paper(name: str, tables: Sequence[Made]) -> list[str]:
    """Return the section of a paper: a summary of the verdicts, then a row per claim.

    The summary is of networks trained on all training images, as in the papers, and names apart
    the claims that were judged on others only.
    """
    of_paper = sorted((one for own in tables for one in own.judged), key=lambda one: one.is_reduced)
    where = list(dict.fromkeys(one.where for one in of_paper))
    rows, summary, reduced = [], dict[str, list[Claim]](), dict[str, list[Claim]]()
    for _, of_table in groupby(tables, lambda own: own.table.name):
        scales = list(of_table)
        table = scales[0].table
        for claim in table.claims:
            every = (one for own in scales for one in own.judged)
            of_claim = [one for one in every if one.verdict.claim is claim]
            if not of_claim:
                continue
            found = {one.where: _verdict_text(one) for one in of_claim}
            link = f"[{table.name}]({TABLES_PAGE}#{table.name.replace('/', '')})"
            paper = next((one.printed for one in of_claim if one.printed), "")
            rows.append([title_of(claim), link, *(found.get(each, "") for each in where),
                         paper])  # fmt: skip
            whole = [one for one in of_claim if not (one.is_part or one.is_reduced)]
            shown = whole or [one for one in of_claim if not one.is_part]
            outcomes = {one.verdict.outcome for one in shown}
            outcomes = outcomes & {"held", "not held"} or outcomes
            key = next(iter(outcomes)) if len(outcomes) == 1 else "mixed"
            (summary if whole else reduced).setdefault(key, []).append(claim)
    heads = ["claim", "table", *(titled(each.split()) for each in where), "paper"]
    parts = [f"## {PAPERS.get(name, name)}"]
    if summary:
        parts += ["On networks trained on all training images, as in the papers:", _list(summary)]
    if reduced:
        parts += ["Judged only on networks trained on a part of the training images, which are far "
                  "less accurate than the papers':", _list(reduced)]  # fmt: skip
    return [*parts, body(table_of(heads, rows))]


def _list(claims: Mapping[str, Sequence[Claim]]) -> str:
    """Return a list with an item for each outcome: the paper's claims, then ours."""
    items = []
    for outcome, words in _SUMMARY.items():
        for is_ours in (False, True):
            texts = [own.text for own in claims.get(outcome, ()) if own.is_ours == is_ours]
            start = f"{words}, not in the paper" if is_ours else words
            items += [f"- **{start}.** {'; '.join(texts)}."] if texts else []
    return "\n".join(items)


def describe_tables(tables: Sequence[Made], pictured: Pictured) -> str:
    """Return the page of tables as Markdown; ``pictured`` returns the paths of figures."""
    parts = [
        "# The papers' tables, reproduced",
        f"Our results next to the published ones. The page of [claims]({PAGE}) has the verdicts.",
    ]
    for name, of_table in groupby(tables, lambda own: own.table.name):
        scales = list(of_table)
        parts += [f"## {name}", f"{scales[0].table.title}. {scales[0].table.note}".rstrip()]
        parts += [part for own in scales for part in _scale(own, pictured)]
        if judged := [one for own in scales for one in own.judged]:
            parts += ["Verdicts:", body(claims_table("", judged))]
    return "\n\n".join(parts) + "\n"


def _verdict_text(one: Judged) -> str:
    """Describe a verdict with its difference and interval."""
    (row,) = claims_table("", [one]).records
    outcome = one.verdict.outcome
    words = f"**{outcome}**" if outcome in ("held", "not held") else outcome
    words = f"({outcome})" if one.is_part else words
    if row["95 %"].is_blank:
        return words
    more = f"; {one.verdict.seeds} seeds" if one.verdict.seeds else ""
    # A part of a claim may be on another metric than the claim.
    part = one.verdict.comparison.metric
    name = f" {part}" if part != one.verdict.claim.metric else ""
    return f"{words}{name} {row['difference'].text} ({row['95 %'].text}{more})"


def _scale(own: Made, pictured: Pictured) -> list[str]:
    """Return the part of a table's section on one scale: command, networks, numbers, figures."""
    commands = own.command.replace(" && ", "\n")
    parts = [f"```\n{commands}\n```"]
    for run, sweep in own.sweeps:
        network = titled(name_of(sweep).split())
        frame = compare_with_print(own.table, run, sweep)
        # Two rows of one method may differ in the training of its heads.
        sentences = [
            f"H{part[1:]}" for part in sweep.manifest.setting.split("; ") if part[:6] == "heads "
        ]
        sentences += [text for text in (paper_of(frame), equal_rungs(sweep)) if text]
        parts += [
            f"**{network}**. {'. '.join([compute_network_check(sweep).sentence, *sentences])}.",
            body(printed_table("", "", frame)),
        ]
        for name in own.table.figures[:1] if not has_frozen_networks(sweep) else ():
            if path := pictured(own, sweep, name):
                parts.append(f"![{LADDER_FIGURES[name].title}, {network}]({path})")
    return parts
