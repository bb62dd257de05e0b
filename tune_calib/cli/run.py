"""The commands that run trials: ablate, compare, search, resume, evaluate, run."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib.api import runs
from tune_calib.cli.common import (
    UNFINISHED,
    exit_if_unfinished,
    print_plan,
    stoppable,
    write_overview,
)
from tune_calib.cli.defaults import format_typed
from tune_calib.cli.entry import as_option
from tune_calib.cli.options import DryRun, GpuModel
from tune_calib.cli.read import print_report, write_search_page
from tune_calib.console import Text, echo, shown
from tune_calib.errors import UserError, spell_settings
from tune_calib.files.documents import unseal
from tune_calib.files.paths import AnyPath, atomic_write, fetch_files, parse_path
from tune_calib.results.folders import is_search, read_search_manifest
from tune_calib.spec import plugins
from tune_calib.spec.experiment import ExperimentFile
from tune_calib.spec.names import SEARCH_OUTCOME
from tune_calib.spec.request import (
    AblateRequest,
    CompareRequest,
    EvaluateRequest,
    ResumeRequest,
    RunRequest,
    SearchRequest,
    format_command,
)
from tune_calib.spec.resolve import default_folder

if TYPE_CHECKING:
    from tune_calib.api.opened import OpenSearch
    from tune_calib.experiments.entries import Ended


def ablate(request: AblateRequest, shell: typer.Context, dry_run: DryRun = False) -> None:
    """Run an ablation ladder, skipping finished trials, and report it.

    Examples:
        tune-calib ablate mac_cal --seeds 5 --controls --out runs/demo
        tune-calib ablate fedlas --dataset cifar10 --data-root data --gpus 1/2
        tune-calib ablate mac_cal --head-seeds 5 --set head.gamma=0.9
        tune-calib ablate --path runs/search --seeds 5 --bootstrap 1000
    """
    _run_ladder(request, shell, dry_run)


def compare(request: CompareRequest, shell: typer.Context, dry_run: DryRun = False) -> None:
    """Compare methods; head and post-hoc methods use a network trained with cross entropy.

    Examples:
        tune-calib compare ce ls+mac_cal+temperature --seeds 3
        tune-calib compare --all posthoc --dataset cifar10 --data-root data
        tune-calib compare ce temperature --imported mine --store store
    """
    _run_ladder(request, shell, dry_run)


def _run_ladder(
    request: AblateRequest | CompareRequest, shell: typer.Context, is_dry: bool
) -> None:
    command = format_typed(shell)
    if is_dry:
        print_plan(runs.plan_ladder(request, command, is_dry))
        return
    with stoppable(command):
        results = runs.run_ladder(runs.plan_ladder(request, command), shell.obj)

    from tune_calib.tuning.folder import done

    if not results.stopped or done(results.out):
        print_report(str(results.out))
    if isinstance(request, AblateRequest) and request.path is not None:
        from tune_calib.api.statistics import effects

        metrics = read_search_manifest(parse_path(request.path)).question.objective.metrics
        echo(shown(effects(str(results.out), metric=metrics[0]).table("plain")))
    if request.profile:
        echo(shown(_format_profiles(results.out)))
    exit_if_unfinished(results, command)


def _format_profiles(out: AnyPath) -> str:
    import pandas as pd

    from analysis.tables.table import table_of
    from tune_calib.tuning.folder import PROFILES

    files = fetch_files(out / PROFILES, "*.json")
    profiles = [unseal(copy.read_bytes(), path) for path, copy in files]
    if not profiles:
        return "no network was trained, so nothing was profiled"
    seconds = pd.DataFrame([profile["seconds"] for profile in profiles]).fillna(0.0)
    totals = seconds.sum(axis=1)
    heads, rates = [""], ["images per second"]
    for profile, total in zip(profiles, totals, strict=True):
        heads.append(f"{profile['method']}, seed {profile['seed']}")
        rates.append(f"{profile['images'] / total:.0f}")
    shares = seconds.div(totals, axis=0).map("{:.1%}".format)
    return Text([table_of(heads, [*([phase, *shares[phase]] for phase in shares), rates])])


def search(request: SearchRequest, shell: typer.Context, dry_run: DryRun = False) -> None:
    """Search the hyper-parameters of a method on the select split; test is never read.

    Examples:
        tune-calib search mac_cal --trials 200 --seeds 3 --out runs/search
        tune-calib search ls --metric ece --metric nll --at-once 1
        tune-calib search temperature --imported mine --store store
        tune-calib search mac_cal --sampler one-at-a-time --around runs/search --seeds 3
    """
    command = format_typed(shell)
    if dry_run:
        print_plan(runs.plan_search(request, command, dry_run))
        return
    again = _format_resume(default_folder(request))
    with stoppable(again):
        results = runs.run_search(runs.plan_search(request, command), shell.obj)
    if request.worker:  # others may end at the same time
        from tune_calib.tuning.search.study import search_status

        echo(search_status(results.out, results.study_storage))
        exit_if_unfinished(results, f"{again} --retry crashed")
        return
    _report_search(results, again)


def resume(request: ResumeRequest, shell: typer.Context) -> None:
    """Continue a search, skipping finished trials.

    Examples:
        tune-calib resume runs/search
        tune-calib resume runs/search --trials 400 --retry crashed
    """
    again = _format_resume(request.out)
    with stoppable(again):
        results = runs.run_search(runs.plan_resume(request, format_typed(shell)), shell.obj)
    _report_search(results, again)


def _format_resume(out: str) -> str:
    request = ResumeRequest(out=str(parse_path(out)))
    return format_command("resume", request, further=plugins.as_options())


def _report_search(results: "OpenSearch", again: str) -> None:
    if (results.out / SEARCH_OUTCOME).exists():  # unless its time was over before the first one
        echo(shown(_rewrite_page(results.out, results.study_storage)))
    if results.crashed:
        again += " --retry crashed"
    exit_if_unfinished(results, again)


def _rewrite_page(out: AnyPath, study_storage: str | None) -> str:
    text = write_search_page(out, study_storage)
    if (out.parent / "report.html").exists():
        echo("\n".join(write_overview(out.parent)))
    return text


def evaluate(request: EvaluateRequest, shell: typer.Context, dry_run: DryRun = False) -> None:
    """Evaluate the selected trial of a search on the test split with fresh seeds.

    Examples:
        tune-calib evaluate runs/search --seeds 5
        tune-calib evaluate runs/search --seeds 10 --extend
    """
    # Without options that a continued evaluation must not repeat.
    without = ("extend", "study_storage")
    again = format_command("evaluate", request, without, further=plugins.as_options())
    if dry_run:
        print_plan(runs.plan_evaluation(request, again))
        return
    with stoppable(again):
        results = runs.evaluate_search(request, again, shell.obj)

    from analysis.report import write_report

    echo(shown(write_report(results.out)))
    echo(shown(results.notes))
    _rewrite_page(parse_path(request.out), request.study_storage)
    exit_if_unfinished(results, again)


def _print_schema(is_wanted: bool) -> None:
    if is_wanted:
        title = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        echo(json.dumps({**title, **ExperimentFile.model_json_schema()}, indent=1))
        raise typer.Exit


def run(
    request: RunRequest,
    shell: typer.Context,
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
        tune-calib run experiment.yaml --dry-run
        tune-calib run experiment.yaml
        tune-calib run experiment.yaml --address auto --retry crashed
    """
    if gpu_model is not None and not dry_run:
        raise UserError("--gpu-model applies only to --dry-run; add --dry-run")
    again = format_command("run", request, ("retry",), further=plugins.as_options())
    if dry_run:
        echo(as_option(shown(runs.describe_file(request, again, gpu_model))))
        return
    with stoppable(again):
        file, entries = runs.run_file(request, again, shell.obj)
    _report_entries(file.out, entries)
    failures, stopped = [], []
    for entry in entries:
        failures += [f"{entry.name}: {line}" for line in entry.failures]
        if entry.stopped:
            stopped.append(f"{entry.name}: {entry.stopped}")
    for line in (*failures, *stopped):
        echo(line, err=True)
    if failures:
        echo(f"{len(failures)} failed; run them again: {again} --retry crashed", err=True)
        raise typer.Exit(1)
    if stopped:
        echo(f"continue with: {again}", err=True)
        raise typer.Exit(UNFINISHED)


def _report_entries(out: AnyPath, entries: Iterable["Ended"]) -> None:
    texts = {f"== {entry.name} ==": _describe_entry(entry) for entry in entries}
    # The file has every column, regardless of the width of the terminal.
    in_file = "\n\n".join(f"{title}\n{text}" for title, text in texts.items())
    atomic_write(out / "report.txt", f"{in_file}\n".encode())
    echo("\n\n".join(f"{title}\n{shown(text)}" for title, text in texts.items()))
    echo("\n".join(["", *write_overview(out)]))


def _describe_entry(entry: "Ended") -> str:
    from analysis.report import write_report, write_search_report

    if entry.is_refused:
        return "; ".join(entry.failures)
    try:
        if is_search(entry.folder):
            return write_search_report(entry.folder)
        return write_report(entry.folder)
    except UserError as error:
        return "; ".join(entry.failures) or spell_settings(error)
