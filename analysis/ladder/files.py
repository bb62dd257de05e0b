"""The files of a ladder's report: tables, figures, the page; and the text that is printed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from analysis.compare import significance_tables
from analysis.compare.paired import PAIRED_TESTS
from analysis.compare.regime import regime_of
from analysis.compare.significance import are_rivals
from analysis.figure import LADDER_FIGURES
from analysis.ladder import recipes, shift_tables, tables
from analysis.ladder.means import ladder_table
from analysis.ladder.options import Options
from analysis.ladder.results import LadderResults
from analysis.ladder.samples import last_epochs, samples
from analysis.load import Sweep, load
from analysis.page.figures import Gallery
from analysis.page.page import Link, Section, environment, list_files, render, steps, write_folder
from analysis.published import compare_with
from analysis.tables.render import body, in_files
from analysis.tidy import complaints
from tune_calib.console import Text
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.results.selection import EVALUATION
from tune_calib.spec.metrics import METRICS, column, metrics_of_trials
from tune_calib.spec.names import SEARCH_MANIFEST
from tune_calib.text import format_count, nearest


def write_files(out: AnyPath, options: Options, folder: Path) -> tuple[Text, list[str]]:
    """Write the files of a report.

    Args:
        out: folder of the sweep.
        options: of the report.
        folder: for the files.

    Returns:
        What to print, as ``report.write_report`` says, and the paths of the files.

    Raises:
        UserError: as ``report.write_report`` says.
    """
    sweep = sweep_of(out, options)
    if sweep.trials.empty:
        return Text([f"{out}: no result yet, {format_count(sweep.missing, 'trial')} planned"]), []
    _check_test(sweep, options.test)
    results = LadderResults(sweep, options.test or PAIRED_TESTS[0])
    names, gallery = write_folder(
        folder,
        _texts(results),
        LADDER_FIGURES,
        results,
        lambda gallery, files: page(results, gallery, files, options.words()),
    )
    trained = [part for own in recipes.recipes(sweep) for part in (own.caption, own.bare)]
    lines = [*_troubles(sweep), *recipes.of_heads_below(sweep), *gallery.remarks]
    return Text([tables.ladder(sweep), *trained, *lines, *list_files(out, names)]), names


def sweep_of(out: AnyPath, options: Options) -> Sweep:
    """Load what a folder holds, as a table that is asked for shows it.

    Raises:
        UserError: it holds no sweep, or no result has what is asked for.
    """
    sweep = replace(
        load(out),
        shows_regime=options.regime,
        shown=options.metrics,
        shows_intervals=options.intervals,
    )
    if options.published is not None:
        sweep = compare_with(sweep, options.published)
    if not sweep.trials.empty:
        _check_shown(sweep)
    return sweep


def _check_test(sweep: Sweep, test: str | None) -> None:
    if test is None:
        return
    if test not in PAIRED_TESTS:
        raise UserError(f"unknown --test {test!r}{nearest(test, list(PAIRED_TESTS))}")
    if not are_rivals(sweep):
        raise UserError("--test is of methods side by side; the steps of a ladder are no rivals")


def _check_shown(sweep: Sweep) -> None:
    for metric in sweep.shown:
        if metric not in METRICS:
            raise UserError(f"unknown metric {metric!r}{nearest(metric, metrics_of_trials())}")
        if not METRICS[metric].is_of_trials:
            raise UserError(
                f"{METRICS[metric].title} is not of the test split alone: of foreign images it is "
                "in the table of what the sweep was looked at on by --shift"
            )
        name = column("test", metric)
        if name not in sweep.trials or sweep.trials[name].isna().all():
            raise UserError(
                f"no result here has {METRICS[metric].title} on test; those of before it was "
                "recorded have it not"
            )
    if sweep.shows_intervals and sweep.intervals.empty:
        raise UserError(
            "no result here has intervals; run the sweep's command again with --bootstrap 1000"
        )


def _texts(results: LadderResults) -> dict[str, str]:
    """Every table by name of its file."""
    sweep = results.sweep
    contents = in_files(tables.ladder(sweep), ladder_table(sweep))
    for own in recipes.recipes(sweep):
        contents["ladder.md"] += f"\n{own.caption}\n\n{body(own)}\n"
        printed = pd.DataFrame([{h: c.text for h, c in row.items()} for row in own.records])
        contents |= {n: t for n, t in in_files(own, printed).items() if n != "recipes.md"}
    if below := recipes.of_heads_below(sweep):
        contents["ladder.md"] += "\n" + "".join(f"- {line}\n" for line in below)
    if len(results.intervals):
        contents["intervals.csv"] = results.intervals.to_csv(index=False)
    for shift in shift_tables.shift_tables(sweep):
        contents |= in_files(shift_tables.table(sweep, shift), shift_tables.means(sweep, shift))
    last = last_epochs(sweep, results.statistics)
    for own in samples(sweep, last):
        contents |= in_files(own, last)
    if results.verdicts:
        views = [significance_tables.view(verdict) for verdict in results.verdicts]
        told = "\n\n".join(view.render("markdown") for view in views)
        contents["significance.md"] = f"{told}\n"
        contents["significance.csv"] = f"{views[0].render('csv')}\n"
    return contents


def _troubles(sweep: Sweep) -> list[str]:
    """Return one line for each way in which a trial ended badly."""
    bad = sweep.trials[sweep.trials["status"] != "done"]
    messages = bad["message"].fillna("no message")
    told = Counter(zip(bad["rung_label"], bad["status"], messages, strict=True))
    return [f"{n} x {label}: {state}, {message}" for (label, state, message), n in told.items()]


def page(
    results: LadderResults, gallery: Gallery, files: Sequence[str], options: Sequence[str] = ()
) -> str:
    """Return the page as HTML.

    Args:
        results: what it shows.
        gallery: its figures.
        files: paths of every other file of the report.
        options: of ``tune-calib report``, as given.
    """
    sweep = results.sweep
    # Of the look of a search at test, to that search.
    is_look = sweep.out.name == EVALUATION and (sweep.out.parent / SEARCH_MANIFEST).exists()
    return render(
        title=sweep.manifest.title,
        setting=sweep.manifest.setting,
        regime=regime_of(sweep).sentence,
        state=_state(sweep),
        troubles=[*complaints(sweep), *recipes.of_heads_below(sweep)],
        sections=[
            Section(
                "results",
                "Results",
                tables=[
                    tables.ladder(sweep).without_blank(),
                    *tables.drawn_intervals(sweep),
                    *recipes.recipes(sweep),
                ],
            ),
            Section(
                "shift",
                "Under shift",
                tables=[shift_tables.table(sweep, own) for own in shift_tables.shift_tables(sweep)],
            ),
            Section("figures", "Figures", gallery.remarks, figures=gallery.pictures),
            Section(
                "significance",
                "Significance",
                tables=significance_tables.for_page(results.verdicts),
            ),
            Section(
                "single-samples",
                "Single samples",
                tables=samples(sweep, last_epochs(sweep, results.statistics)),
            ),
            Section(
                "plan",
                "Plan and what was done",
                tables=[tables.plan(sweep), *tables.unfinished(sweep)],
            ),
            Section(
                "trials",
                "Trials",
                tables=[tables.trials(sweep), *tables.intervals(results.intervals)],
            ),
            Section("settings", "Settings", tables=tables.rung_settings(sweep)),
            Section("environment", "Environment", tables=environment(sweep.trials)),
        ],
        steps=steps(sweep.trials, sweep.manifest.command, options),
        files=files,
        links=[Link("The search", "../report.html")] if is_look else [],
    )


def _state(sweep: Sweep) -> str:
    counts = sweep.counts()
    planned = len(sweep.manifest.planned)
    if set(counts) == {"done"}:
        return f"Complete: all {planned} planned trials are done."
    told = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"Not every trial has numbers: of {planned} planned, {told}."
