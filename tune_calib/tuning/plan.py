"""Plans: runs that are completed one after the other, with the work that their folders lack."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from analysis.compare.hypotheses import describe_blocks
from analysis.tables.table import table_of
from tune_calib.console import Prose, Text, echo
from tune_calib.engine.artifacts import has_network
from tune_calib.engine.execution import refuse_captured
from tune_calib.engine.machine import environment_of, require_environment
from tune_calib.files.paths import AnyPath, require_writable
from tune_calib.files.store import Store
from tune_calib.progress import count_progress, report_progress
from tune_calib.results.folders import describe_unloaded
from tune_calib.results.manifests import RunManifest, SearchManifest
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.gpus import GPUS, Gpu
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.yaml_text import Position
from tune_calib.tuning.caption import describe_set
from tune_calib.tuning.context import Context
from tune_calib.tuning.describe import (
    Forecast,
    describe_images,
    describe_machine,
    describe_run,
    find_needs,
    format_time,
)
from tune_calib.tuning.folder import Result, spent_s
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.progress.screen import show_driver
from tune_calib.tuning.reuse import Copies
from tune_calib.tuning.search.run import SearchRun, count_suggestions
from tune_calib.tuning.search.storage import lost_database
from tune_calib.tuning.work.execution import open_executor
from tune_calib.tuning.work.executor import refuse_here
from tune_calib.tuning.work.jobs import RemainingWork
from tune_calib.tuning.work.shared import driving_or_working

AnyRun = LadderRun | SearchRun
NOTHING = "this is a dry run; no trial was started"
TITLES = ["folder", "planned", "done", "networks to train", "heads to train", "extra evaluations"]


@dataclass(frozen=True)
class Stage:
    """A run of a plan, and what its folder does not cover yet."""

    run: AnyRun
    work: RemainingWork
    # Builds the run from the results of the stages before; ``run`` stands for it in a forecast.
    build: Callable[[Sequence[Result]], AnyRun] | None = None

    @property
    def name(self) -> str:
        return self.run.location.out.name


@dataclass(frozen=True)
class Plan:
    """The stages of a command, or of an entry of a file; the last one gives the result."""

    stages: tuple[Stage, ...]
    position: Position = ()  # of its entry in a file, or of the method of a search
    hours: float | None = None  # budget of a search, which then has the length of its first batch
    measured: AnyPath | None = None  # folder of earlier rows, by which a forecast estimates hours

    @property
    def run(self) -> AnyRun:
        """Return the run that gives the result, as far as it is known before the others."""
        return self.stages[-1].run

    @property
    def name(self) -> str:
        return self.stages[-1].name

    @property
    def entry(self) -> str:
        return str(self.position[1])


def build_plan(run: AnyRun) -> Plan:
    check_run(run)
    return Plan((Stage(run, run.plan()),))


def execute(plan: Plan, context: Context) -> Result:
    """Complete the stages of a plan, skipping finished trials; return the result of the last."""
    if plan.hours is not None:
        return _search_for(plan.run, plan.hours, context)
    results: list[Result] = []
    for number, stage in enumerate(plan.stages, start=1):
        label = ""
        if len(plan.stages) > 1:
            label = f"{stage.name}, {number} of {len(plan.stages)} runs"
        run = stage.run if stage.build is None else stage.build(results)
        result = execute_run(run, context, label)
        if result.stopped and number < len(plan.stages):  # a comparison needs all of its searches
            return replace(result, stopped=f"{stage.name}: {result.stopped}")
        results.append(result)
    return results[-1]


def _search_for(run: AnyRun, hours: float, context: Context) -> Result:
    """Extend a search until, by the time of its trials so far, a batch would exceed a budget."""
    assert isinstance(run, SearchRun)
    earlier_s, started = spent_s(run.out) / run.at_once, time.monotonic()
    ended, _ = count_suggestions(run.out, run.location.study_storage) or (0, 0)
    result: Result | None = None
    while True:
        spent = earlier_s + time.monotonic() - started
        further = affordable(ended, spent, 3600 * hours, batch=count_batch(run))
        if result is not None and not further:
            return result
        result = execute_run(replace(run, length=max(1, ended + further)), context)
        if result.stopped or len(result.state.results) <= ended:  # there are no more points
            return result
        ended = len(result.state.results)


def affordable(ended: int, spent_s: float, limit_s: float, batch: int) -> int:
    if not ended:
        return batch
    fitting = int(ended * min(1.0, limit_s / spent_s - 1))
    return max(0, fitting // batch * batch)


def count_batch(run: SearchRun) -> int:
    """Return the number of suggestions that the machine tries at the same time."""
    if run.definition.candidates.kind == "head":
        return run.definition.population * run.at_once
    return run.at_once


def describe(plan: Plan) -> Text | str:
    if len(plan.stages) > 1:
        out = plan.run.location.out
        return describe_file(str(out), [plan], plan.measured or out)
    (stage,) = plan.stages
    text = describe_run(stage.run, stage.work, is_dry=True)
    return "\n".join([text, *_list_blocks([stage.run]), NOTHING])


def describe_file(
    subject: str, plans: Sequence[Plan], out: AnyPath, gpu_model: str | None = None
) -> Text:
    """Describe the plans of an experiment file, for this machine or a named GPU."""
    gpu: Gpu | None = GPUS[gpu_model] if gpu_model else None
    sums = Forecast(replace(plans[0].run.location, out=out), gpu)
    rows, runs = [], list[AnyRun]()
    trained, names = 0, dict[str, dict[str, None]]()  # of the entries that a text describes
    for plan in count_progress("estimating the time of entries", plans, len(plans)):
        for stage in plan.stages:
            run = stage.run
            needs = find_needs(run, stage.work, plan.hours, reads_shifts=gpu is None)
            networks = sums.add(run, needs)
            trained += networks
            row: list[Any] = [stage.name, needs.planned, needs.done, networks, needs.heads]
            row.append("unknown" if needs.evaluations is None else needs.evaluations)
            if needs.planned is None:
                row[1], row[4] = f"{needs.hours:.3g} h more", "unknown"
            rows.append(row)
            runs.append(run)
            texts = [run.resolved.recipe_caption or "no recipe", describe_set(run.resolved)]
            if not needs.is_over:
                texts.append(describe_images(run, is_elsewhere=gpu is not None))
            if gpu is None:
                texts.append(describe_machine(run))
            for text in filter(None, texts):
                subject_of = plan.entry if plan.position else stage.name
                names.setdefault(text, {})[subject_of] = None
    lines = [f"{', '.join(described)}: {text}" for text, described in names.items()]
    in_store = f"{len(sums.in_store)} already in {plans[0].run.location.store}"
    lines += [f"networks: {trained} to train, {in_store}", *_list_blocks(runs)]
    where = "this machine" if gpu is None else f"one {gpu.name}"
    lines += [f"time on {where}: {format_time(sums)}", *sums.sources.values()]
    if gpu is not None:
        lines.append(f"  peak rates of the {gpu.name}: {gpu.source}")
    elif any(run.location.gpus for run in runs) and not torch.cuda.is_available():
        lines.append(f"for the hours on a GPU, name it by `gpu_model`: {', '.join(GPUS)}")
    return Text([f"{subject}; {NOTHING}", table_of(TITLES, rows), "", *map(Prose, lines)])


def _list_blocks(runs: Sequence[AnyRun]) -> list[str]:
    blocks: Counter[str] = Counter()
    methods: dict[str, int] = {}
    for run in runs:
        if isinstance(run, LadderRun) and not run.is_search:
            blocks[run.name] += run.new_manifest.blocks
            methods[run.name] = len({trial.rung for trial in run.planned_trials})
    lines = []
    for name, count in methods.items():
        if count > 1:
            lines.append(f"tests of {name}: {describe_blocks(blocks[name], count)}")
    return lines


def check_run(run: AnyRun) -> None:
    """Refuse missing data, wrong settings and the folder of another run."""
    describe_unloaded(run.location.out, is_run=True)
    data = run.planned_trials[0].spec.data
    if not run.location.replay:
        DATASETS[data.dataset].locate(run.location.data_root)
    for trial in run.planned_trials:
        refuse_captured(trial.spec.network.execution, has_gpu=run.location.gpus > 0)
    run.check()
    run.build_manifest()


def execute_run(run: AnyRun, context: Context, label: str = "") -> Result:
    """Complete a run, skipping finished trials; ``label`` is for the live view."""
    location, out = run.location, run.location.out
    report_progress("planning trials")
    # Refuse as much as possible before the folder is created.
    check_run(run)
    work = run.plan()
    everywhere = environment_of(trial.spec for trial in run.planned_trials)
    refuse_here(location.address, work.needs)
    if work.needs and not location.uses_ray:
        for trial in run.planned_trials:
            require_environment(trial.spec)
    with (
        driving_or_working(location, everywhere),
        show_driver(out, context.view.tracker),
        lost_database(location.study_storage),
    ):
        if label:
            context.view.tracker.set(entry=label)
        # Again, since another driver may have extended the run meanwhile.
        manifest, work = run.build_manifest(), run.plan()
        copies = read_copies(run, work)
        state: Any = run.open(work)
        if type(manifest).find(out) is None:  # no plan could be kept
            manifest.write(out)
        with context.following(out, manifest.identity) as of_run:
            if state.is_over:
                echo(f"nothing is left to do in {out}", err=True)
            else:
                refuse_here(location.address, state.needs)
                echo(describe_run(run, work), err=True)
                if isinstance(run, LadderRun):
                    state = run.reuse(state, copies)
            if state.is_over:
                _write_plan(run, manifest)
                return run.finish(state)
            provenance = location.build_provenance(
                sweep=manifest.identity,
                ladder=run.name,
                is_search=run.is_search,
                recipe=manifest.recipe.told if manifest.recipe else None,
                plugins=list(map(Plugin.plain, run.plugins)),
                digests=copies.digests,
            )
            with open_executor(location, state.needs, everywhere, provenance, of_run) as executor:
                _write_plan(run, manifest)
                view = of_run.view
                for source in run.sources(state, provenance, view.tracker):
                    with view.phase(source.title, source.units, source.unit, source.kinds):
                        state.errors.update(executor.run(source))
        return run.finish(state)


def _write_plan(run: AnyRun, manifest: RunManifest | SearchManifest) -> None:
    """Write what is planned: before the first row, and after all that may fail."""
    for record, folder in run.records:
        record.write(folder)
    manifest.write(run.location.out)


def read_copies(run: AnyRun, work: RemainingWork) -> Copies:
    """Read the data of a run; refuse another copy than before, and a store closed to networks."""
    location, store = run.location, Store(run.location.store)
    if location.replay:
        return Copies({}, None)
    specs = [] if work.is_over else [trial.spec for trial in run.planned_trials]
    copies = Copies.read(specs, location.data_root, store)
    if not work.is_over:
        copies.refuse_other(location.out)
    missing = [job.network_id for job in work.networks if not has_network(job.first.spec, store)]
    if missing:
        require_writable(location.store, f"networks/{missing[0]}")
    return copies
