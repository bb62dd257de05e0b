"""A page for readers of the papers: each claim with its verdict, then each table with its picture.

Everything on it is computed from results that ``tune-calib reproduce`` left.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.compare.regime import name_of, regime_of
from analysis.figure import LADDER_FIGURES
from analysis.load import Sweep
from analysis.published import published_titles
from analysis.reproduction import beside, judged
from analysis.reproduction.files import Made, is_given, read_made
from analysis.reproduction.judged import RULE, Judged
from analysis.tables.render import body
from analysis.tables.table import table_of
from tune_calib.errors import DamagedFileError
from tune_calib.paths import AnyPath
from tune_calib.results.tables import atomic_write
from tune_calib.spec.reproduction import REPRODUCTIONS

PAGE = "claims.md"
LOCK = "lock.json"

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
    """Write ``claims.md`` into a folder of tables, its pictures those of their reports."""

    def pictured(made: Made, sweep: Sweep, name: str) -> str | None:
        file = f"{made.table.folder}/{sweep.out.name}/figures/{name}.png"
        return file if (out / file).exists() else None

    atomic_write(out / PAGE, overview(read_all(out), pictured).encode())
    return out / PAGE


def overview(tables: Sequence[Stored], pictured: Pictured) -> str:
    """Return the page as Markdown; ``pictured`` finds the pictures."""
    verdicts = {own.made.table.name: own.made.judged for own in tables}
    counts = Counter(one.verdict.outcome for each in verdicts.values() for one in each)
    told = ", ".join(f"{outcome} {count}" for outcome, count in counts.most_common())
    absent = [REPRODUCTIONS[name] for name in sorted(REPRODUCTIONS) if name not in verdicts]
    rows = [[table.name, table.title, ", ".join(table.scales)] for table in absent]
    parts = [
        "# What the papers claim, and what held",
        f"{sum(counts.values())} verdicts: {told}. {RULE}. Differences are in points (of percent) "
        "where the metric is a fraction. Each verdict stands alone, at 95 %: of many some are "
        "chance.",
        _claims(tables, verdicts),
        *(
            part
            for own in tables
            for part in _section(own, verdicts[own.made.table.name], pictured)
        ),
        *(["## Not run", body(table_of(["table", "title", "scales"], rows))] if absent else []),
    ]
    return "\n\n".join(parts) + "\n"


def _claims(tables: Sequence[Stored], verdicts: dict[str, list[Judged]]) -> str:
    """Return a row a claim with its verdict for each base network."""
    where = list(dict.fromkeys(one.where for own in verdicts.values() for one in own))
    rows = []
    for own in tables:
        table = own.made.table
        for claim in table.claims:
            of_claim = [one for one in verdicts[table.name] if one.verdict.claim == claim]
            found = {one.where: _verdict_text(one) for one in of_claim}
            link = f"[{table.name}](#{table.name.replace('/', '')})"
            command = f"`tune-calib reproduce {table.name} --scale {own.scale}`"
            rows.append([claim.text, link, *(found.get(name, "") for name in where), command])
    return body(table_of(["claim", "table", *map(_titled, where), "command"], rows))


def _verdict_text(one: Judged) -> str:
    """Describe a verdict and how sure it is."""
    (row,) = judged.table("", [one]).records
    outcome = one.verdict.outcome
    words = f"**{outcome}**" if outcome in ("held", "not held") else outcome
    if row["95 %"].is_blank:
        return words
    more = f"; {one.verdict.seeds} seeds" if one.verdict.seeds else ""
    return f"{words} {row['difference'].text} ({row['95 %'].text}{more})"


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
        frame = beside.beside_print(table, run, sweep)
        told = [of] if (of := beside.paper_of(frame)) else []
        parts += [
            f"**{_titled(name_of(sweep))}**. {'. '.join([regime_of(sweep).sentence, *told])}.",
            body(beside.table("", "", frame)),
            *_pictures(own.made, sweep, pictured),
        ]
    return [*parts, "Verdicts:", body(judged.table("", verdicts))] if verdicts else parts


def _pictures(made: Made, sweep: Sweep, pictured: Pictured) -> list[str]:
    """Return the first figure of the table, for networks that were trained for it."""
    names = made.table.figures[:1] if not is_given(sweep) else ()
    found = [(name, pictured(made, sweep, name)) for name in names]
    return [
        f"![{LADDER_FIGURES[name].title}, {_titled(name_of(sweep))}]({path})"
        for name, path in found
        if path is not None
    ]
