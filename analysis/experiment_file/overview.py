"""The page over all entries of an experiment file: their progress and results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from operator import attrgetter

from analysis.ladder.files import describe_best
from analysis.ladder.means import ladder_table
from analysis.ladder.tables import describe_setting
from analysis.load import Run, load
from analysis.page.page import PAGE, Page, Section
from analysis.search.files import describe_choice
from analysis.search.load import SearchResults, load_search
from analysis.search.tables import best
from analysis.tables.table import Table
from analysis.text import Cell, Record, format_counts, full_stops
from analysis.tidy import complaints
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, atomic_write
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
        self, results: Run | SearchResults, what: str, setting: str, planned: str, lead: str
    ) -> None:
        """Add the row of an entry, and its lead sentence if there is one."""
        name, counts = results.out.name, results.counts()
        row = {"entry": Cell(name), "what": Cell(what), "setting": Cell(setting)}
        row["planned"] = Cell(planned, float(planned.split()[0]))
        self.rows.append(row | {"ended": Cell(format_counts(counts) or "none")})
        if lead:
            self.leads.append(f"{name}: {lead[0].lower()}{lead[1:]}")

    def add_run(self, run: Run) -> None:
        name, manifest = run.out.name, run.manifest
        planned = format_count(len(manifest.planned), "trial")
        setting, lead = describe_setting(run), describe_best(run)
        self.add(run, manifest.title, setting, planned=planned, lead=lead)
        self.is_complete &= set(run.counts()) <= {"done"}
        self.troubles += [f"{name}: {line}" for line in complaints(run)]
        self.flags += run.flags()
        self.commands.append(manifest.command)
        table = ladder_table(run, SHOWN)
        for rung in run.rungs:
            record = {"entry": Cell(name), "rung": Cell(run.label(rung))}
            for row in table[table["rung"] == rung.index].to_dict("records"):
                cell = Cell.number(row["metric"], row["mean"], row["sd"])
                record[METRICS[row["metric"]].head] = cell
            self.rungs.append(record | {"trials": Cell.ended(run.counts(rung.index))})

    def add_search(self, search: SearchResults) -> None:
        name, what = search.out.name, f"Search of {search.manifest.question.method}"
        setting = f"searched on select for {' and '.join(search.metrics)}; {search.seeds()}"
        planned = format_count(search.outcome.planned, "suggestion")
        lead = describe_choice(search) if search.outcome.suggestions else ""
        self.add(search, what, setting, planned=planned, lead=lead)
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
            choice = {"entry": Cell(name), "suggestion": row["suggestion"]}
            choice |= {"searched for": Cell(metric), "value": row[metric]}
            choice |= {accuracy: row[accuracy], "on test": Cell(evaluated)}
            self.choices.append(choice)


def write_overview(out: AnyPath, entries: Sequence[AnyPath]) -> AnyPath:
    """Write the page over the entries of an experiment file, and return its path."""
    contents = _Entries()
    pages = {}
    for entry in entries:
        if (entry / PAGE).exists():
            pages[entry.name] = f"{entry.name}/{PAGE}"
        try:
            if is_search(entry):
                contents.add_search(load_search(entry))
            else:
                contents.add_run(load(entry))
        except UserError as error:
            contents.is_complete = False
            contents.troubles.append(f"{entry.name}: {error}")
    atomic_write(out / PAGE, _page(out, contents, pages).encode())
    return out / PAGE


def _page(out: AnyPath, contents: _Entries, pages: Mapping[str, str]) -> str:
    state = "Complete: every entry" if contents.is_complete else "Not every entry"
    leads = contents.leads[:_MOST_LEADS]
    if len(contents.leads) > _MOST_LEADS:
        leads.append(f"{len(contents.leads) - _MOST_LEADS} more entries below.")
    results = "Mean ± standard deviation over trials, on test."
    searches = (
        "The baseline, the default settings and the best suggestion within the guard of each "
        "search, on select. The choice was made on these numbers, so only test is unbiased."
    )
    entries = Table("entry-rows", "Each name links to its page.", contents.rows, links=pages)
    rungs = Table("rung-rows", results, contents.rungs, chosen_by=("entry",), links=pages)
    choices = Table("choice-rows", searches, contents.choices, links=pages)
    sections = []
    for key, title, table in (
        ("entries", "Entries", entries),
        ("results", "Results on test", replace(rungs, rules=_starts(contents.rungs))),
        ("searches", "Searches", replace(choices, rules=_starts(contents.choices))),
    ):
        cells = chain.from_iterable(record.values() for record in table.records)
        text = " ".join(map(attrgetter("text"), cells))
        signs = [line for line in legend(contents.flags) if line.split()[0] in text]
        caption = " ".join([table.caption, *full_stops(signs)])
        sections.append(Section(key, title, tables=[replace(table, caption=caption)]))
    commands = dict.fromkeys(contents.commands)
    return Page(
        title=f"Experiment: {out.name}",
        lead="\n".join(leads),
        setting=f"{len(contents.rows)} ladders, comparisons and searches",
        network_check="The page of each entry describes its networks",
        state=f"{state} has all its numbers.",
        troubles=contents.troubles,
        sections=sections,
        steps={
            "Run it again; finished trials are skipped.": "\n".join(commands),
            "Update this page and those of the entries.": "tune-calib report DIR",
        },
        files=list(pages.values()),
    ).render()


def _starts(records: Sequence[Record]) -> dict[int, str]:
    starts = {}
    for index, (previous, record) in enumerate(pairwise(records), start=1):
        if record["entry"].text != previous["entry"].text:
            starts[index] = ""
    return starts
