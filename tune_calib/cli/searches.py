"""The commands of searches: search, resume, evaluate."""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tune_calib.cli.common import (
    DryRun,
    exit_if_crashed,
    format_typed,
    print_plan,
    print_settings,
    run_stoppable,
    write_overview,
)
from tune_calib.cli.request import with_request
from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.paths import AnyPath, parse_path
from tune_calib.results.folders import read_search_manifest
from tune_calib.spec import plugins
from tune_calib.spec.request import EvaluateRequest, ResumeRequest, SearchRequest, format_command
from tune_calib.spec.resolve import resolve_search

if TYPE_CHECKING:
    from tune_calib.tuning.search.run import SearchRun


@with_request(SearchRequest)
def search(request: SearchRequest, dry_run: DryRun = False) -> None:
    """Search the hyper-parameters of a method on the select split; test is never read.

    Examples:
        tune-calib search mac_cal --trials 200 --seeds 3 --out runs/search
        tune-calib search ls --metric ece --metric nll --scheduler asha
        tune-calib search temperature --imported mine --store store
    """
    asked = resolve_search(request)  # names are refused before torch is imported

    from tune_calib.tuning.search.run import build_search_run

    run = build_search_run(request, asked, format_typed(), dry_run)
    if dry_run:
        print_plan(run)
        return
    _search(run)


@with_request(ResumeRequest)
def resume(request: ResumeRequest) -> None:
    """Continue a search, skipping finished trials.

    Examples:
        tune-calib resume runs/search
        tune-calib resume runs/search --trials 400 --retry crashed
    """
    folder = _open_search(request.out)

    from tune_calib.tuning.search.run import load_search

    run = load_search(folder, request.study_storage)
    location = replace(run.location, command=format_typed())
    length = max(request.trials, run.length)
    _search(replace(run, length=length, location=location, retry=request.retry))


@with_request(EvaluateRequest)
def evaluate(request: EvaluateRequest, dry_run: DryRun = False) -> None:
    """Evaluate the selected trial of a search on the test split with fresh seeds.

    Examples:
        tune-calib evaluate runs/search --seeds 5
        tune-calib evaluate runs/search --seeds 10 --extend
    """
    folder = _open_search(request.out)

    from analysis.ladder import report as ladder_report
    from tune_calib.console import shown
    from tune_calib.tuning.search.evaluate import compare_splits, evaluate_choice, plan_evaluation

    again = resume_command(request)
    if dry_run:
        print_plan(plan_evaluation(request, again))
        return
    evaluated = run_stoppable(again, lambda: evaluate_choice(request, again, print_settings))
    echo(shown(ladder_report.write_report(evaluated.folder)))
    echo(shown(compare_splits(evaluated)))
    echo(rewrite_page(folder, request.study_storage))
    exit_if_crashed(evaluated.crashed, again, evaluated.folder)


def resume_command(request: EvaluateRequest) -> str:
    """Return the command that continues an evaluation."""
    return format_command("evaluate", request, ("extend", "study_storage"), plugins.as_options())


def _open_search(out: str) -> AnyPath:
    """Return the folder of a search; another one is refused before slow imports."""
    folder = parse_path(out)
    read_search_manifest(folder)
    return folder


def write_report(out: AnyPath, study_storage: str | None = None) -> str:
    """Write the report of a search; of an unfinished one, from its finished trials."""
    from analysis.search.load import is_complete
    from analysis.search.report import write_search_report

    if not is_complete(out):
        from tune_calib.tuning.search.run import write_outcome_so_far

        write_outcome_so_far(out, study_storage)
    return write_search_report(out)


def rewrite_page(out: AnyPath, study_storage: str | None = None) -> str:
    """Rewrite the page of a search, and that of its experiment file; return where they are."""
    write_report(out, study_storage)
    above = write_overview(out.parent) if (out.parent / "report.html").exists() else []
    return "\n".join([f"page of the search: {out / 'report.html'}", *above])


def refuse_storage(out: AnyPath, study_storage: str | None) -> None:
    """Refuse ``--study-storage`` for a folder that holds no search."""
    if study_storage is not None:
        raise UserError(f"--study-storage applies to a search, and {out} holds none")


def _search(run: "SearchRun") -> None:
    from tune_calib.console import shown
    from tune_calib.tuning.run import execute_run
    from tune_calib.tuning.search.outcome import summarise

    again = shlex.join(["tune-calib", "resume", str(run.out), *plugins.as_options()])
    result = run_stoppable(again, lambda: execute_run(run, print_settings))
    echo(shown(summarise(result)))
    echo(rewrite_page(run.out, run.study_storage))
    exit_if_crashed(result.crashed, f"{again} --retry crashed", run.out)
