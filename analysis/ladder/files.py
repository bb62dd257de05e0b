"""Write the files of a ladder's report: tables, figures and the page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.compare import benchmark, effects, significance
from analysis.compare.decision import decide_sums
from analysis.compare.effects import METRICS_OF_EFFECTS
from analysis.compare.hypotheses import PAIRED_TESTS
from analysis.compare.network_check import compute_network_check
from analysis.compare.pools import pools_table
from analysis.figure import LADDER_FIGURES, Figure
from analysis.ladder import shift_tables, tables
from analysis.ladder.means import is_comparable, ladder_table
from analysis.ladder.results import LadderResults, last_epochs, samples
from analysis.load import Run, cached_per_run, load
from analysis.page.page import (
    Gallery,
    Page,
    Section,
    describe_programs,
    environment,
    in_order,
    steps,
    write_folder,
)
from analysis.published import compare_with
from analysis.tables.latex import label_of
from analysis.tables.render import body, in_files, markdown
from analysis.tables.table import Table
from analysis.text import NOTHING, Cell, capital, format_counts
from analysis.tidy import complaints, tied
from tune_calib.console import Part, Prose, Text
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.manifests import TunedManifest, TunedMethod
from tune_calib.results.selection import EVALUATION, describe_reads
from tune_calib.spec.metrics import METRICS, column, format_value, metrics_of_trials
from tune_calib.spec.names import SEARCH_MANIFEST, TUNED
from tune_calib.spec.reproduction import Comparison
from tune_calib.text import format_count, format_setting, nearest

_FEW_IMPORTS = 12  # of which a report shows each


def write_files(run: Run, test: str | None, options: Sequence[str], folder: Path) -> Text:
    if run.trials.empty:
        planned = format_count(len(run.manifest.planned), "trial")
        return Text([f"{run.out}: no result yet, {planned} planned"])
    if run.has_imports:
        if test is not None or run.shown or run.shows_network_check:
            raise UserError("a report over several imports takes no option but `intervals`")
        return write_benchmark(run, folder)
    if test is not None and test not in PAIRED_TESTS:
        raise UserError(f"unknown `test` {test!r}{nearest(test, list(PAIRED_TESTS))}")
    if test is not None and not significance.are_rivals(run):
        raise UserError("compares methods; the rungs of a ladder build on each other", "test")
    results = LadderResults(run, test or PAIRED_TESTS[0])
    make_page = partial(page, results, options=options)
    remarks, lines = write_folder(
        run.out, folder, _texts(results), in_order(LADDER_FIGURES), results, make_page
    )
    parts: list[Part] = [tables.ladder(run)]
    for table in (
        pools_table(run), shift_tables.learning_table(run), tables.recipes(run), _tuned_table(run)
    ):  # fmt: skip
        if table.records:
            parts += [table.caption, replace(table, caption="")]
    if commands := _list_commands(run):
        parts += ["to repeat a tuned method alone:", *commands]
    bad = run.trials[run.trials["status"] != "done"].fillna({"message": "no message"})
    reasons = bad["rung_label"] + ": " + bad["status"] + ", " + bad["message"]
    parts += [Prose(f"{count} x {text}") for text, count in Counter(reasons).items()]
    return Text([*parts, *map(Prose, [*tables.weak_heads(run), *remarks]), *lines])


def write_benchmark(run: Run, folder: Path) -> Text:
    result = benchmark.benchmark([run.out])
    view = benchmark.view(result)
    (main,) = view.tables
    of_each = import_tables(run)
    texts = in_files(main, view.frame)
    for table in of_each:
        texts |= in_files(table)
    texts["experiments.csv"] = benchmark.tidy_scores(result).to_csv(index=False)
    figures = [LADDER_FIGURES["critical_difference"]]
    programs = describe_programs(run.trials)
    if len(run.manifest.imports) <= _FEW_IMPORTS:
        figures += map(_reliability, run.by_import())

    def make_page(gallery: Gallery, files: Sequence[str]) -> str:
        sections = [
            Section("results", "Results", tables=[main]),
            Section("imports", "Imports", tables=of_each),
            Section("figures", "Figures", gallery.remarks, figures=gallery.pictures),
            Section("plan", "Plan and status", tables=[tables.unfinished(run)]),
            Section("environment", "Environment", tables=[environment(run.trials)]),
        ]
        return Page(
            title=run.manifest.title,
            setting=run.manifest.setting,
            network_check="",
            state=f"{format_counts(run.counts())} of {len(run.manifest.planned)} planned trials.",
            troubles=[*complaints(run), *programs],
            sections=sections,
            steps=steps(run.trials, run.manifest.command, []),
            files=files,
        ).render()

    remarks, lines = write_folder(run.out, folder, texts, figures, result, make_page)
    shown = of_each if run.shows_intervals else []
    return Text([main, *map(Prose, [*programs, *remarks]), *shown, *lines])


def import_tables(run: Run) -> list[Table]:
    if run.intervals.empty and len(run.manifest.imports) > _FEW_IMPORTS:
        return []  # ``experiments.csv`` has the scores
    of_each = []
    for part in run.by_import():
        table = tables.ladder(replace(part, shows_intervals=not run.intervals.empty))
        key = part.manifest.title.replace("/", "-")
        of_each.append(replace(table, key=key, label=f"{table.label}-{key}", is_main=False))
    return of_each


def _reliability(part: Run) -> Figure:
    """Return the figure of one import, since the bins of several networks are not pooled."""
    figure, results, title = LADDER_FIGURES["reliability"], LadderResults(part), part.manifest.title
    return replace(
        figure,
        name=f"reliability-{title.replace('/', '-')}",
        title=f"{figure.title}, {title}",
        draw=lambda _: figure.draw(results),
        caption=lambda _: figure.caption(results),
    )


def load_run(
    out: AnyPath, published: str | None, regime: bool, metrics: tuple[str, ...], intervals: bool
) -> Run:
    run = replace(load(out), shows_network_check=regime, shown=metrics, shows_intervals=intervals)
    if published is not None:
        run = compare_with(run, published)
    if run.trials.empty:
        return run
    for metric in run.shown:
        if metric not in METRICS:
            raise UserError(f"unknown metric {metric!r}{nearest(metric, metrics_of_trials())}")
        if not METRICS[metric].is_of_trials:
            raise UserError(
                f"{METRICS[metric].title} needs foreign images besides the test split: run the "
                "command again with `shift`, which adds a table of shift sets"
            )
        if run.trials.reindex(columns=[column("test", metric)]).isna().all(axis=None):
            raise UserError(
                f"no trial has {METRICS[metric].title} on test; the version that wrote these "
                "results did not record it"
            )
    if run.shows_intervals and run.intervals.empty:
        raise UserError("no trial has intervals; run the command again with `bootstrap` 1000")
    return run


def _texts(results: LadderResults) -> dict[str, str]:
    run = results.run
    files = in_files(tables.ladder(run), ladder_table(run))
    recipe_table, tuned_table = tables.recipes(run), _tuned_table(run)
    if recipe_table.records:
        files["ladder.md"] += f"\n{recipe_table.caption}\n\n{body(recipe_table)}\n"
        texts = pd.DataFrame(list(recipe_table.records)).map(attrgetter("text"))
        files |= in_files(recipe_table, texts)
        del files["recipes.md"]
    if tuned_table.records:
        texts = pd.DataFrame(list(tuned_table.records)).map(attrgetter("text"))
        files |= in_files(tuned_table, texts.assign(command=_list_commands(run)))
    if weak := tables.weak_heads(run):
        files["ladder.md"] += "".join(f"\n- {line}" for line in weak) + "\n"
    settings = tables.rung_settings(run)
    files["settings.md"] = f"{run.manifest.setting}.\n"
    if settings.records:
        files["settings.md"] += f"\n{markdown(settings)}\n"
    if len(results.intervals):
        files["intervals.csv"] = results.intervals.to_csv(index=False)
    for shift in shift_tables.shift_tables(run):
        files |= in_files(shift_tables.table(run, shift), shift_tables.means(run, shift))
    files |= in_files(shift_tables.learning_table(run), shift_tables.curve(run))
    files |= in_files(pools_table(run))
    last = last_epochs(run, results.statistics)
    files |= in_files(samples(run, last), last)
    if run.manifest.design is not None:
        views = [effects.view(run, metric) for metric in METRICS_OF_EFFECTS]
        files["effects.md"] = "\n\n".join(view.render("markdown") for view in views) + "\n"
        frames = pd.concat([view.frame for view in views], ignore_index=True)
        files["effects.csv"] = frames.to_csv(index=False)
    if results.verdicts:
        views = list(map(significance.view, results.verdicts))
        files["significance.md"] = "\n\n".join(view.render("markdown") for view in views) + "\n"
        files["significance.csv"] = f"{views[0].render('csv')}\n"
    return files


def page(
    results: LadderResults, gallery: Gallery, files: Sequence[str], options: Sequence[str] = ()
) -> str:
    run, manifest = results.run, results.run.manifest
    planned, ended = len(manifest.planned), format_counts(run.counts())
    state = f"Not all of the {planned} planned trials are done: {ended}."
    if set(run.counts()) == {"done"}:
        state = f"Complete: all {planned} planned trials are done."
    # The header shows the setting and the network check.
    main = tables.ladder(run).with_requested().without_blank()
    main = replace(main, notes=tables.notes(run), caption=main.caption.partition("\n")[2])
    is_evaluation = run.out.name == EVALUATION and (run.out.parent / SEARCH_MANIFEST).exists()
    main_tables = [main, pools_table(run), _tuned_table(run), shift_tables.learning_table(run)]
    main_tables += [tables.drawn_intervals(run), tables.recipes(run)]
    shifts = [shift_tables.table(run, shift) for shift in shift_tables.shift_tables(run)]
    tested: dict[str, Table] = {}  # the table of spreads is that of every test
    for verdict in results.verdicts:
        tested |= {table.key: table for table in significance.view(verdict).tables}
    single = samples(run, last_epochs(run, results.statistics))
    single_trials = [tables.trials(run), tables.intervals(run, results.intervals)]
    sections = [
        Section("effects", "Effects of the steps", tables=effects.tables_of_page(run)),
        Section("results", "Results", tables=main_tables),
        Section("shift", "Under shift", tables=shifts),
        Section("figures", "Figures", gallery.remarks, figures=gallery.pictures),
        Section("significance", "Significance", tables=list(tested.values())),
        Section("single-samples", "Single samples", tables=[single]),
        Section("plan", "Plan and status", tables=[tables.plan(run), tables.unfinished(run)]),
        Section("trials", "Trials", tables=single_trials),
        Section("settings", "Settings", tables=[tables.rung_settings(run)]),
        Section("environment", "Environment", tables=[environment(run.trials)]),
    ]
    lead, check = describe_best(run), compute_network_check(run)
    commands = steps(run.trials, manifest.command, options)
    if of_methods := _list_commands(run):
        commands["Repeat a tuned method alone."] = "\n".join(of_methods)
    return Page(
        title=manifest.title,
        lead=lead,
        details=manifest.setting,
        setting=tables.describe_setting(run),
        # The lead says that the over-confidence was not recorded.
        network_check=check.sentence if check.is_recorded or not lead else "",
        state=state,
        troubles=[*complaints(run), *tables.weak_heads(run)],
        sections=sections,
        steps=commands,
        files=files,
        links={"The search": "../report.html"} if is_evaluation else {},
    ).render()


def describe_best(run: Run) -> str:
    """Describe the best rung; return an empty text if fewer than two can be compared."""
    metric = METRICS[[*run.shown, "ece"][0]]
    rows = ladder_table(run, [metric.name]).dropna(subset="mean")
    means = rows.set_index("rung")["mean"].astype(float)
    if len(means) < 2 or metric.direction is None:
        return ""
    head = f"Of {len(means)} {run.row_name}s compared by {metric.title} on test"
    check = compute_network_check(run).brief
    ranking = list(tied(means).sort_values(ascending=metric.is_less_better, kind="stable").index)
    best, base = run.labels[ranking[0]], run.bases[ranking[0]].label
    value = format_value(metric.name, means[ranking[0]])
    if not is_comparable(run, metric.name)[best]:
        return f"{head}, none is the best, since {best} ({value}) may not be; {check}."
    others = [run.labels[rung] for rung in means.index if run.labels[rung] != best]
    comparisons = [Comparison(best, (other,), metric.name) for other in others]
    decisions = dict(zip(others, decide_sums(run, comparisons), strict=True))
    # The name says more than the numbers only if they show it.
    is_shown = all(decision.outcome == "better" for decision in decisions.values())
    title = "is the best" if is_shown else "has the best mean"
    name = f"{best}, the base," if best == base else best
    parts = [f"{name} {title} ({metric.title} {value})"]
    names = {base: base} if base in decisions else {}
    for runner_up in ranking[1:2]:
        label = run.labels[runner_up]
        names[label] = f"the runner-up {label}"
    parts += [decisions[label].relation_to(text) for label, text in names.items()]
    endings = dict.fromkeys(
        f"intervals over {decisions[label].over}" for label in names if not decisions[label].why
    )
    return "; ".join([f"{head}, {', '.join(parts)}", *endings, f"{check}."])


@cached_per_run
def _find_tuned(run: Run) -> TunedManifest | None:
    return TunedManifest.read(run.out) if (run.out / TUNED).exists() else None


def _tuned_table(run: Run) -> Table:
    manifest = _find_tuned(run)
    if manifest is None:
        return Table("tuned", "", [])
    head = f"{METRICS[manifest.metric].title} on select"
    records = []
    for method in manifest.methods:
        values = pd.Series([method.published_value, method.tuned_value], dtype=float)
        published, best = (Cell.number(manifest.metric, value) for value in values)
        if method.published_value is not None and not method.is_within:
            published = Cell(f"{published.text} (beyond the guard)", published.value)
        cells = {
            "method": Cell(method.label),
            "tuned settings": Cell(_describe_choice(method)),
            f"{head}, published": published,
            f"{head}, tuned": best,
            "searched": Cell.of(len(method.searched)),
            "suggestions": Cell.of(method.suggestions),
            "cost (s)": Cell.measured(method.cost_s) if method.folder else NOTHING,
            "published settings": Cell(_format_settings(method.published)),
        }
        records.append(cells)
    budget = format_count(manifest.suggestions, "suggestion")
    caption = (
        f"Each method was searched with {budget}, fewer if its settings have fewer values; "
        f"{manifest.rule}. Tuned settings that are not named are the published ones. Searched: the "
        f"number of settings. {capital(describe_reads(manifest.reads))}."
    )
    label = label_of("tuned", run.manifest.dataset)
    first = [*records[0]][1:]
    return Table("tuned", caption, records, label=label, first=first, is_one_tabular=True)


def _list_commands(run: Run) -> list[str]:
    manifest = _find_tuned(run)
    return [] if manifest is None else [method.command for method in manifest.methods]


def _describe_choice(method: TunedMethod) -> str:
    if not method.folder:
        return "nothing to search"
    if method.tuned is None:
        return "none within the guard"
    published = method.published
    changed = {key: value for key, value in method.tuned.items() if published.get(key) != value}
    return _format_settings(changed) or "the published ones"


def _format_settings(settings: Mapping[str, Any]) -> str:
    texts = []
    for name, value in settings.items():
        text = f"{value:.3g}" if isinstance(value, float) else format_setting(value)
        texts.append(f"{name} {text}")
    return ", ".join(texts)
