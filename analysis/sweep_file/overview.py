"""The page over all entries of a sweep file: what each is, how far it is, and its numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from analysis.ladder.means import ladder_table
from analysis.load import Sweep, load
from analysis.page.page import PAGE, Section, Step, render
from analysis.search.load import SearchResults, load_search
from analysis.search.tables import best
from analysis.tables.table import Table
from analysis.text import Cell, Record, cell, number_cell
from analysis.tidy import complaints
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, atomic_write
from tune_calib.results.folders import is_search
from tune_calib.results.manifests import SearchEvaluated
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import SEARCH_EVALUATED, legend
from tune_calib.text import format_count

SHOWN = ("accuracy", "ece", "nll")


@dataclass
class _Found:
    """What the page is made of.

    Attributes:
        entries: a row an entry.
        rungs: a row a rung of each ladder or comparison.
        choices: a row a search: its best suggestions within the guard.
        troubles: a line for each way in which an entry has no numbers.
        flags: of all trials.
        commands: that ran the entries.
        pages: of the entries that have one, by name.
        is_whole: whether every planned trial and suggestion is done.
    """

    entries: list[Record] = field(default_factory=list)
    rungs: list[Record] = field(default_factory=list)
    choices: list[Record] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)
    is_whole: bool = True


def write_overview(out: AnyPath, entries: Sequence[AnyPath]) -> AnyPath:
    """Write the page over the entries of an experiment file, and return its path."""
    found = _Found()
    for entry in entries:
        if (entry / PAGE).exists():
            found.pages[entry.name] = f"{entry.name}/{PAGE}"
        try:
            if is_search(entry):
                _take_search(load_search(entry), found)
            else:
                _take_sweep(load(entry), found)
        except UserError as error:
            found.is_whole = False
            found.troubles.append(f"{entry.name}: {error}")
    atomic_write(out / PAGE, _page(out, found).encode())
    return out / PAGE


def _take_sweep(sweep: Sweep, found: _Found) -> None:
    name, counts = sweep.out.name, sweep.counts()
    found.entries.append(
        _entry(name, sweep.manifest.title, sweep.manifest.setting, "trials",
               len(sweep.manifest.planned), counts)
    )  # fmt: skip
    found.is_whole &= set(counts) <= {"done"}
    found.troubles += [f"{name}: {line}" for line in complaints(sweep)]
    found.flags += sweep.flags()
    found.commands.append(sweep.manifest.command)
    table = ladder_table(sweep, SHOWN)
    for rung in sweep.rungs:
        own = table[table["rung"] == rung.index].set_index("metric")
        cells = {"entry": Cell(name), "rung": Cell(sweep.label(rung))}
        for metric in SHOWN:
            cells[METRICS[metric].head] = number_cell(
                metric, own["mean"][metric], own["sd"][metric]
            )
        found.rungs.append({**cells, "trials": Cell(sweep.statuses(rung.index))})


def _take_search(search: SearchResults, found: _Found) -> None:
    name, counts = search.out.name, search.counts()
    question = search.manifest.question
    setting = f"searched on select for {' and '.join(search.metrics)}; {search.seeds()}"
    found.entries.append(
        _entry(name, f"Search of {question.method}", setting, "suggestions",
               search.outcome.planned, counts)
    )  # fmt: skip
    found.is_whole &= "missing" not in counts
    found.troubles += [f"{name}: {line}" for line in search.remarks()]
    found.flags += list(search.trials["flags"])
    found.commands += search.commands
    evaluated = "not evaluated"
    if (search.out / SEARCH_EVALUATED).exists():
        evaluated = f"suggestion {SearchEvaluated.read(search.out).trial} was evaluated"
    metric = METRICS[search.metrics[0]].head
    # Searches for other things cannot share a column: what was searched for stands in the row.
    for row in best(search, 1).records:
        found.choices.append(
            {
                "entry": Cell(name),
                "suggestion": row["suggestion"],
                "searched for": Cell(metric),
                "value": row[metric],
                METRICS["accuracy"].head: row[METRICS["accuracy"].head],
                "on test": Cell(evaluated),
            }
        )


def _entry(
    name: str, what: str, setting: str, unit: str, planned: int, counts: dict[str, int]
) -> Record:
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    return {
        "entry": Cell(name),
        "what": Cell(what),
        "setting": Cell(setting),
        "planned": Cell(format_count(planned, unit.removesuffix("s")), float(planned)),
        "ended": cell(told or "none"),
    }


def _page(out: AnyPath, found: _Found) -> str:
    state = "Complete: every entry" if found.is_whole else "Not every entry"
    links = found.pages
    note = "Mean ± standard deviation over the trials of a rung, on test."
    note += _signs(found.flags, found.rungs)
    best_note = (
        "Of every search the baseline, the method's own settings and the best suggestion within "
        "its guard; on select, where the choice looks better than it is: test says how good."
    )
    best_note += _signs(found.flags, found.choices)
    tables = [
        Table("entry-rows", "Each name leads to its page.", found.entries, links=links),
        Table("rung-rows", note, found.rungs, ("entry",), _starts(found.rungs), links),
        Table("choice-rows", best_note, found.choices, (), _starts(found.choices), links),
    ]
    heads = (("entries", "Entries"), ("results", "Results on test"), ("searches", "Searches"))
    return render(
        title=f"Sweep file: {out.name}",
        setting=f"{len(found.entries)} ladders, comparisons and searches",
        regime="What may be said of their networks stands on the page of each entry",
        state=f"{state} has all its numbers.",
        troubles=found.troubles,
        sections=[
            Section(*head, tables=[table] if table.records else [])
            for head, table in zip(heads, tables, strict=True)
        ],
        steps=[
            Step("Run it again; what is done stays.", "\n".join(dict.fromkeys(found.commands))),
            Step("Make this page and those of the entries again.", "tune-calib report DIR"),
        ],
        files=list(links.values()),
    )


def _signs(flags: Sequence[str], records: Sequence[Record]) -> str:
    """Explain the signs that occur in some rows."""
    shown = " ".join(cell.text for record in records for cell in record.values())
    return "".join(f" {line}." for line in legend(flags) if line.split()[0] in shown)


def _starts(records: Sequence[Record]) -> dict[int, str]:
    """Return the rows at which another entry begins."""
    names = [record["entry"].text for record in records]
    return {i: "" for i in range(1, len(names)) if names[i] != names[i - 1]}
