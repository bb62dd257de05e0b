"""Write the files of a search's report: tables, figures and the page."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from analysis.compare.hypotheses import describe_change
from analysis.compare.network_check import compute_baseline_check
from analysis.figure import SEARCH_FIGURES
from analysis.load import load
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
from analysis.search import tables
from analysis.search.load import SearchResults, load_search
from analysis.search.summary import summarise
from analysis.tables.render import in_files
from analysis.tables.table import Table
from analysis.text import capital
from tune_calib.console import Part, Prose, Text
from tune_calib.files.paths import AnyPath
from tune_calib.results import selection
from tune_calib.results.manifests import RUN_MANIFEST
from tune_calib.spec import plugins
from tune_calib.spec.datasets import flatten
from tune_calib.spec.metrics import METRICS, column, format_value
from tune_calib.spec.names import SEARCH_EVALUATED, legend
from tune_calib.text import format_count, format_setting, format_yaml


def write_files(out: AnyPath, folder: Path) -> Text:
    search = load_search(out)
    if not search.outcome.suggestions:
        planned = search.outcome.planned
        return Text([f"{out}: no suggestion has ended, {planned} planned"])
    texts = {"suggestions.csv": search.table().to_csv(index=False)}
    built = [tables.best(search), tables.importance(search), tables.share(search)]
    for table in (*built, *tables.sensitivity(search)):
        texts |= in_files(table)
    remarks, lines = write_folder(
        out, folder, texts, in_order(SEARCH_FIGURES), search, partial(_page, search)
    )
    return Text([describe(search), *map(Prose, remarks), *lines])


def describe(search: SearchResults) -> Text:
    check = f"{compute_baseline_check(search.trials).sentence}."
    sentences = [*legend(search.trials["flags"]), check, *summarise(search), *_troubles(search)]
    lines, outcome = list[Part](), search.outcome
    if outcome.chosen is not None:
        settings = {**search.fixed, **search.chosen}.items()
        use = outcome.command or " ".join(f"{key}={format_yaml(v)}" for key, v in settings)
        lines.append(f"chosen: trial {outcome.chosen} ({search.manifest.rule}): {use}")
        if not search.reads:
            words = ["tune-calib", "evaluate", str(search.out), "--seeds", "5"]
            words += plugins.as_options()
            lines.append(f"on the test split, once: {shlex.join(words)}")
    best = replace(tables.best(search), caption="", notes=())
    if (search.out / selection.EVALUATION / RUN_MANIFEST).exists():
        evaluation = _evaluation(search)
        lines += [*evaluation.tables, *map(Prose, evaluation.texts)]
    return Text([best, *tables.sensitivity(search), *map(Prose, sentences), *lines])


def _page(search: SearchResults, gallery: Gallery, files: Sequence[str]) -> str:
    links, evaluation = {}, []
    if (search.out / selection.EVALUATION / RUN_MANIFEST).exists():
        links = {"The evaluation on test": f"{selection.EVALUATION}/report.html"}
        evaluation = [_evaluation(search)]
    commands = "\n".join(record.command for record in search.manifest.commands)
    made = steps(search.trials, commands, [])
    if search.outcome.command:
        text = "Train the chosen suggestion again, with every setting that the search fixed."
        made[text] = search.outcome.command

    def rows(build: Callable[[SearchResults], Table]) -> list[Table]:
        table = build(search)
        # The key differs from those of figures; the header shows the network check.
        return [replace(table, key=f"{table.key}-rows", notes=())]

    state, *summary = summarise(search)
    by_setting = [*rows(tables.importance), *tables.sensitivity(search)]
    return Page(
        title=f"Search of {search.manifest.question.method}",
        lead=describe_choice(search),
        setting=_setting(search),
        network_check=compute_baseline_check(search.trials).sentence,
        state=state,
        troubles=_troubles(search),
        sections=[
            Section("results", "Results", tables=rows(tables.best)),
            *evaluation,
            Section("summary", "How it ended", texts=summary),
            Section("figures", "Figures", gallery.remarks, figures=gallery.pictures),
            Section("settings", "Settings", tables=by_setting),
            Section("robustness", "Distance from the best suggestion", tables=rows(tables.share)),
            Section("suggestions", "Suggestions", tables=rows(tables.suggestions)),
            Section("environment", "Environment", tables=[environment(search.trials)]),
        ],
        steps=made,
        files=files,
        links=links,
    ).render()


def describe_choice(search: SearchResults) -> str:
    metric, chosen = METRICS[search.metrics[0]], search.outcome.chosen
    table = search.table().set_index("number")
    done = format_count(int(table["mean"].notna().sum()), "finished suggestion")
    network = compute_baseline_check(search.trials).brief
    what = f"Of {done} for {search.manifest.question.method}, searched by {metric.title} on select"
    if chosen is None:
        return f"{what}, none keeps the accuracy within the guard; {network}."
    value = format_value(metric.name, float(table["mean"][chosen]))
    name = column("select", metric.name)
    trials = search.trials.reindex(columns=["spec_hash", "rung", "network_seed", "head_seed", name])
    rows = trials[trials["spec_hash"].isin(search.specs_of(chosen))]
    base = trials[trials["rung"] < 0].groupby("network_seed")[name].mean()
    # The difference from the baseline, by network or by head of one network.
    block = "network_seed"
    if rows["network_seed"].nunique() == 1 and rows["head_seed"].notna().any():
        block = "head_seed"
    differences = (rows[name] - rows["network_seed"].map(base)).groupby(rows[block]).mean()
    # Rounded as in paired tests, since differences in the last bit are not meaningful.
    change = differences.dropna().round(12).to_numpy()
    gain = "without a matched trial of the baseline"
    if len(change):
        gain = describe_change(metric.name, change, "the cross-entropy baseline")
    return f"{what}, number {chosen} is chosen ({metric.title} {value}), {gain}; {network}."


def _setting(search: SearchResults) -> str:
    question, titles = search.manifest.question, search.manifest.titles
    parts = []
    for kind in ("dataset", "backbone"):
        names = sorted(search.trials[kind].dropna().unique())
        parts.append(", ".join(titles.get(name, name) for name in names))
    fixed = flatten(question.given)
    for name in ("data.dataset", "data.imported", "data.found"):
        fixed.pop(name, None)
    if fixed:
        texts = [f"{name} {format_setting(value)}" for name, value in fixed.items()]
        parts.append(f"fixed: {', '.join(texts)}")
    sampler = f"{question.sampler} sampler, seed {question.sampler_seed}"
    return "; ".join([*parts, sampler, f"select split, {search.seeds()}"])


def _troubles(search: SearchResults) -> list[str]:
    counts = search.counts()
    bad = [status for status in ("diverged", "crashed") if status in counts]
    lines = [f"{counts[status]} suggestions {status}: they have no value" for status in bad]
    if (replay := search.manifest.replay) is not None:
        lines.insert(0, f"replayed, not trained: every value is an answer of {replay.describe()}")
    if "missing" in counts:
        lines.append(f"{counts['missing']} suggestions have not ended: tune-calib resume runs them")
    if search.outcome.chosen is None:
        lines.append("no suggestion keeps the accuracy within the guard: none is chosen")
    if search.reads is None:
        lines.append(f"{SEARCH_EVALUATED} is damaged: the number of test reads is unknown")
    elif search.reads:
        lines.append(selection.describe_reads(search.reads))
    return [*lines, *search.warnings(), *describe_programs(search.trials)]


def _evaluation(search: SearchResults) -> Section:
    run = load(search.out / selection.EVALUATION)
    texts = []
    if search.reads:
        texts.append(f"{capital(selection.describe_reads(search.reads))}.")
    trials = search.trials
    searched: dict[str, Any] = {selection.BASELINE: trials[trials["rung"] < 0].to_dict("records")}
    outcome = search.outcome
    # Defaults outside the space are not suggested.
    defaults = [entry.number for entry in outcome.suggestions if entry.point == outcome.defaults]
    numbers = {selection.DEFAULTS: next(iter(defaults), None), selection.CHOSEN: outcome.chosen}
    for label, number in numbers.items():
        is_suggested = trials["spec_hash"].isin(search.specs_of(number))
        searched[label] = trials[is_suggested].to_dict("records")
    fresh: list[Any] = run.trials.to_dict("records")
    table = tables.optimism(fresh, searched, search.metrics)
    if not table.records:
        return Section("on-test", "On test", [*texts, "No trial of the evaluation has ended."])
    note = f"{capital(selection.OPTIMISM)} ± is the standard deviation over the seeds."
    note += "".join(f" {line}." for line in legend(run.flags()))
    done = run.trials[run.trials["status"] == "done"].groupby("rung_label")
    columns = {column("test", metric): metric for metric in search.metrics}
    means: dict[Any, Any] = done[list(columns)].mean().rename(columns=columns).to_dict("index")
    if {selection.BASELINE, selection.CHOSEN} <= means.keys():
        values = means[selection.BASELINE], means[selection.CHOSEN]
        texts += selection.describe_no_gain(search.metrics, *values, split="test")
    return Section("on-test", "On test", texts, [replace(table, key="on-test-rows", caption=note)])
