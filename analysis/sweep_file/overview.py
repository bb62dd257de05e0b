"""The page over all entries of an experiment file: their progress and results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from analysis.ladder.files import describe_best
from analysis.ladder.means import ladder_table
from analysis.ladder.tables import describe_setting
from analysis.load import Sweep, load
from analysis.page.page import PAGE, Page, Section
from analysis.search.files import describe_choice
from analysis.search.load import SearchResults, load_search
from analysis.search.tables import best
from analysis.tables.table import Table
from analysis.text import Cell, Record, format_counts
from analysis.tidy import complaints
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, atomic_write
from tune_calib.results.folders import is_search
from tune_calib.results.manifests import SearchEvaluated
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import SEARCH_EVALUATED, legend
from tune_calib.text import format_count

SHOWN = ("accuracy", "ece", "nll")
_MOST_LEADS = 3


@dataclass
class _Entries:
    """The content of the page, collected entry by entry."""

    rows: list[Record] = field(default_factory=list)  # one per entry
    rungs: list[Record] = field(default_factory=list)  # one per rung of a ladder or comparison
    choices: list[Record] = field(default_factory=list)  # of a search: baseline and best ones
    leads: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)  # of all trials
    commands: list[str] = field(default_factory=list)
    is_complete: bool = True

    def add(
        self, results: Sweep | SearchResults, what: str, setting: str, planned: str, lead: str
    ) -> None:
        """Add the row of an entry, and its lead sentence if there is one."""
        name, counts = results.out.name, results.counts()
        self.rows.append(
            {
                "entry": Cell(name),
                "what": Cell(what),
                "setting": Cell(setting),
                "planned": Cell(planned, float(planned.split()[0])),
                "ended": Cell(format_counts(counts) or "none"),
            }
        )
        self.leads += [f"{name}: {lead[0].lower()}{lead[1:]}"] if lead else []

    def add_sweep(self, sweep: Sweep) -> None:
        name, manifest = sweep.out.name, sweep.manifest
        planned = format_count(len(manifest.planned), "trial")
        self.add(sweep, manifest.title, describe_setting(sweep), planned, describe_best(sweep))
        self.is_complete &= set(sweep.counts()) <= {"done"}
        self.troubles += [f"{name}: {line}" for line in complaints(sweep)]
        self.flags += sweep.flags()
        self.commands.append(manifest.command)
        table = ladder_table(sweep, SHOWN)
        for rung in sweep.rungs:
            own = table[table["rung"] == rung.index].to_dict("records")
            self.rungs.append(
                {
                    "entry": Cell(name),
                    "rung": Cell(sweep.label(rung)),
                    **{METRICS[row["metric"]].head: Cell.number(row["metric"], row["mean"],
                                                                row["sd"]) for row in own},
                    "trials": Cell.ended(sweep.counts(rung.index)),
                }
            )  # fmt: skip

    def add_search(self, search: SearchResults) -> None:
        name, what = search.out.name, f"Search of {search.manifest.question.method}"
        setting = f"searched on select for {' and '.join(search.metrics)}; {search.seeds()}"
        planned = format_count(search.outcome.planned, "suggestion")
        lead = describe_choice(search) if search.outcome.suggestions else ""
        self.add(search, what, setting, planned, lead)
        self.is_complete &= "missing" not in search.counts()
        self.troubles += [f"{name}: {line}" for line in search.warnings()]
        self.flags += list(search.trials["flags"])
        self.commands += search.commands
        evaluated = "not evaluated"
        if (search.out / SEARCH_EVALUATED).exists():
            evaluated = f"suggestion {SearchEvaluated.read(search.out).trial} was evaluated"
        metric, accuracy = METRICS[search.metrics[0]].head, METRICS["accuracy"].head
        # Each row names its metric, since searches for different metrics cannot share a column.
        for row in best(search, 1).records:
            self.choices.append(
                {
                    "entry": Cell(name),
                    "suggestion": row["suggestion"],
                    "searched for": Cell(metric),
                    "value": row[metric],
                    accuracy: row[accuracy],
                    "on test": Cell(evaluated),
                }
            )


def write_overview(out: AnyPath, entries: Sequence[AnyPath]) -> AnyPath:
    """Write the page over the entries of an experiment file, and return its path."""
    found = _Entries()
    for entry in entries:
        try:
            if is_search(entry):
                found.add_search(load_search(entry))
            else:
                found.add_sweep(load(entry))
        except UserError as error:
            found.is_complete = False
            found.troubles.append(f"{entry.name}: {error}")
    pages = {own.name: f"{own.name}/{PAGE}" for own in entries if (own / PAGE).exists()}
    atomic_write(out / PAGE, _page(out, found, pages).encode())
    return out / PAGE


def _page(out: AnyPath, found: _Entries, pages: Mapping[str, str]) -> str:
    state = "Complete: every entry" if found.is_complete else "Not every entry"
    more = len(found.leads) - _MOST_LEADS
    leads = [*found.leads[:_MOST_LEADS], *([f"{more} more entries below."] if more > 0 else [])]
    results = "Mean ± standard deviation over trials, on test."
    searches = (
        "The baseline, the default settings and the best suggestion within the guard of each "
        "search, on select. The choice was made on these numbers, so only test is unbiased."
    )
    parts = (
        ("entries", "Entries", "entry-rows", "Each name links to its page.", found.rows, ()),
        ("results", "Results on test", "rung-rows", results, found.rungs, ("entry",)),
        ("searches", "Searches", "choice-rows", searches, found.choices, ()),
    )
    sections = []
    for key, title, rows, caption, records, chosen_by in parts:
        cells = " ".join(cell.text for record in records for cell in record.values())
        signs = [line for line in legend(found.flags) if line.split()[0] in cells]
        caption = " ".join([caption, *(f"{line}." for line in signs)])
        names = [record["entry"].text for record in records] if key != "entries" else []
        # Indices of the rows at which another entry starts.
        starts = {i: "" for i, (one, other) in enumerate(pairwise(names), 1) if one != other}
        table = Table(rows, caption, records, chosen_by, starts, pages)
        sections.append(Section(key, title, tables=[table]))
    return Page(
        title=f"Experiment: {out.name}",
        lead="\n".join(leads),
        setting=f"{len(found.rows)} ladders, comparisons and searches",
        regime="The page of each entry describes its networks",
        state=f"{state} has all its numbers.",
        troubles=found.troubles,
        sections=sections,
        steps={
            "Run it again; finished trials are skipped.": "\n".join(dict.fromkeys(found.commands)),
            "Update this page and those of the entries.": "tune-calib report DIR",
        },
        files=list(pages.values()),
    ).render()
