"""The commands that run trials as Python functions, and ``open_results``.

Arguments are the options of the commands with the same defaults: a dash becomes an underscore, and
a repeatable option takes a list. Results are in the folder that the command would use, and finished
trials are skipped, whether a command or a function ran them.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any, TypeVar

from analysis.load import load
from tune_calib.api.opened import OpenSearch, OpenSweep, OpenSweepFile
from tune_calib.api.request import add_arguments, bind, build_signature
from tune_calib.errors import UserError
from tune_calib.paths import parse_path
from tune_calib.results.folders import find_entries, is_search
from tune_calib.spec import plugins
from tune_calib.spec.code import accept_code
from tune_calib.spec.names import CRASHES
from tune_calib.spec.request import (
    AblateRequest,
    CompareRequest,
    EvaluateRequest,
    RunRequest,
    SearchRequest,
    build_request,
    field_names,
    format_command,
)
from tune_calib.spec.resolve import resolve, resolve_ladder
from tune_calib.spec.strict import Part
from tune_calib.text import format_count, option_words
from tune_calib.tuning.loggers.base import load_loggers, request_loggers, send_figures
from tune_calib.tuning.progress.screen import screen

R = TypeVar("R", bound=Part)
T = TypeVar("T")


def _command(model: type[R], *without: str) -> Callable[[Callable[[R, str], T]], Callable[..., T]]:
    """Make a call of a function of a request and its command line, without some options."""

    def decorate(function: Callable[[R, str], T]) -> Callable[..., T]:
        name, returned = function.__name__, inspect.signature(function).return_annotation
        signature = build_signature(model, returned)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> T:
            given, always = bind(name, signature, args, kwargs)
            with plugins.restored():
                named = map(plugins.read, always["plugin"])
                plugins.use([*plugins.installed(), *plugins.in_use(), *named])
                try:
                    request = build_request(model, given)
                except UserError as error:
                    raise UserError(f"{name}: {error}") from None
                accept_code(getattr(request, "accept_code", False))
                first: Any = getattr(request, field_names(model)[0]) or ()
                words = map(str, first if isinstance(first, tuple) else (first,))
                options = option_words((key, each) for key in always for each in always[key])
                command = format_command(name, request, without, options)
                with screen(" ".join([name, *words])), logged(always["log"]):
                    results = function(request, command)
            # These have no row and are run again by the next call.
            if isinstance(results, OpenSweep | OpenSearch) and results.crashed:
                crashed = results.crashed
                warnings.warn(
                    f"{format_count(len(crashed), 'trial')} crashed; first: {crashed[0]}; the same "
                    "call runs them again (for a search, with `retry`); tracebacks: "
                    f"{results.out / CRASHES}",
                    stacklevel=2,
                )
            return results

        call.__signature__ = signature  # type: ignore[attr-defined]
        annotations = {key: each.annotation for key, each in signature.parameters.items()}
        call.__annotations__ = {**annotations, "return": returned}
        call.__doc__ = add_arguments(model, signature, inspect.getdoc(function) or "")
        return call

    return decorate


@_command(AblateRequest)
def ablate(request: AblateRequest, command: str) -> OpenSweep:
    """Run an ablation ladder, e.g. ``ablate("mac_cal", seeds=3)``.

    Returns:
        Its results.

    Raises:
        UserError: An argument is wrong, data is missing, or ``out`` contains another run.
    """
    return _run_ladder(request, command)


@_command(CompareRequest)
def compare(request: CompareRequest, command: str) -> OpenSweep:
    """Compare methods, e.g. ``compare(["ls", "ls+mac_cal+temperature"])``.

    Returns:
        Their results.

    Raises:
        UserError: An argument is wrong, data is missing, or ``out`` contains another run.
    """
    return _run_ladder(request, command)


@_command(SearchRequest)
def search(request: SearchRequest, command: str) -> OpenSearch:
    """Search the hyper-parameters of a method on ``select``, e.g. ``search("mac_cal", trials=40)``.

    The test split is not read; ``evaluate`` of the returned object reads it. The same call with
    more ``trials`` continues the search.

    Returns:
        Its results.

    Raises:
        UserError: An argument is wrong, data is missing, or ``out`` contains another run.
    """
    resolved = resolve(request)

    from tune_calib.experiments.forecast.summary import print_settings
    from tune_calib.tuning.run import execute_run
    from tune_calib.tuning.search.outcome import summarise
    from tune_calib.tuning.search.run import build_search_run

    run = build_search_run(request, resolved, command)
    result = execute_run(run, print_settings)
    return OpenSearch(run.out, tuple(result.crashed), summarise(result), request.study_storage)


@_command(EvaluateRequest, "extend", "study_storage")
def evaluate(request: EvaluateRequest, command: str) -> OpenSweep:
    """Evaluate the selected trial of a search on the test split with fresh seeds.

    Returns:
        Its results, with those of the baseline and the defaults.

    Raises:
        UserError: The search selected no trial, or test was read for another trial or other seeds.
    """
    from tune_calib.experiments.forecast.summary import print_settings
    from tune_calib.tuning.search.evaluate import compare_splits, evaluate_choice

    found = evaluate_choice(request, command, print_settings)
    return OpenSweep(found.folder, tuple(found.crashed), compare_splits(found))


@_command(RunRequest, "retry")
def run(request: RunRequest, command: str) -> OpenSweepFile:
    """Run all entries of an experiment file, e.g. ``run("sweep.yaml")``.

    Returns:
        Its results by entry.

    Raises:
        UserError: The file is wrong, data is missing, or another program uses its folder.
    """
    from tune_calib.experiments.entries import plan_entries
    from tune_calib.experiments.file import read_experiment_file
    from tune_calib.experiments.forecast.summary import print_settings
    from tune_calib.experiments.run import run_entries
    from tune_calib.spec.experiment import spell_keys
    from tune_calib.tuning.search.outcome import summarise

    try:
        read = read_experiment_file(request.file).override(address=request.address)
        jobs = plan_entries(read, command)
        ended = list(run_entries(read, jobs, request.retry, print_settings))
    except UserError as error:
        raise UserError(spell_keys(error)) from None
    entries: dict[str, OpenSweep | OpenSearch] = {}
    for one in ended:
        if one.found is not None:
            storage = read.content.study_storage
            told = summarise(one.found)
            entries[one.name] = OpenSearch(one.folder, tuple(one.failures), told, storage)
        elif not one.is_refused:
            entries[one.name] = OpenSweep(one.folder, tuple(one.failures))
    failures = tuple(f"{one.name}: {line}" for one in ended for line in one.failures)
    if failures:
        warnings.warn(f"{len(failures)} failed; first: {failures[0]}", stacklevel=3)
    return OpenSweepFile(read.out, entries, failures)


def open_results(
    out: str | PathLike[str], *, study_storage: str | None = None
) -> OpenSweep | OpenSearch | OpenSweepFile:
    """Open the results of a run, a search or an experiment file.

    Args:
        out: Folder or URL, as in ``--out`` of the command.
        study_storage: URL of the study of a search, if that is a database.

    Raises:
        UserError: The folder contains no results, or they are damaged.
    """
    folder = parse_path(fspath(out))
    if below := find_entries(folder):
        entries: Any = {e.name: open_results(str(e), study_storage=study_storage) for e in below}
        return OpenSweepFile(folder, entries)
    if is_search(folder):
        return OpenSearch(folder, study_storage=study_storage)
    load(folder)  # a folder without results is refused here
    return OpenSweep(folder)


def _run_ladder(request: AblateRequest | CompareRequest, command: str) -> OpenSweep:
    ladder, resolved = resolve_ladder(request)

    from tune_calib.experiments.forecast.summary import print_settings
    from tune_calib.tuning.ladder import build_ladder_run
    from tune_calib.tuning.run import execute_run

    run = build_ladder_run(request, ladder, resolved, command)
    crashed = execute_run(run, print_settings)
    return OpenSweep(run.location.out, tuple(crashed))


@contextmanager
def logged(names: Sequence[str]) -> Iterator[None]:
    """Let loggers follow every run in the block, and send them its figures at the end."""
    load_loggers(names)
    with request_loggers(names) as folders:
        yield
    if not names or not folders:
        return

    from analysis.report import write_report, write_search_report

    for out in folders:
        # If the existing report would be the same, this costs nothing.
        (write_search_report if is_search(out) else write_report)(out)
        send_figures(names, out)
