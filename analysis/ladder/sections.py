"""The report page of a ladder: which sections it has, and what stands in them."""

from collections.abc import Sequence

from analysis.compare.regime import regime_of
from analysis.compare.significance_tables import for_page
from analysis.ladder import shift_tables, tables
from analysis.ladder.recipes import of_heads_below, recipes
from analysis.ladder.results import LadderResults
from analysis.ladder.samples import last_epochs, samples
from analysis.load import Sweep
from analysis.page.environment import environment, steps
from analysis.page.figures import Gallery
from analysis.page.page import Link, Section, render
from analysis.tidy import complaints
from tune_calib.results.selection import EVALUATION
from tune_calib.spec.names import SEARCH_MANIFEST


def page(
    results: LadderResults, gallery: Gallery, files: Sequence[str], options: Sequence[str] = ()
) -> str:
    """The page as HTML.

    Args:
        results: what it shows.
        gallery: its figures.
        files: paths of every other file of the report.
        options: of ``tune-calib report``, as given.
    """
    sweep = results.sweep
    return render(
        title=sweep.manifest.title,
        setting=sweep.manifest.setting,
        regime=regime_of(sweep).sentence,
        state=_state(sweep),
        troubles=[*complaints(sweep), *of_heads_below(sweep)],
        sections=_sections(results, gallery),
        steps=steps(sweep.trials, sweep.manifest.command, options),
        files=files,
        links=_links(sweep),
    )


def _links(sweep: Sweep) -> list[Link]:
    """To the search of which the sweep is the look at test."""
    is_look = sweep.out.name == EVALUATION and (sweep.out.parent / SEARCH_MANIFEST).exists()
    return [Link("The search", "../report.html")] if is_look else []


def _state(sweep: Sweep) -> str:
    counts = sweep.counts()
    planned = len(sweep.manifest.planned)
    if set(counts) == {"done"}:
        return f"Complete: all {planned} planned trials are done."
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"Not every trial has numbers: of {planned} planned, {told}."


def _sections(results: LadderResults, gallery: Gallery) -> list[Section]:
    sweep = results.sweep
    results_tables = [
        tables.ladder(sweep).without_blank(), *tables.drawn_intervals(sweep), *recipes(sweep)
    ]  # fmt: skip
    shifts = [shift_tables.table(sweep, shift) for shift in shift_tables.shift_tables(sweep)]
    judged = samples(sweep, last_epochs(sweep, results.statistics))
    plan = [tables.plan(sweep), *tables.unfinished(sweep)]
    trials = [tables.trials(sweep), *tables.intervals(results.intervals)]
    return [
        Section("results", "Results", tables=results_tables),
        Section("shift", "Under shift", tables=shifts),
        Section("figures", "Figures", gallery.remarks, figures=gallery.pictures),
        Section("significance", "Significance", tables=for_page(results.verdicts)),
        Section("single-samples", "Single samples", tables=judged),
        Section("plan", "Plan and what was done", tables=plan),
        Section("trials", "Trials", tables=trials),
        Section("settings", "Settings", tables=tables.rung_settings(sweep)),
        Section("environment", "Environment", tables=environment(sweep.trials)),
    ]
