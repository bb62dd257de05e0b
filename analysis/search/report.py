"""The report of a search: tables, figures, a page, and the text that is printed."""

from pathlib import Path

from tabulate import tabulate

from analysis import latex, style
from analysis.ladder import page_tables
from analysis.page import page
from analysis.page.page import Section
from analysis.search import figures as search_figures
from analysis.search import parallel
from analysis.search import tables as search_tables
from analysis.search.load import Search, load_search
from tune_calib.names import SEARCH_EVALUATED, legend
from tune_calib.places import Place, folder_to_fill
from tune_calib.remarks import of_reads
from tune_calib.results import atomic_write

_DRAW = {
    "history": search_figures.draw_history,
    "sensitivity": search_figures.draw_sensitivity,
    "importance": search_figures.draw_importance,
    "heat_map": search_figures.draw_pair,
    "parallel": parallel.draw_parallel,
    "front": search_figures.draw_front,
    "share": search_figures.draw_shares,
}
_UNDRAWN = {
    "history": "no suggestion is done",
    "sensitivity": "no setting has two values among the suggestions that are done",
    "heat_map": "no two settings have two values each among the suggestions that are done",
    "parallel": "no two settings have two values each among the suggestions that are done",
    "front": "no suggestion is done",
    "share": "fewer than two suggestions are within the guard",
}
CAPTIONS = {
    "history": (
        "History of the search",
        "Each suggestion in the order in which it was made; the line is the best within the guard "
        "so far. Marks at the upper edge have no value.",
    ),
    "sensitivity": (
        "The metric over the most important settings",
        "The other settings differ from mark to mark. Squares: the median of parts with equally "
        "many suggestions, the band their quartiles.",
    ),
    "importance": (
        "Importance of the settings",
        "How far the best suggestions are spread otherwise than all (PED-ANOVA).",
    ),
    "heat_map": ("The metric over the two most important settings", "Empty: not tried."),
    "parallel": (
        "Parallel coordinates",
        "A line a suggestion, lighter is better; settings from the most important one on the left.",
    ),
    "front": (
        "What no other suggestion beats in both metrics",
        "The guard counts accuracy lost against the baseline of the same network.",
    ),
    "share": (
        "How wrong one may be",
        "Share of the suggestions within a distance of the best that keeps the guard; those "
        "beyond the guard or without a value count as far away.",
    ),
}


def write_search_report(out: Place) -> str:
    """Write ``tables/``, ``figures/`` and ``report.html`` of a search.

    Args:
        out: its folder.

    Returns:
        What to print: the best suggestions, what failed or is missing, the files written.

    Raises:
        UserError: the folder holds no search or no result, or a file of it is damaged.
    """
    search = load_search(out)
    if not search.outcome.suggestions:
        return f"{out}: no suggestion has ended, {search.outcome.planned} planned"
    with folder_to_fill(out) as folder:
        written, undrawn = _write_all(search, folder)
        names = [path.relative_to(folder).as_posix() for path in written]
    best = tabulate(search_tables.best_rows(search), headers="keys", disable_numparse=True)
    lines = [
        best,
        *legend(search.trials["flags"]),
        _state(search),
        *_troubles(search),
        *undrawn,
        "Written:",
    ]
    return "\n".join([*lines, *(f"  {out / name}" for name in names)])


def _write_all(search: Search, out: Path) -> tuple[list[Path], list[str]]:
    """Write every file of a report; also gives a line for each figure that there is not."""
    drawn = _write_figures(search, out / "figures")
    written = [*_write_tables(search, out / "tables"), *drawn]
    names = {path.stem for path in drawn}
    reasons = {**_UNDRAWN, "importance": search.outcome.importance.statement}
    undrawn = [f"{name}: not drawn, {reasons[name]}" for name in _DRAW if name not in names]
    files = [path.relative_to(out).as_posix() for path in written]
    atomic_write(out / "report.html", _page(search, drawn, undrawn, files).encode())
    return [*written, out / "report.html"], undrawn


def _page(search: Search, drawn: list[Path], undrawn: list[str], files: list[str]) -> str:
    tables = search_tables.page_tables(search)
    note = f"{search.ended()} suggestions."
    captions = {key: (title, f"{text} {note}") for key, (title, text) in CAPTIONS.items()}
    figures = page.figures_of(drawn, captions)
    return page.fill(
        title=f"Search of {search.method}",
        setting=_setting(search),
        state=_state(search),
        troubles=_troubles(search),
        sections=[
            Section("results", "Results", tables=[tables["best"]]),
            Section("figures", "Figures", undrawn, figures=figures),
            Section("settings", "Settings", tables=[tables["importance"]]),
            Section("robustness", "How wrong one may be", tables=[tables["share"]]),
            Section("suggestions", "Suggestions", tables=[tables["suggestions"]]),
            Section("environment", "Environment", tables=page_tables.environment(search.trials)),
        ],
        steps=page.steps(search.trials, "\n".join(search.commands), []),
        files=files,
    )


def _write_tables(search: Search, folder: Path) -> list[Path]:
    notes = search_tables.notes(search)
    rows = {
        "best": search_tables.best_rows(search),
        "importance": search_tables.importance_rows(search),
        "share": search_tables.share_rows(search),
    }
    texts = {"suggestions.csv": search.table().to_csv(index=False)}
    for name, records in rows.items():
        table = tabulate(records, headers="keys", tablefmt="github", disable_numparse=True)
        texts[f"{name}.md"] = f"{table}\n\n{notes[name]}\n"
        label = latex.label_of("search", search.method, name)
        texts[f"{name}.tex"] = f"{latex.render(latex.of_records(records, notes[name], label))}\n"
    for name, text in texts.items():
        atomic_write(folder / name, text.encode())
    return [folder / name for name in texts]


def _write_figures(search: Search, folder: Path) -> list[Path]:
    style.apply()
    return [
        path
        for name, draw in _DRAW.items()
        if (figure := draw(search)) is not None
        for path in style.save(figure, folder, name)
    ]


def _setting(search: Search) -> str:
    question = search.manifest.question
    datasets = ", ".join(sorted(search.trials["dataset"].dropna().unique()))
    backbones = ", ".join(sorted(search.trials["backbone"].dropna().unique()))
    sampler = f"{question.sampler} sampler, seed {question.sampler_seed}"
    return f"{datasets}; {backbones}; {sampler}; select split, {search.seeds()}"


def _state(search: Search) -> str:
    planned, asked = search.outcome.planned, search.outcome.asked
    if "missing" in search.counts():
        return f"INCOMPLETE: of {planned} planned suggestions, {search.ended()}."
    more = f" {asked} were asked for, and there are no more points." if planned < asked else ""
    return f"Complete: all {planned} planned suggestions ended ({search.ended()}).{more}"


def _troubles(search: Search) -> list[str]:
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
