"""What the command line does, in Python: ladders, comparisons, searches, sweep files.

Arguments are the fields of the requests that the commands have as options, with their defaults; a
dash is an underscore, and what a command takes several times is a list. Results lie where the
command would put them, and what is done already is not done again, whoever did it.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any

from tune_calib.api.logged import logged
from tune_calib.api.opened import OpenSearch, OpenSweep, OpenSweepFile, opened
from tune_calib.api.request import with_request
from tune_calib.errors import UserError
from tune_calib.paths import parse_path
from tune_calib.spec import plugins
from tune_calib.spec.names import CRASHES
from tune_calib.spec.request import (
    AblateRequest,
    CompareRequest,
    EvaluateRequest,
    RunRequest,
    SearchRequest,
    field_names,
    format_command,
)
from tune_calib.spec.resolve import resolve_ladder, resolve_search
from tune_calib.spec.strict import Part
from tune_calib.text import format_count, option_words
from tune_calib.tuning.progress.screen import screen

Words = tuple[str, ...]


@with_request(AblateRequest)
def ablate(request: AblateRequest, log: Words, plugin: Words) -> OpenSweep:
    """Run an ablation ladder, e.g. ``ablate("mac_cal", seeds=3)``.

    Returns:
        Its results.

    Raises:
        UserError: an argument is wrong, data is not there, or ``out`` holds something else.
    """
    return _run_ladder("ablate", request, log, plugin)


@with_request(CompareRequest)
def compare(request: CompareRequest, log: Words, plugin: Words) -> OpenSweep:
    """Run methods beside each other, e.g. ``compare(["ls", "ls+mac_cal+temperature"])``.

    Returns:
        Their results.

    Raises:
        UserError: an argument is wrong, data is not there, or ``out`` holds something else.
    """
    return _run_ladder("compare", request, log, plugin)


@with_request(SearchRequest)
def search(request: SearchRequest, log: Words, plugin: Words) -> OpenSearch:
    """Search the settings of a method on ``select``, e.g. ``search("mac_cal", trials=40)``.

    The test split stays shut; ``evaluate`` of what is returned reads it. The same call with more
    ``trials`` goes on.

    Returns:
        Its results.

    Raises:
        UserError: an argument is wrong, data is not there, or ``out`` holds something else.
    """
    with _begun("search", request, log, plugin):
        asked = resolve_search(request)

        from tune_calib.experiments.forecast.summary import print_settings
        from tune_calib.tuning.run import execute_run
        from tune_calib.tuning.search.outcome import summarise
        from tune_calib.tuning.search.run import build_search_run

        run = build_search_run(request, asked, _command("search", request, log, plugin))
        result = execute_run(run, print_settings)
        crashed = tuple(result.crashed)
        ran = OpenSearch(run.out, crashed, summarise(result), request.study_storage)
    _warned(ran)
    return ran


@with_request(EvaluateRequest)
def evaluate(request: EvaluateRequest, log: Words, plugin: Words) -> OpenSweep:
    """Read the test split, once: the chosen trial of a search over fresh seeds.

    Returns:
        Its results beside those of the baseline and of the defaults.

    Raises:
        UserError: the search found nothing, or test was read with another choice or other seeds.
    """
    with _begun("evaluate", request, log, plugin):
        from tune_calib.experiments.forecast.summary import print_settings
        from tune_calib.tuning.search.evaluate import compare_splits, evaluate_choice

        command = _command("evaluate", request, log, plugin, "extend", "study_storage")
        found = evaluate_choice(request, command, print_settings)
        ran = OpenSweep(found.folder, tuple(found.crashed), compare_splits(found))
    _warned(ran)
    return ran


@with_request(RunRequest)
def run(request: RunRequest, log: Words, plugin: Words) -> OpenSweepFile:
    """Carry a sweep file out, e.g. ``run("sweep.yaml")``.

    Returns:
        Its results, an entry after the other.

    Raises:
        UserError: the file is wrong, data is not there, or another program runs on its folder.
    """
    with _begun("run", request, log, plugin):
        from tune_calib.experiments.entries import plan_jobs
        from tune_calib.experiments.file import read_experiment_file
        from tune_calib.experiments.forecast.summary import print_settings
        from tune_calib.experiments.run import run_jobs
        from tune_calib.spec.experiment import spell_keys
        from tune_calib.tuning.search.outcome import summarise

        command = _command("run", request, log, plugin, "retry")
        try:
            read = read_experiment_file(request.file).override(address=request.address)
            jobs = plan_jobs(read, command)
            ended = list(run_jobs(read, jobs, request.retry, print_settings))
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
    """The results in a folder or at a URL: of a sweep, a search, or a sweep file.

    Args:
        out: what a command was given as ``--out``.
        study_storage: URL of the study of a search, where that is a database.

    Raises:
        UserError: it holds no results, or they are damaged.
    """
    return opened(parse_path(fspath(out)), study_storage)


def _run_ladder(
    name: str, request: AblateRequest | CompareRequest, log: Words, plugin: Words
) -> OpenSweep:
    with _begun(name, request, log, plugin):
        ladder, asked = resolve_ladder(request)

        from tune_calib.experiments.forecast.summary import print_settings
        from tune_calib.tuning.ladder import build_ladder_run
        from tune_calib.tuning.run import execute_run

        command = _command(name, request, log, plugin)
        run = build_ladder_run(request, ladder, asked, command)
        crashed = execute_run(run, print_settings)
        ran = OpenSweep(run.location.out, tuple(crashed))
    _warned(ran)
    return ran


def _command(name: str, request: Part, log: Words, plugin: Words, *without: str) -> str:
    """Return the command that requests the same: results name it, and any shell repeats it."""
    options = [*(("log", each) for each in log), *(("plugin", each) for each in plugin)]
    return format_command(name, request, without, option_words(options))


@contextmanager
def _begun(name: str, request: Part, log: Words, plugin: Words) -> Iterator[None]:
    """What surrounds every call: plug-ins beside those in use, a screen, loggers."""
    with plugins.restored():
        named = map(plugins.read, plugin)
        plugins.use([*plugins.installed(), *plugins.in_use(), *named])
        first: Any = getattr(request, field_names(type(request))[0]) or ()
        words = map(str, first if isinstance(first, tuple) else (first,))
        with screen(" ".join([name, *words])), logged(log):
            yield


def _warned(results: OpenSweep | OpenSearch) -> None:
    """Warn of trials that crashed: they have no row, and the next call tries them again."""
    if results.crashed:
        warnings.warn(
            f"{format_count(len(results.crashed), 'trial')} crashed; first: {results.crashed[0]}; "
            "the same call tries them again (of a search, with `retry`); tracebacks: "
            f"{results.out / CRASHES}",
            stacklevel=4,  # the line that called
        )
