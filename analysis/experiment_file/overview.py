"""The page over several runs and searches: those of an experiment file or of a papers' table."""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
class Overview:
    """The content of the page, collected entry by entry."""

    out: AnyPath
    rows: list[Record] = field(default_factory=list)  # one per entry
    rungs: list[Record] = field(default_factory=list)  # one per rung of a ladder or comparison
    choices: list[Record] = field(default_factory=list)  # of a search: baseline and best ones
    leads: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)  # of all trials
    commands: list[str] = field(default_factory=list)
    is_complete: bool = True

    def _add(
        self, results: Run | SearchResults, what: str, setting: str, planned: str, lead: str
    ) -> None:
        name = results.out.name
        self.rows.append({
            "entry": Cell(name), "what": Cell(what), "setting": Cell(setting),
            "planned": Cell(planned, float(planned.split()[0])),
            "ended": Cell(format_counts(results.counts()) or "none"),
        })  # fmt: skip
        if lead:
            self.leads.append(f"{name}: {lead[0].lower()}{lead[1:]}")

    def add_run(self, run: Run) -> None:
        name, manifest = run.out.name, run.manifest
        planned = format_count(len(manifest.planned), "trial")
        self._add(run, manifest.title, describe_setting(run), planned, describe_best(run))
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
        self._add(search, what, setting, planned, lead)
        self.is_complete &= "missing" not in search.counts()
        self.troubles += [f"{name}: {line}" for line in search.warnings()]
        self.flags += list(search.trials["flags"])
        self.commands += [record.command for record in search.manifest.commands]
        evaluated = "not evaluated"
        if (search.out / SEARCH_EVALUATED).exists():
            evaluated = f"suggestion {SearchEvaluated.read(search.out).trial} was evaluated"
        metric, accuracy = METRICS[search.metrics[0]].head, METRICS["accuracy"].head
        # Each row names its metric, since searches for different metrics cannot share a column.
        for row in best(search, 1).records:
            self.choices.append({
                "entry": Cell(name), "suggestion": row["suggestion"],
                "searched for": Cell(metric), "value": row[metric],
                accuracy: row[accuracy], "on test": Cell(evaluated),
            })  # fmt: skip

    def render(
        self, title: str, lead: str = "", further: Sequence[Section] = (),
        command: str = "", files: Sequence[str] = (),
    ) -> str:  # fmt: skip
        state = "Complete: every entry" if self.is_complete else "Not every entry"
        leads = [*filter(None, [lead]), *self.leads[:_MOST_LEADS]]
        if len(self.leads) > _MOST_LEADS:
            leads.append(f"{len(self.leads) - _MOST_LEADS} more entries below.")
        searches = (
            "The baseline, the default settings and the best suggestion within the guard of each "
            "search, on select. The choice was made on these numbers, so only test is unbiased."
        )
        names = [record["entry"].text for record in self.rows]
        pages = {name: f"{name}/{PAGE}" for name in names if (self.out / name / PAGE).exists()}
        results = "Mean ± standard deviation over trials, on test."
        entries = Table("entry-rows", "Each name links to its page.", self.rows, links=pages)
        rungs = Table("rung-rows", results, self.rungs, chosen_by=("entry",), links=pages)
        choices = Table("choice-rows", searches, self.choices, chosen_by=("entry",), links=pages)
        commands = command or "\n".join(dict.fromkeys(self.commands))
        return Page(
            title=title,
            lead="\n".join(leads),
            setting=f"{len(self.rows)} ladders, comparisons and searches",
            network_check="The page of each entry describes its networks",
            state=f"{state} has all its numbers.",
            troubles=self.troubles,
            sections=[
                *further,
                Section("entries", "Entries", full_stops(legend(self.flags)), [entries]),
                Section("results", "Results on test", tables=[rungs]),
                Section("searches", "Searches", tables=[choices]),
            ],
            steps={
                "Run it again; finished trials are skipped.": commands,
                "Update this page and those of the entries.": "tune-calib report DIR",
            },
            files=[*files, *pages.values()],
        ).render()


def write_overview(out: AnyPath, entries: Sequence[AnyPath]) -> AnyPath:
    overview = Overview(out)
    for entry in entries:
        try:
            if is_search(entry):
                overview.add_search(load_search(entry))
            else:
                overview.add_run(load(entry))
        except UserError as error:
            overview.is_complete = False
            overview.troubles.append(f"{entry.name}: {error}")
    atomic_write(out / PAGE, overview.render(f"Experiment: {out.name}").encode())
    return out / PAGE
