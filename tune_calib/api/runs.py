"""What the commands that run trials do, and the functions of Python: each run of a request.

Names are refused before slow imports, which therefore stand inside the functions.
"""

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from tune_calib.errors import UserError, spell_settings
from tune_calib.files.paths import parse_path
from tune_calib.results.folders import read_search_manifest
from tune_calib.spec.request import (
    AblateRequest,
    CompareRequest,
    EvaluateRequest,
    ResumeRequest,
    RunRequest,
    SearchRequest,
)
from tune_calib.spec.resolve import resolve, resolve_ladder

if TYPE_CHECKING:
    from tune_calib.api.opened import OpenRun, OpenSearch
    from tune_calib.experiments.entries import Ended
    from tune_calib.experiments.file import ReadFile
    from tune_calib.tuning.context import Context
    from tune_calib.tuning.plan import Plan


def plan_ladder(
    request: AblateRequest | CompareRequest, command: str, is_dry: bool = False
) -> "Plan":
    """Plan a ladder or comparison; a dry one stores no weights."""
    if isinstance(request, AblateRequest) and request.path is not None:
        from tune_calib.tuning.search.path import plan_path

        return plan_path(request, command)
    ladder, resolved = resolve_ladder(request)

    from tune_calib.tuning.ladder import build_ladder_run
    from tune_calib.tuning.plan import build_plan
    from tune_calib.tuning.tuned import plan_tuned

    run = build_ladder_run(request, ladder, resolved, command).read_files(is_dry).choose_gpus()
    if isinstance(request, CompareRequest) and request.tune is not None:
        return plan_tuned(run, request)
    return build_plan(run)


def run_ladder(plan: "Plan", context: "Context") -> "OpenRun":
    """Run a ladder or comparison."""
    from tune_calib.api.opened import OpenRun
    from tune_calib.tuning.folder import only_driver
    from tune_calib.tuning.plan import execute

    with contextlib.ExitStack() as locks:
        if plan.measured is not None:  # the search of a path
            locks.enter_context(only_driver(plan.measured))
        result = execute(plan, context)
    return OpenRun(plan.run.location.out, tuple(result.crashed), stopped=result.stopped)


def plan_search(request: SearchRequest, command: str, is_dry: bool = False) -> "Plan":
    """Plan a search; a dry one stores no weights."""
    resolved = resolve(request)

    from tune_calib.tuning.plan import build_plan
    from tune_calib.tuning.search.run import build_search_run

    return build_plan(build_search_run(request, resolved, command).read_files(is_dry).choose_gpus())


def plan_resume(request: ResumeRequest, command: str) -> "Plan":
    """Plan the rest of a search."""
    folder = parse_path(request.out)
    read_search_manifest(folder)  # refuses any other folder before slow imports

    from tune_calib.tuning.folder import Deadline
    from tune_calib.tuning.plan import build_plan
    from tune_calib.tuning.search.run import load_search

    run = load_search(folder, request.study_storage, request.address)
    location = replace(run.location, command=command, deadline=Deadline(request.max_hours))
    length = max(request.trials, run.length)
    return build_plan(replace(run, length=length, location=location, retry=request.retry))


def run_search(plan: "Plan", context: "Context") -> "OpenSearch":
    """Search the settings of a method."""
    from tune_calib.api.opened import OpenSearch
    from tune_calib.tuning.plan import execute

    result, location = execute(plan, context), plan.run.location
    crashed = tuple(result.crashed)
    return OpenSearch(location.out, crashed, location.study_storage, result.stopped)


def plan_evaluation(request: EvaluateRequest, command: str) -> "Plan":
    """Plan the evaluation of the selected trial of a search on test."""
    read_search_manifest(parse_path(request.out))  # refuses any other folder before slow imports

    from tune_calib.tuning.search import evaluate

    return evaluate.plan_evaluation(request, command)


def evaluate_search(request: EvaluateRequest, command: str, context: "Context") -> "OpenRun":
    """Evaluate the selected trial of a search on test with fresh seeds."""
    out = parse_path(request.out)
    read_search_manifest(out)  # refuses any other folder before slow imports

    from tune_calib.api.opened import OpenSearch
    from tune_calib.tuning.folder import only_driver

    with only_driver(out):
        results = run_ladder(plan_evaluation(request, command), context)
    return replace(results, notes=str(OpenSearch(out, study_storage=request.study_storage)))


def plan_file(
    request: RunRequest, command: str, gpu_model: str | None = None, is_dry: bool = False
) -> "tuple[ReadFile, list[Plan]]":
    """Read an experiment file and plan its entries."""
    from tune_calib.experiments.file import read_experiment_file

    file = read_experiment_file(request.file).override(request.address, gpu_model)

    from tune_calib.experiments.entries import plan_entries

    needs_data = not (is_dry and file.content.gpu_model)
    return file, plan_entries(file, command, needs_data, is_dry=is_dry, retry=request.retry)


def describe_file(request: RunRequest, command: str, gpu_model: str | None) -> str:
    """Describe the plans of an experiment file, for this machine or a named GPU."""
    try:
        file, plans = plan_file(request, command, gpu_model, is_dry=True)

        from tune_calib.tuning.plan import describe_file

        return describe_file(f"{file.name} in {file.out}", plans, file.out, file.content.gpu_model)
    except UserError as error:
        raise UserError(spell_settings(error)) from None


def run_file(
    request: RunRequest, command: str, context: "Context"
) -> "tuple[ReadFile, list[Ended]]":
    """Run all entries of an experiment file."""
    try:
        file, plans = plan_file(request, command)

        from tune_calib.experiments.entries import run_entries

        return file, list(run_entries(file, plans, context))
    except UserError as error:
        raise UserError(spell_settings(error)) from None
