"""The page over the entries of an experiment file: the main table of each, and its page."""

from collections.abc import Sequence
from dataclasses import replace

from analysis.ladder.files import describe_best
from analysis.ladder.tables import ladder
from analysis.load import load
from analysis.page.page import PAGE, Page, Section
from analysis.search.files import describe_choice
from analysis.search.load import SearchResults, load_search
from analysis.search.tables import best
from analysis.tables.table import Table
from analysis.tidy import complaints
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, atomic_write
from tune_calib.results.folders import is_search
from tune_calib.results.manifests import SearchEvaluated
from tune_calib.spec.names import SEARCH_EVALUATED

_MOST_LEADS = 3


def write_overview(out: AnyPath, entries: Sequence[AnyPath]) -> AnyPath:
    tables, is_complete = list[Table](), True
    leads, troubles, commands = list[str](), list[str](), list[str]()
    for entry in entries:
        name = entry.name
        try:
            if is_search(entry):
                search = load_search(entry)
                table, lines, lead = _describe_best(search), search.warnings(), ""
                is_complete &= "missing" not in search.counts()
                if search.outcome.suggestions:
                    lead = describe_choice(search)
                commands += [record.command for record in search.manifest.commands]
            else:
                run = load(entry)
                table, lines, lead = ladder(run), complaints(run), describe_best(run)
                table = table.without_blank()
                is_complete &= set(run.counts()) <= {"done"}
                commands.append(run.manifest.command)
        except UserError as error:
            is_complete = False
            troubles.append(f"{name}: {error}")
            continue
        tables.append(replace(table, key=f"{name}-rows", caption=f"{name}: {table.caption}"))
        troubles += [f"{name}: {line}" for line in lines]
        if lead:
            leads.append(f"{name}: {lead[0].lower()}{lead[1:]}")
    if len(leads) > _MOST_LEADS:
        leads[_MOST_LEADS:] = [f"{len(leads) - _MOST_LEADS} more entries below."]
    names = [entry.name for entry in entries if (entry / PAGE).exists()]
    pages = {name: f"{name}/{PAGE}" for name in names}
    text = Page(
        title=f"Experiment: {out.name}",
        lead="\n".join(leads),
        setting=f"{len(entries)} ladders, comparisons and searches",
        network_check="The page of each entry describes its networks",
        state=f"{'Complete: every' if is_complete else 'Not every'} entry has all its numbers.",
        troubles=troubles,
        sections=[Section("entries", "Entries", tables=tables)],
        steps={
            "Run it again; finished trials are skipped.": "\n".join(dict.fromkeys(commands)),
            "Update this page and those of the entries.": "tune-calib report DIR",
        },
        files=list(pages.values()),
        links=pages,
    ).render()
    atomic_write(out / PAGE, text.encode())
    return out / PAGE


def _describe_best(search: SearchResults) -> Table:
    table, test = best(search, 1), "not evaluated"
    if (search.out / SEARCH_EVALUATED).exists():
        test = f"suggestion {SearchEvaluated.read(search.out).trial} was evaluated"
    what = f"Search of {search.manifest.question.method}, {search.ended()}"
    return replace(table, caption=f"{what}. {table.caption} On test: {test}.")
