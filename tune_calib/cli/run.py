"""The commands that run trials: ablate, compare, search, resume, evaluate, run."""

import json
import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib.cli.common import (
    exit_if_crashed,
    print_plan,
    print_settings,
    run_stoppable,
    write_overview,
)
from tune_calib.cli.defaults import format_typed
from tune_calib.cli.entry import as_option
from tune_calib.cli.options import DryRun, GpuModel, with_request
from tune_calib.cli.read import print_report, write_search_page
from tune_calib.console import Text, echo, shown
from tune_calib.documents import unseal
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, atomic_write, fetch_files, parse_path
from tune_calib.results.folders import is_finished, read_search_manifest
from tune_calib.spec import plugins
from tune_calib.spec.experiment import ExperimentFile, spell_keys
from tune_calib.spec.request import (
    AblateRequest,
    CompareRequest,
    EvaluateRequest,
    ResumeRequest,
    RunRequest,
    SearchRequest,
    format_command,
)
from tune_calib.spec.resolve import default_folder, resolve, resolve_ladder
from tune_calib.tuning.loggers.base import use_loggers

if TYPE_CHECKING:
    from tune_calib.experiments.run import Ended
    from tune_calib.tuning.search.run import SearchRun


@with_request(AblateRequest)
def ablate(request: AblateRequest, dry_run: DryRun = False) -> None:
    """Run an ablation ladder, skipping finished trials, and report it.

    Examples:
        tune-calib ablate mac_cal --seeds 5 --controls --out runs/demo
        tune-calib ablate fedlas --dataset cifar10 --data-root data --gpus 1/2
        tune-calib ablate mac_cal --head-seeds 5 --set head.gamma=0.9
    """
    _run_ladder(request, dry_run)


@with_request(CompareRequest)
def compare(request: CompareRequest, dry_run: DryRun = False) -> None:
    """Compare methods; head and post-hoc methods use a network trained with cross entropy.

    Examples:
        tune-calib compare ce ls+mac_cal+temperature --seeds 3
        tune-calib compare --all posthoc --dataset cifar10 --data-root data
        tune-calib compare ce temperature --imported mine --store store
    """
    _run_ladder(request, dry_run)


def _run_ladder(request: AblateRequest | CompareRequest, is_dry: bool) -> None:
    if not (is_dry or request.profile or request.shift or request.bootstrap):
        out = parse_path(default_folder(request))
        # This needs neither torch nor the data.
        if not use_loggers(out) and is_finished(out, format_typed()):
            echo(f"nothing is left to do in {out}", err=True)
            print_report(str(out))
            return
    ladder, resolved = resolve_ladder(request)  # names are refused before torch is imported

    from tune_calib.tuning.ladder import build_ladder_run
    from tune_calib.tuning.run import execute_run

    run = build_ladder_run(request, ladder, resolved, format_typed(), is_dry)
    if is_dry:
        print_plan(run)
        return
    location = run.location
    crashed = run_stoppable(location.command, lambda: execute_run(run, print_settings))
    print_report(str(location.out))
    if location.profile:
        echo(shown(_format_profiles(location.out)))
    exit_if_crashed(crashed, location.command, location.out)


def _format_profiles(out: AnyPath) -> str:
    """Format the time of an epoch of each network by phase, as a table."""
    from analysis.tables.table import table_of
    from tune_calib.tuning.folder import PROFILES

    files = fetch_files(out / PROFILES, "*.json")
    profiles = [unseal(copy.read_bytes(), path) for path, copy in files]
    if not profiles:
        return "no network was trained, so nothing was profiled"
    both = [(each, sum(each["seconds"].values())) for each in profiles]
    phases = dict.fromkeys(phase for each in profiles for phase in each["seconds"])
    rows = [
        [phase, *(f"{each['seconds'].get(phase, 0) / whole:.1%}" for each, whole in both)]
        for phase in phases
    ]
    rows.append(["images per second", *(f"{each['images'] / whole:.0f}" for each, whole in both)])
    heads = ["", *(f"{each['method']}, seed {each['seed']}" for each in profiles)]
    return Text([table_of(heads, rows)])


@with_request(SearchRequest)
def search(request: SearchRequest, dry_run: DryRun = False) -> None:
    """Search the hyper-parameters of a method on the select split; test is never read.

    Examples:
        tune-calib search mac_cal --trials 200 --seeds 3 --out runs/search
        tune-calib search ls --metric ece --metric nll --scheduler asha
        tune-calib search temperature --imported mine --store store
    """
    resolved = resolve(request)  # names are refused before torch is imported

    from tune_calib.tuning.search.run import build_search_run

    run = build_search_run(request, resolved, format_typed(), dry_run)
    if dry_run:
        print_plan(run)
    else:
        _search(run)


@with_request(ResumeRequest)
def resume(request: ResumeRequest) -> None:
    """Continue a search, skipping finished trials.

    Examples:
        tune-calib resume runs/search
        tune-calib resume runs/search --trials 400 --retry crashed
    """
    folder = parse_path(request.out)
    read_search_manifest(folder)  # refuses any other folder before slow imports

    from tune_calib.tuning.search.run import load_search

    run = load_search(folder, request.study_storage)
    location = replace(run.location, command=format_typed())
    length = max(request.trials, run.length)
    _search(replace(run, length=length, location=location, retry=request.retry))


def _search(run: "SearchRun") -> None:
    from tune_calib.tuning.run import execute_run
    from tune_calib.tuning.search.outcome import summarise

    again = shlex.join(["tune-calib", "resume", str(run.out), *plugins.as_options()])
    result = run_stoppable(again, lambda: execute_run(run, print_settings))
    echo(shown(summarise(result)))
    _rewrite_page(run.out, run.study_storage)
    exit_if_crashed(result.crashed, f"{again} --retry crashed", run.out)


def _rewrite_page(out: AnyPath, study_storage: str | None) -> None:
    """Rewrite the page of a search and that of its experiment file; print their paths."""
    write_search_page(out, study_storage)
    above = write_overview(out.parent) if (out.parent / "report.html").exists() else []
    echo("\n".join([f"page of the search: {out / 'report.html'}", *above]))


@with_request(EvaluateRequest)
def evaluate(request: EvaluateRequest, dry_run: DryRun = False) -> None:
    """Evaluate the selected trial of a search on the test split with fresh seeds.

    Examples:
        tune-calib evaluate runs/search --seeds 5
        tune-calib evaluate runs/search --seeds 10 --extend
    """
    folder = parse_path(request.out)
    read_search_manifest(folder)  # refuses any other folder before slow imports

    from analysis import report as ladder_report
    from tune_calib.tuning.search.evaluate import compare_splits, evaluate_choice, plan_evaluation

    # Without options that a continued evaluation must not repeat.
    again = format_command("evaluate", request, ("extend", "study_storage"), plugins.as_options())
    if dry_run:
        print_plan(plan_evaluation(request, again))
        return
    evaluated = run_stoppable(again, lambda: evaluate_choice(request, again, print_settings))
    echo(shown(ladder_report.write_report(evaluated.folder)))
    echo(shown(compare_splits(evaluated)))
    _rewrite_page(folder, request.study_storage)
    exit_if_crashed(evaluated.crashed, again, evaluated.folder)


def _print_schema(is_wanted: bool) -> None:
    if is_wanted:
        schema()
        raise typer.Exit


@with_request(RunRequest)
def run(
    request: RunRequest,
    dry_run: DryRun = False,
    gpu_model: GpuModel = None,
    print_schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            help="print the JSON schema of experiment files, for an editor, and exit",
            is_eager=True,
            callback=_print_schema,
        ),
    ] = False,
) -> None:
    """Run all entries of an experiment file, skipping finished trials.

    Examples:
        tune-calib run sweep.yaml --dry-run
        tune-calib run sweep.yaml
        tune-calib run sweep.yaml --address auto --retry crashed
    """
    refuse_gpu_model(gpu_model, dry_run)

    from tune_calib.experiments.file import read_experiment_file

    again = format_command("run", request, ("retry",), plugins.as_options())
    try:
        read = read_experiment_file(request.file).override(request.address, gpu_model)

        from tune_calib.experiments.entries import plan_entries
        from tune_calib.experiments.forecast.summary import describe_dry_runs
        from tune_calib.experiments.run import run_entries

        needs_data = not (dry_run and read.content.gpu_model)
        jobs = plan_entries(read, again, needs_data, dry_run)
        if dry_run:
            echo(as_option(shown(describe_dry_runs(read, jobs))))
            return
        # A list: a generator would do its work outside the block that catches signals.
        ended = run_stoppable(
            again, lambda: list(run_entries(read, jobs, request.retry, print_settings))
        )
        _report_entries(read.out, ended)
    except UserError as error:
        raise UserError(spell_keys(error)) from None
    failures = [f"{one.name}: {failure}" for one in ended for failure in one.failures]
    if failures:
        echo("\n".join(failures), err=True)
        echo(f"{len(failures)} failed; run them again: {again} --retry crashed", err=True)
        raise typer.Exit(1)


def _report_entries(out: AnyPath, ended: Iterable["Ended"]) -> None:
    """Print one report over all folders, and write it to ``OUT/report.txt``."""
    parts = [(f"== {one.name} ==", _describe_entry(one)) for one in ended]
    # The file has every column, regardless of the width of the terminal.
    text = "\n\n".join(f"{name}\n{described}" for name, described in parts)
    atomic_write(out / "report.txt", f"{text}\n".encode())
    echo("\n\n".join(f"{name}\n{shown(described)}" for name, described in parts))
    echo("\n".join(["", *write_overview(out)]))


def _describe_entry(ended: "Ended") -> str:
    from analysis.report import write_report, write_search_report
    from tune_calib.tuning.search.outcome import summarise

    if ended.is_refused:
        return "; ".join(ended.failures)
    try:
        if ended.found is None:
            return write_report(ended.folder)
        write_search_report(ended.folder)  # its page, to which the page over all entries links
        return summarise(ended.found)
    except UserError as error:
        return "; ".join(ended.failures) or spell_keys(error)


def schema() -> None:
    """Print the JSON schema of experiment files, for an editor.

    Examples:
        tune-calib schema > sweep.schema.json
    """
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    echo(json.dumps({**title, **ExperimentFile.model_json_schema()}, indent=1))


def refuse_gpu_model(gpu_model: str | None, is_dry: bool) -> None:
    """Refuse ``--gpu-model`` unless times are estimated."""
    if gpu_model is not None and not is_dry:
        raise UserError("--gpu-model applies only to --dry-run; add --dry-run")
