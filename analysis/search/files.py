"""The files of a search's report: tables, figures, the page; and the text that is printed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from analysis.compare.regime import of_baseline
from analysis.figure import SEARCH_FIGURES
from analysis.page.environment import environment, steps
from analysis.page.figures import Gallery, draw_all, in_order
from analysis.page.kept import Kept
from analysis.page.page import Section, Step, render
from analysis.page.whereabouts import whereabouts
from analysis.search import tables
from analysis.search.evaluated import evaluated
from analysis.search.load import SearchResults, load_search
from analysis.tables.latex import latex
from analysis.tables.render import markdown
from analysis.tables.table import Table
from tune_calib.console import Part, Prose, Text
from tune_calib.paths import Place
from tune_calib.results.selection import of_reads
from tune_calib.results.tables import atomic_write
from tune_calib.spec.names import SEARCH_EVALUATED, legend
from tune_calib.text import as_setting


def write_files(out: Place, before: Kept) -> str:
    """Write the files of a report, but for figures that would be the same again.

    Args:
        out: folder of the search.
        before: the report that lies there.

    Returns:
        What to print, as ``report.write_search_report`` says.

    Raises:
        UserError: as ``report.write_search_report`` says.
    """
    search = load_search(out)
    if not search.outcome.suggestions:
        return f"{out}: no suggestion has ended, {search.outcome.planned} planned"
    names, gallery = _write_all(search, before)
    text = _printed(search, gallery.remarks, names)
    before.write(text, names, gallery.files)
    return text


def _printed(search: SearchResults, remarks: Sequence[str], names: Sequence[str]) -> Text:
    sentences = [*legend(search.trials["flags"]), f"{of_baseline(search.trials).sentence}."]
    parts: list[Part] = [
        tables.best(search).bare,
        *map(Prose, [*sentences, _state(search)]),
        *_troubles(search),
        *remarks,
        *whereabouts(search.out, names),
    ]
    return Text(parts)


def _write_all(search: SearchResults, before: Kept) -> tuple[list[str], Gallery]:
    """Write every file of a report, but for figures that would be the same again.

    Returns:
        Paths of the files in the folder, and its figures.
    """
    out = before.folder
    written = _write_tables(search, out / "tables")
    gallery = draw_all(in_order(SEARCH_FIGURES), search, out / "figures", before)
    files = [path.relative_to(out).as_posix() for path in [*written, *gallery.paths]]
    atomic_write(out / "report.html", _page(search, gallery, files).encode())
    return [*files, "report.html"], gallery


def _page(search: SearchResults, gallery: Gallery, files: Sequence[str]) -> str:
    on_test = evaluated(search)
    return render(
        title=f"Search of {search.method}",
        setting=_setting(search),
        regime=of_baseline(search.trials).sentence,
        state=_state(search),
        troubles=_troubles(search),
        sections=[
            Section("results", "Results", tables=[_in_page(tables.best(search))]),
            Section("on-test", "On test", on_test.texts, on_test.tables),
            Section("figures", "Figures", gallery.remarks, figures=gallery.pictures),
            Section("settings", "Settings", tables=[_in_page(tables.importance(search))]),
            Section("robustness", "How wrong one may be", tables=[_in_page(tables.share(search))]),
            Section("suggestions", "Suggestions", tables=[_in_page(tables.suggestions(search))]),
            Section("environment", "Environment", tables=environment(search.trials)),
        ],
        steps=[*steps(search.trials, "\n".join(search.commands), []), *_choice(search)],
        files=files,
        links=on_test.links,
    )


def _in_page(table: Table) -> Table:
    """The table under a key that no figure of the page has."""
    return replace(table, key=f"{table.key}-rows")


def _write_tables(search: SearchResults, folder: Path) -> list[Path]:
    contents = {"suggestions.csv": search.table().to_csv(index=False)}
    for table in (tables.best(search), tables.importance(search), tables.share(search)):
        contents[f"{table.key}.md"] = f"{markdown(table)}\n"
        contents[f"{table.key}.tex"] = f"{latex(table)}\n"
    for name, text in contents.items():
        atomic_write(folder / name, text.encode())
    return [folder / name for name in contents]


def _setting(search: SearchResults) -> str:
    question = search.manifest.question
    datasets = ", ".join(sorted(search.trials["dataset"].dropna().unique()))
    backbones = ", ".join(sorted(search.trials["backbone"].dropna().unique()))
    sampler = f"{question.sampler} sampler, seed {question.sampler_seed}"
    given = question.given.items()
    fixed = [
        f"{slot}.{key} {as_setting(value)}"
        for slot, own in given
        for key, value in own.items()
        if key not in ("dataset", "imported", "found")
    ]
    told = f"; fixed: {', '.join(fixed)}" if fixed else ""
    return f"{datasets}; {backbones}{told}; {sampler}; select split, {search.seeds()}"


def _choice(search: SearchResults) -> list[Step]:
    command = search.outcome.command
    text = "Train the choice again, with every setting that the search had fixed."
    return [Step(text, command)] if command else []


def _state(search: SearchResults) -> str:
    planned, asked = search.outcome.planned, search.outcome.asked
    if "missing" in search.counts():
        return f"INCOMPLETE: of {planned} planned suggestions, {search.ended()}."
    more = f" {asked} were asked for, and there are no more points." if planned < asked else ""
    return f"Complete: all {planned} planned suggestions ended ({search.ended()}).{more}"


def _troubles(search: SearchResults) -> list[str]:
    counts = search.counts()
    lines = [
        f"{counts[status]} suggestions {status}: they have no value"
        for status in ("diverged", "crashed", "stopped")
        if status in counts
    ]
    if "missing" in counts:
        lines.append(f"{counts['missing']} suggestions have not ended: tune-calib resume goes on")
    if search.chosen is None:
        lines.append("no suggestion keeps the accuracy within the guard: there is no choice")
    if search.reads is None:
        lines.append(f"{SEARCH_EVALUATED} is damaged: how often test was read is not known")
    elif search.reads:
        lines.append(of_reads(search.reads))
    return [*lines, *search.remarks()]
