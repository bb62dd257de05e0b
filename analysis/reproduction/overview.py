"""Pages on ``tune-calib reproduce``: each claim with its verdict, each table with a figure."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import get_args

import pandas as pd

from analysis.compare.claims import Outcome
from analysis.compare.network_check import base_rows, compute_network_check, measure_views, name_of
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
from tune_calib.spec.reproduction import REPRODUCTIONS

PAGE = "claims.md"
TABLES_PAGE = "claims-tables.md"

PAPERS = {
    "maccal": "MaC-Cal (arXiv 2508.09116)",
    "fedlas": "FeDLaS (ECCV 2026)",
    "tst": "TST and V-TST (arXiv 2405.01196)",
    "iop": "Order-preserving maps (arXiv 2003.06820)",
    "tva": "Top-versus-all (NeurIPS 2024)",
    "hcalibration": "h-calibration's comparison (arXiv 2506.17968)",
}

_OUTCOMES = get_args(Outcome)
_ALL, _REDUCED = "all images", "a part of them"
_NETWORK_HEADS = (
    "network", "trained on", "test accuracy (%)", "train accuracy (%)",
    "head's views (%)", "confidence - accuracy (points)", "networks",
)  # fmt: skip
_HEAD_SETTINGS = {
    "method": "method",
    "lr": "rate",
    "loss_reduction": "loss",
    "batch_size": "batch",
    "weight_decay": "weight decay",
    "epochs": "epochs",
    "select": "epoch kept",
    "augment": "augmentation",
}

Pictured = Callable[[Made, Run, str], str | None]
"""Return the path of a figure of some results by its name; None if it was not drawn."""


def read_all(out: AnyPath) -> list[Made]:
    results = []
    for table in sorted(REPRODUCTIONS.values(), key=attrgetter("name")):
        lock = read_lock(out / table.folder)
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
    papers = defaultdict[str, list[Made]](list)
    for made in results:
        paper = made.table.name.partition("/")[0]
        papers[PAPERS.get(paper, paper)].append(made)
    parts = [
        "# The papers' claims and the verdicts on them",
        f"{tables.RULE}. Differences of fractions are in percentage points. Verdicts are not "
        "corrected for the number of claims, so some of them are due to chance. Verdicts "
        "in parentheses are for information: on parts of a mean, or on a claim that names one "
        "network, judged elsewhere. The counts leave them out, and claims that are not in the "
        "paper. A comparison that two tables make on the same trials counts once. The numbers are "
        f"on the page of [tables]({TABLES_PAGE}).",
        body(table_of(["paper", "networks trained on", *_OUTCOMES], _count_outcomes(papers))),
        "## Base networks",
        body(table_of(_NETWORK_HEADS, _networks(results))),
    ]
    for name, tables_of_paper in papers.items():
        parts += [f"## {name}", _claims(tables_of_paper)]
        if heads := _heads(tables_of_paper):
            names = ["heads on", *_HEAD_SETTINGS.values(), "tables"]
            parts.append(body(table_of(names, heads)))
    run_tables = {result.table.name for result in results}
    absent = [table for table in REPRODUCTIONS.values() if table.name not in run_tables]
    if rows := [[table.name, table.title, ", ".join(table.scales)] for table in absent]:
        parts += ["## Not run", body(table_of(["table", "title", "scales"], rows))]
    return "\n\n".join(parts) + "\n"


def _count_outcomes(papers: Mapping[str, Sequence[Made]]) -> list[list[str]]:
    rows = []
    for name, results in papers.items():
        counts = defaultdict[str, Counter[str]](Counter)
        distinct: dict[object, VerdictRow] = {}
        for row in _verdict_rows(results):
            if not row.is_counted:
                continue
            verdict = row.verdict
            pairs = sum(len(comparison.others) for comparison in verdict.claim.comparisons)
            numbers = verdict.difference, verdict.low, verdict.high
            key: object = (row.where, verdict.outcome, verdict.comparison.metric, pairs, numbers)
            # Only one of the verdicts on equal numbers of the same networks.
            distinct.setdefault(id(row) if math.isnan(verdict.difference) else key, row)
        for row in distinct.values():
            kind = _REDUCED if row.is_reduced else _ALL
            if row.misfits_views and not row.is_reduced:
                kind = f"{_ALL}, not fitting the heads' views ({tables.MISFIT})"
            counts[kind][row.verdict.outcome] += 1
        for kind in sorted(counts):
            rows.append([name, kind, *(str(counts[kind][outcome]) for outcome in _OUTCOMES)])
    return rows


def _verdict_rows(results: Iterable[Made]) -> list[VerdictRow]:
    return list(chain.from_iterable(result.verdict_rows for result in results))


def _networks(results: Sequence[Made]) -> list[list[str]]:
    frames = defaultdict[tuple[str, str], list[pd.DataFrame]](list)
    for made in results:
        for _, run in made.runs:
            rows = base_rows(run)
            rows = rows.assign(views=rows["network_id"].astype(str).map(dict(run.views)))
            images = _REDUCED if uses_part_of_train(run) else _ALL
            frames[images, name_of(run)].append(rows)
    records = []
    columns = ["network_id", "test/accuracy", "train/accuracy", "views", "test/confidence_gap"]
    for images, name in sorted(frames, key=lambda key: key[0] != _ALL):
        # Imported networks have no accuracy on train.
        networks = pd.concat(frames[images, name]).reindex(columns=columns)
        networks = networks.drop_duplicates("network_id")
        *accuracies, gap = networks[columns[1:]].astype(float).mean()
        numbers = list(map(METRICS["accuracy"].format, accuracies))
        numbers += [METRICS["confidence_gap"].format(gap, signed=True), str(len(networks))]
        records.append([titled(name.split()), images, *numbers])
    return records


def _heads(results: Sequence[Made]) -> list[list[str]]:
    """Describe how the heads of each method were trained on which networks, in which tables."""
    tables_of_head = defaultdict[tuple[str, ...], dict[str, None]](dict)
    for made in results:
        for _, run in made.runs:
            network = titled(name_of(run).split())
            for text in run.trials["head"].dropna().unique():
                head = json.loads(text)
                settings = [str(head.get(name, "-")) for name in _HEAD_SETTINGS]
                tables_of_head[network, *settings][made.table.name] = None
    networks = defaultdict[tuple[str, ...], list[str]](list)
    for (network, *settings), names in tables_of_head.items():
        networks[*settings, ", ".join(names)].append(network)
    return [[", ".join(names), *settings] for settings, names in networks.items()]


def _claims(results: Sequence[Made]) -> str:
    ordered = sorted(_verdict_rows(results), key=attrgetter("is_reduced"))
    networks = dict.fromkeys([row.where for row in ordered], "")
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for made in results:
        name = made.table.name
        link = f"[{name}]({TABLES_PAGE}#{name.replace('/', '')})"
        for row in made.verdict_rows:
            cells = rows.setdefault((tables.title_of(row.verdict.claim), link), dict(networks))
            cells[row.where] = _describe_verdict(row)
            cells["paper"] = row.printed or cells.get("paper", "")
    heads = ["claim", "table", *(titled(network.split()) for network in networks), "paper"]
    return body(table_of(heads, [[*key, *cells.values()] for key, cells in rows.items()]))


def describe_tables(results: Sequence[Made], pictured: Pictured) -> str:
    """Return the page of tables as Markdown; ``pictured`` returns the paths of figures."""
    parts = [
        "# The papers' tables, reproduced",
        f"Our results next to the published ones. The page of [claims]({PAGE}) has the verdicts. "
        "A command is that of its run; add `--data-root` where it lacks one.",
    ]
    # The results of a table may be of several scales.
    by_table = defaultdict[str, list[Made]](list)
    for made in results:
        by_table[made.table.name].append(made)
    for name, of_table in by_table.items():
        table = of_table[0].table
        parts += [f"## {name}", f"{table.title}. {table.note}".rstrip()]
        for made in of_table:
            parts += _scale(made, pictured)
        if rows := _verdict_rows(of_table):
            parts += ["Verdicts:", body(tables.claims_table("", rows))]
    return "\n\n".join(parts) + "\n"


def _describe_verdict(row: VerdictRow) -> str:
    (cells,) = tables.claims_table("", [row]).records
    outcome, verdict = row.outcome, row.verdict
    if verdict.outcome in tables.DECIDED and not (row.is_part or row.is_elsewhere):
        outcome = f"**{outcome}**"
    if cells["95 %"].is_blank:
        return outcome
    # A part of a claim may be on another metric than the claim.
    if verdict.comparison.metric != verdict.claim.metric:
        outcome += f" {verdict.comparison.metric}"
    interval = cells["95 %"].text
    if verdict.seeds:
        interval += f"; {verdict.seeds} seeds"
    return f"{outcome} {cells['difference'].text} ({interval})"


def _scale(made: Made, pictured: Pictured) -> list[str]:
    parts = ["```\n" + made.command.replace(" && ", "\n") + "\n```"]
    for entry, run in made.runs:
        network = titled(name_of(run).split())
        frame = tables.compare_with_print(made.table, entry, run)
        sentences = [compute_network_check(run).sentence]
        # Two rows of one method may differ in the training of its heads.
        for setting in run.manifest.setting.split("; "):
            if setting.startswith("heads "):
                sentences.append(capital(setting))
        sentences += filter(None, [tables.paper_of(frame), equal_rungs(run)])
        parts += [f"**{network}**. {'. '.join(sentences)}.", body(tables.printed_table(frame))]
        if has_frozen_networks(run):
            continue
        for name in made.table.figures[:1]:
            if path := pictured(made, run, name):
                parts.append(f"![{LADDER_FIGURES[name].title}, {network}]({path})")
    return parts
