"""The files of a search's report: tables, figures, the page; and the text that is printed."""

from collections.abc import Sequence
from pathlib import Path

from analysis import latex
from analysis.compare.regime import of_baseline
from analysis.figure import SEARCH_FIGURES
from analysis.page.environment import environment, steps
from analysis.page.figures import Gallery, draw_all, in_order
from analysis.page.kept import Kept
from analysis.page.page import Section, Step, render
from analysis.page.whereabouts import whereabouts
from analysis.search import tables as search_tables
from analysis.search.evaluated import evaluated
from analysis.search.load import SearchResults, load_search
from analysis.text import text_table, texts
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
    rows = texts(search_tables.best_rows(search))
    sentences = [*legend(search.trials["flags"]), f"{of_baseline(search.trials).sentence}."]
    parts: list[Part] = [
        text_table(rows, is_main=True),
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
    tables = search_tables.page_tables(search)
    on_test = evaluated(search)
    return render(
        title=f"Search of {search.method}",
        setting=_setting(search),
        regime=of_baseline(search.trials).sentence,
        state=_state(search),
        troubles=_troubles(search),
        sections=[
            Section("results", "Results", tables=[tables["best"]]),
            Section("on-test", "On test", on_test.texts, on_test.tables),
            Section("figures", "Figures", gallery.remarks, figures=gallery.pictures),
            Section("settings", "Settings", tables=[tables["importance"]]),
            Section("robustness", "How wrong one may be", tables=[tables["share"]]),
            Section("suggestions", "Suggestions", tables=[tables["suggestions"]]),
            Section("environment", "Environment", tables=environment(search.trials)),
        ],
        steps=[*steps(search.trials, "\n".join(search.commands), []), *_choice(search)],
        files=files,
        links=on_test.links,
    )


def _write_tables(search: SearchResults, folder: Path) -> list[Path]:
    notes = search_tables.notes(search)
    rows = {
        "best": search_tables.best_rows(search),
        "importance": search_tables.importance_rows(search),
        "share": search_tables.share_rows(search),
    }
    contents = {"suggestions.csv": search.table().to_csv(index=False)}
    for name, records in rows.items():
        contents[f"{name}.md"] = search_tables.markdown(records, notes[name])
        label = latex.label_of("search", search.method, name)
        contents[f"{name}.tex"] = f"{latex.render(latex.of_records(records, notes[name], label))}\n"
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
