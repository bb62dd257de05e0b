"""The commands of searches: search, resume, evaluate."""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tune_calib.cli.before import DryRun, tell_plan, tell_settings
from tune_calib.cli.options import stoppable, tell_crashed, typed
from tune_calib.cli.request import with_request
from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.spec import plugins
from tune_calib.spec.request import EvaluateRequest, ResumeRequest, SearchRequest, format_command
from tune_calib.spec.resolve import resolve_search

if TYPE_CHECKING:
    from tune_calib.paths import AnyPath
    from tune_calib.tuning.search.job import SearchJob


@with_request(SearchRequest)
def search(request: SearchRequest, dry_run: DryRun = False) -> None:
    """Search the hyper-parameters of a method on select; the test split stays shut.

    Examples:
        tune-calib search mac_cal --trials 200 --seeds 3 --out runs/search
        tune-calib search ls --metric ece --metric nll --scheduler asha
        tune-calib search temperature --imported mine --store store
    """
    asked = resolve_search(request)  # names are refused before torch is imported

    from tune_calib.tuning.jobs import build_search_job

    job = build_search_job(request, asked, typed(), dry_run)
    if dry_run:
        tell_plan(job)
        return
    _search(job, request.retry)


@with_request(ResumeRequest)
def resume(request: ResumeRequest) -> None:
    """Go on with a search; what is done is not done again.

    Examples:
        tune-calib resume runs/search
        tune-calib resume runs/search --trials 400 --retry crashed
    """
    folder = _opened(request.out)

    from tune_calib.tuning.search.job import job_of

    job = job_of(folder, request.study_storage)
    site = replace(job.site, command=typed())
    suggestions = max(request.trials, job.suggestions)
    _search(replace(job, suggestions=suggestions, site=site), request.retry)


@with_request(EvaluateRequest)
def evaluate(request: EvaluateRequest, dry_run: DryRun = False) -> None:
    """Read the test split, once: the chosen trial of a search over fresh seeds.

    Examples:
        tune-calib evaluate runs/search --seeds 5
        tune-calib evaluate runs/search --seeds 10 --extend
    """
    folder = _opened(request.out)

    from analysis.ladder.report import write_report
    from tune_calib.console import shown
    from tune_calib.tuning.look import CloserLook
    from tune_calib.tuning.search.evaluate import evaluate_choice, optimism, planned_evaluation

    again = again_of(request)
    look = CloserLook(request.shift, request.bootstrap)
    asked = (folder, request.seeds, request.study_storage, again, request.extend, look)
    if dry_run:
        tell_plan(planned_evaluation(*asked))
        return
    evaluated = stoppable(again, lambda: evaluate_choice(*asked, begin=tell_settings))
    echo(shown(write_report(evaluated.folder)))
    echo(shown(optimism(evaluated)))
    echo(renewed_page(folder, request.study_storage))
    tell_crashed(evaluated.crashed, again, evaluated.folder)


def again_of(request: EvaluateRequest) -> str:
    """Return the command that goes on with an evaluation."""
    return format_command("evaluate", request, ("extend", "study_storage"), plugins.as_options())


def _opened(out: str) -> "AnyPath":
    """The folder of a search, refused before what takes seconds is imported if it is none."""
    from tune_calib.paths import parse_path
    from tune_calib.results.folders import search_of

    folder = parse_path(out)
    search_of(folder)
    return folder


def report(out: "AnyPath", study_storage: str | None = None) -> str:
    """Write the report of a search, of what has ended so far if it is not over."""
    from analysis.search.load import is_complete
    from analysis.search.report import write_search_report

    if not is_complete(out):
        from tune_calib.tuning.search.driver import write_outcome_so_far

        write_outcome_so_far(out, study_storage)
    return write_search_report(out)


def renewed_page(out: "AnyPath", study_storage: str | None = None) -> str:
    """Write the page of a search anew, now that there is more to tell, and say where it is.

    So is the page over the sweep file that it is an entry of, if there is one.
    """
    from tune_calib.cli.folders import overview

    report(out, study_storage)
    above = overview(out.parent) if (out.parent / "report.html").exists() else []
    return "\n".join([f"page of the search: {out / 'report.html'}", *above])


def refuse_storage(out: "AnyPath", study_storage: str | None) -> None:
    """Refuse the storage of a study where there is none.

    Raises:
        UserError: one is given.
    """
    if study_storage is not None:
        raise UserError(f"--study-storage is of a search, and {out} holds none")


def _search(job: "SearchJob", retry: str | None) -> None:
    from tune_calib.console import shown
    from tune_calib.tuning.search.driver import search as run
    from tune_calib.tuning.search.summary import summarise

    again = shlex.join(["tune-calib", "resume", str(job.out), *plugins.as_options()])
    found = stoppable(again, lambda: run(job, retry, tell_settings))
    echo(shown(summarise(found)))
    if (job.out / "report.html").exists():
        echo(renewed_page(job.out, job.study_storage))
    tell_crashed(found.crashed, f"{again} --retry crashed", job.out)
