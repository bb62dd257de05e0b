"""A page for readers of the papers: each claim with its verdict, then each table with its picture.

Everything on it is computed from results that ``tune-calib reproduce`` left.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

from analysis.compare.claims import Outcome
from analysis.compare.regime import name_of, regime_of
from analysis.figure import LADDER_FIGURES
from analysis.load import Sweep
from analysis.published import published_titles
from analysis.reproduction.files import Made, has_frozen_networks, read_made
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
from tune_calib.errors import DamagedFileError
from tune_calib.paths import AnyPath, atomic_write
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.reproduction import REPRODUCTIONS

PAGE = "claims.md"
TABLES_PAGE = "claims-tables.md"
LOCK = "lock.json"

PAPERS = {
    "maccal": "MaC-Cal (arXiv 2508.09116)",
    "fedlas": "FeDLaS (ECCV 2026)",
    "tst": "TST and V-TST (arXiv 2405.01196)",
}

_OUTCOMES = get_args(Outcome)
_SUMMARY = {
    "held": "Held wherever it was judged",
    "not held": "Did not hold anywhere",
    "mixed": "Differs between networks and data sets",
    "not decided": "Not decided",
    "no verdict": "No verdict, as the base network is not over-confident",
}
_NETWORK_HEADS = (
    "network", "test accuracy (%)", "train accuracy (%)", "confidence - accuracy (points)",
    "networks",
)  # fmt: skip

Pictured = Callable[[Made, Sweep, str], str | None]
"""Where the picture of a name lies that is drawn of results; None if it is not drawn."""


@dataclass(frozen=True)
class Stored:
    """A table that was made, with its scale and the command that makes it again."""

    made: Made
    scale: str
    command: str


def read_all(out: AnyPath) -> list[Stored]:
    """Read every reproduced table of a folder, in the order of their names."""
    found = []
    for name in sorted(REPRODUCTIONS):
        table = REPRODUCTIONS[name]
        lock = out / table.folder / LOCK
        if not lock.exists():
            continue
        try:
            content = json.loads(lock.read_text())
            runs, *told = dict(content["runs"]), str(content["scale"]), str(content["command"])
        except (ValueError, KeyError) as error:
            raise DamagedFileError(f"{lock} tells no runs; make {name} again") from error
        made = read_made(table, out / table.folder, runs)
        found += [Stored(made, *told)] if made.sweeps else []
    return found


def write_overview(out: AnyPath) -> AnyPath:
    """Write ``claims.md`` and the page of tables into a folder of tables."""

    def pictured(made: Made, sweep: Sweep, name: str) -> str | None:
        file = f"{made.table.folder}/{sweep.out.name}/figures/{name}.png"
        return file if (out / file).exists() else None

    tables = read_all(out)
    atomic_write(out / TABLES_PAGE, describe_tables(tables, pictured).encode())
    atomic_write(out / PAGE, overview(tables).encode())
    return out / PAGE


def overview(tables: Sequence[Stored]) -> str:
    """Return the page of claims as Markdown: base networks, then a section per paper."""
    papers: dict[str, list[Stored]] = {}
    for own in tables:
        papers.setdefault(own.made.table.name.partition("/")[0], []).append(own)
    absent = [REPRODUCTIONS[name] for name in sorted(REPRODUCTIONS)
              if name not in {own.made.table.name for own in tables}]  # fmt: skip
    rows = [[table.name, table.title, ", ".join(table.scales)] for table in absent]
    judgements = {name: [one for own in of_paper for one in own.made.judged]
                  for name, of_paper in papers.items()}  # fmt: skip
    counts = []
    for name, found in judgements.items():
        counted = Counter[str](one.verdict.outcome for one in found if not one.is_part)
        counts.append([PAPERS.get(name, name), *(str(counted[each]) for each in _OUTCOMES)])
    parts = [
        "# What the papers claim, and what held",
        f"{RULE}. Differences are in points (of percent) where the metric is a fraction. Each "
        "verdict stands alone, at 95 %: of many some are chance. Verdicts in parentheses are those "
        "on parts of a mean, for information. The numbers behind them stand on the page of "
        f"[tables]({TABLES_PAGE}).",
        body(table_of(["paper", *_OUTCOMES], counts)),
        "## Base networks",
        body(table_of(_NETWORK_HEADS, _networks(tables))),
        *(part for name, own in papers.items() for part in _paper(name, own, judgements[name])),
        *(["## Not run", body(table_of(["table", "title", "scales"], rows))] if absent else []),
    ]
    return "\n\n".join(parts) + "\n"


def _networks(tables: Sequence[Stored]) -> list[list[str]]:
    """Return a row per base network: accuracy on test and train, and over-confidence."""
    rows: dict[str, list[str]] = {}
    for own in tables:
        for _, sweep in own.made.sweeps:
            check = regime_of(sweep)
            base = sweep.of_rung(sweep.rungs[0].index)["test/accuracy"].mean()
            shown = [METRICS["accuracy"].format(value) for value in (base, check.train)]
            gap = METRICS["confidence_gap"].format(check.gap, signed=True)
            rows.setdefault(
                name_of(sweep), [_titled(name_of(sweep)), *shown, gap, str(check.networks)]
            )
    return list(rows.values())


def _paper(name: str, tables: Sequence[Stored], verdicts: Sequence[Judged]) -> list[str]:
    """Return the section of a paper: a paragraph of what held, then a row per claim."""
    where = list(dict.fromkeys(one.where for one in verdicts))
    rows, summary = [], dict[str, list[str]]()
    for own in tables:
        table = own.made.table
        for claim in table.claims:
            of_claim = [one for one in verdicts if one.verdict.claim is claim]
            if not of_claim:
                continue
            found = {one.where: _verdict_text(one) for one in of_claim}
            link = f"[{table.name}]({TABLES_PAGE}#{table.name.replace('/', '')})"
            paper = next((one.printed for one in of_claim if one.printed), "")
            rows.append([title_of(claim), link, *(found.get(each, "") for each in where),
                         paper])  # fmt: skip
            outcomes = {one.verdict.outcome for one in of_claim if not one.is_part}
            key = next(iter(outcomes)) if len(outcomes) == 1 else "mixed"
            summary.setdefault(key, []).append(title_of(claim))
    sentences = [f"{words}: {'; '.join(summary[key])}." for key, words in _SUMMARY.items()
            if key in summary]  # fmt: skip
    heads = ["claim", "table", *map(_titled, where), "paper"]
    return [f"## {PAPERS.get(name, name)}", "\n\n".join(sentences), body(table_of(heads, rows))]


def describe_tables(tables: Sequence[Stored], pictured: Pictured) -> str:
    """Return the page of tables as Markdown; ``pictured`` finds the pictures."""
    parts = [
        "# The papers' tables, reproduced",
        f"Our results next to the published ones; the verdicts stand on the page of "
        f"[claims]({PAGE}).",
        *(part for own in tables for part in _section(own, own.made.judged, pictured)),
    ]
    return "\n\n".join(parts) + "\n"


def _verdict_text(one: Judged) -> str:
    """Describe a verdict and how sure it is."""
    (row,) = claims_table("", [one]).records
    outcome = one.verdict.outcome
    words = f"**{outcome}**" if outcome in ("held", "not held") else outcome
    words = f"({outcome})" if one.is_part else words
    if row["95 %"].is_blank:
        return words
    more = f"; {one.verdict.seeds} seeds" if one.verdict.seeds else ""
    # The metric of a further part, whose numbers are of another one than the claim's.
    part = one.verdict.comparison.metric
    name = f" {part}" if part != one.verdict.claim.metric else ""
    return f"{words}{name} {row['difference'].text} ({row['95 %'].text}{more})"


def _titled(where: str) -> str:
    titles = published_titles()
    return " ".join(titles.get(part, part) for part in where.split())


def _section(own: Stored, verdicts: Sequence[Judged], pictured: Pictured) -> list[str]:
    """Return the section of a table: command, network check, numbers, verdicts, pictures."""
    table = own.made.table
    parts = [
        f"## {table.name}",
        f"{table.title}. {table.note}".rstrip(),
        f"```\n{own.command}\n```",
    ]
    for run, sweep in own.made.sweeps:
        frame = compare_with_print(table, run, sweep)
        # Two rows of one method may differ in how its heads were trained.
        told = [
            f"H{part[1:]}" for part in sweep.manifest.setting.split("; ") if part[:6] == "heads "
        ]
        told += [of] if (of := paper_of(frame)) else []
        parts += [
            f"**{_titled(name_of(sweep))}**. {'. '.join([regime_of(sweep).sentence, *told])}.",
            body(printed_table("", "", frame)),
            *_pictures(own.made, sweep, pictured),
        ]
    return [*parts, "Verdicts:", body(claims_table("", verdicts))] if verdicts else parts


def _pictures(made: Made, sweep: Sweep, pictured: Pictured) -> list[str]:
    """Return the first figure of the table, for networks that were trained for it."""
    names = made.table.figures[:1] if not has_frozen_networks(sweep) else ()
    found = [(name, pictured(made, sweep, name)) for name in names]
    return [
        f"![{LADDER_FIGURES[name].title}, {_titled(name_of(sweep))}]({path})"
        for name, path in found
        if path is not None
    ]
