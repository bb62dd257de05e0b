"""The commands that run trials as Python functions, and ``open_results``.

Arguments are the options of the commands with the same defaults: a dash becomes an underscore, and
a repeatable option takes a list. Results are in the folder that the command would use, and finished
trials are skipped, whether a command or a function ran them.
"""

import functools
import inspect
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature, formatannotation
from os import PathLike, fspath
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from analysis.load import load
from tune_calib.api import runs
from tune_calib.api.opened import OpenExperiment, OpenRun, OpenSearch, Words
from tune_calib.errors import UserError
from tune_calib.files.paths import parse_path
from tune_calib.results.folders import find_entries, is_search
from tune_calib.spec import plugins
from tune_calib.spec.names import CRASHES
from tune_calib.spec.pipelines import Method
from tune_calib.spec.request import (
    ALWAYS,
    AblateRequest,
    CompareRequest,
    EvaluateRequest,
    RunRequest,
    SearchRequest,
    build_request,
    field_names,
    format_command,
    is_argument,
    option_help,
)
from tune_calib.spec.strict import PATH, TEXT, Part
from tune_calib.text import format_count, nearest, option_words
from tune_calib.tuning.context import Context
from tune_calib.tuning.loggers.base import load_loggers
from tune_calib.tuning.progress.screen import screen
from tune_calib.tuning.work.execution import restored_process

R = TypeVar("R", bound=Part)
T = TypeVar("T")


def build_signature(model: type[Part], returned: Any) -> Signature:
    """Build the signature of a call: the fields of a request, ``log`` and ``plugin``."""
    parameters = []
    for name in field_names(model):
        field, is_named = model.model_fields[name], not is_argument(model, name)
        kind = Parameter.KEYWORD_ONLY if is_named else Parameter.POSITIONAL_OR_KEYWORD
        default = Parameter.empty if field.is_required() else field.default
        annotation = _accepted(field.rebuild_annotation())
        parameters.append(Parameter(name, kind, default=default, annotation=annotation))
    for name in ALWAYS:
        always = Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Words | None)
        parameters.append(always)
    return Signature(parameters, return_annotation=returned)


def _accepted(annotation: Any) -> Any:
    """Return the type that callers may pass: texts as paths, one value or several."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        if any(marker in (TEXT, PATH) for marker in parts[1:]):
            return str | PathLike[str]
        return _accepted(parts[0])
    if kind in (Union, UnionType):
        return functools.reduce(operator.or_, map(_accepted, parts))
    if kind is tuple and Method in map(_accepted, parts):
        return str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
    if kind is tuple:
        is_number = _accepted(parts[0]) is int
        return str | int | Sequence[int] if is_number else Words
    return annotation


def add_arguments(model: type[Part], signature: Signature, text: str) -> str:
    """Insert a section about the arguments into a docstring, before its other sections."""
    lines = []
    for name, parameter in signature.parameters.items():
        meaning = ALWAYS.get(name)
        if meaning is None:
            meaning, shown = str(model.model_fields[name].description), option_help(model, name)
            if shown.default is not None:
                meaning += f" (default: {shown.default})"
            elif parameter.default not in (None, (), Parameter.empty):
                meaning += f" (default: {parameter.default!r})"
        lines.append(f"    {name} ({format_type(parameter.annotation)}): {meaning}.")
    summary, mark, sections = text.partition("Returns:")
    return f"{summary}Args:\n" + "\n".join(lines) + f"\n\n{mark}{sections}"


def format_type(annotation: Any) -> str:
    """Format a type as in a signature, e.g. ``str | None``."""
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(map(format_type, get_args(annotation)))
    return re.sub(r"(\w+\.)+", "", formatannotation(annotation)).replace("NoneType", "None")


def bind(
    name: str, signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Return the fields of a request that a call gives, and its values of ``ALWAYS``."""
    for key in kwargs:
        if key not in signature.parameters:
            hint = nearest(key, list(signature.parameters))
            raise UserError(f"{name}: unknown `{key}`{hint}")
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise UserError(f"{name}: {error}") from None
    always = {}
    for key in ALWAYS:
        value = arguments.pop(key, None)
        words = tuple(value or ()) if isinstance(value, list | tuple | None) else (value,)
        if not all(isinstance(word, str | PathLike) for word in words):
            raise UserError(f"`{key}` must be a string or a list of strings, got {value!r}")
        always[key] = tuple(map(str, words))
    return arguments, always


def _command(
    model: type[R], *without: str
) -> Callable[[Callable[[R, str, Context], T]], Callable[..., T]]:
    """Make a call of a function of a request and its command line, without some options."""

    def decorate(function: Callable[[R, str, Context], T]) -> Callable[..., T]:
        name, returned = function.__name__, inspect.signature(function).return_annotation
        signature = build_signature(model, returned)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> T:
            values, always = bind(name, signature, args, kwargs=kwargs)
            with restored_process(), plugins.restored():
                named = map(plugins.read, always["plugin"])
                plugins.use([*plugins.installed(), *plugins.in_use(), *named])
                request = build_request(model, values)
                further: list[str] = []
                for key, words in always.items():
                    further += option_words((key, word) for word in words)
                command = format_command(name, request, without, further=further)
                subjects: Any = getattr(request, field_names(model)[0]) or ()
                if not isinstance(subjects, tuple):
                    subjects = (subjects,)
                title = " ".join(map(str, (name, *subjects)))
                loggers = load_loggers(always["log"])
                with screen(title) as view:
                    results = function(request, command, Context(view, list(loggers)))
            for text in _list_unfinished(results):
                warnings.warn(text, stacklevel=2)
            return results

        call.__signature__ = signature  # type: ignore[attr-defined]
        annotations = {key: named.annotation for key, named in signature.parameters.items()}
        call.__annotations__ = annotations | {"return": returned}
        call.__doc__ = add_arguments(model, signature, inspect.getdoc(function) or "")
        return call

    return decorate


def _list_unfinished(results: object) -> Iterator[str]:
    if isinstance(results, OpenExperiment) and results.failures:
        yield f"{len(results.failures)} failed; first: {results.failures[0]}"
    if isinstance(results, OpenRun | OpenSearch) and results.crashed:
        crashed = results.crashed
        yield (
            f"{format_count(len(crashed), 'trial')} crashed; first: {crashed[0]}; the same call "
            "runs them again (for a search, with `retry`); tracebacks: "
            f"{results.out / CRASHES}"
        )
    if isinstance(results, OpenRun | OpenSearch) and results.stopped:
        yield f"{results.out}: {results.stopped}; the same call continues"


@_command(AblateRequest)
def ablate(request: AblateRequest, command: str, context: Context) -> OpenRun:
    """Run an ablation ladder, e.g. ``ablate("mac_cal", seeds=3)``.

    Returns:
        Its results.

    Raises:
        UserError: An argument is wrong, data is missing, or ``out`` contains another run.
    """
    return runs.run_ladder(runs.plan_ladder(request, command), context)


@_command(CompareRequest)
def compare(request: CompareRequest, command: str, context: Context) -> OpenRun:
    """Compare methods, e.g. ``compare(["ls", "ls+mac_cal+temperature"])``.

    Returns:
        Their results.

    Raises:
        UserError: An argument is wrong, data is missing, or ``out`` contains another run.
    """
    return runs.run_ladder(runs.plan_ladder(request, command), context)


@_command(SearchRequest)
def search(request: SearchRequest, command: str, context: Context) -> OpenSearch:
    """Search the hyper-parameters of a method on ``select``, e.g. ``search("mac_cal", trials=40)``.

    The test split is not read; ``evaluate`` of the returned object reads it. The same call with
    more ``trials`` continues the search.

    Returns:
        Its results.

    Raises:
        UserError: An argument is wrong, data is missing, or ``out`` contains another run.
    """
    return runs.run_search(runs.plan_search(request, command), context)


@_command(EvaluateRequest, "extend", "study_storage")
def evaluate(request: EvaluateRequest, command: str, context: Context) -> OpenRun:
    """Evaluate the selected trial of a search on the test split with fresh seeds.

    Returns:
        Its results, with those of the baseline and the defaults.

    Raises:
        UserError: The search selected no trial, or test was read for another trial or other seeds.
    """
    return runs.evaluate_search(request, command, context)


@_command(RunRequest, "retry")
def run(request: RunRequest, command: str, context: Context) -> OpenExperiment:
    """Run all entries of an experiment file, e.g. ``run("experiment.yaml")``.

    Returns:
        Its results by entry.

    Raises:
        UserError: The file is wrong, data is missing, or another program uses its folder.
    """
    file, ended = runs.run_file(request, command, context)
    entries: dict[str, OpenRun | OpenSearch] = {}
    failures: list[str] = []
    for entry in ended:
        failures += [f"{entry.name}: {line}" for line in entry.failures]
        crashed = tuple(entry.failures)
        if entry.stopped is not None and is_search(entry.folder):
            storage = file.content.study_storage
            entries[entry.name] = OpenSearch(entry.folder, crashed, storage, entry.stopped)
        elif not entry.is_refused:
            entries[entry.name] = OpenRun(entry.folder, crashed, stopped=entry.stopped or "")
    return OpenExperiment(file.out, entries, tuple(failures))


def open_results(
    out: str | PathLike[str], *, study_storage: str | None = None
) -> OpenRun | OpenSearch | OpenExperiment:
    """Open the results of a run, a search or an experiment file.

    Args:
        out: Folder or URL, as in ``--out`` of the command.
        study_storage: URL of the study of a search, if that is a database.

    Raises:
        UserError: The folder contains no results, or they are damaged.
    """
    folder = parse_path(fspath(out))
    entries: dict[str, Any] = {}
    for entry in find_entries(folder):
        entries[entry.name] = open_results(str(entry), study_storage=study_storage)
    if entries:
        return OpenExperiment(folder, entries)
    if is_search(folder):
        return OpenSearch(folder, study_storage=study_storage)
    load(folder)  # a folder without results is refused here
    return OpenRun(folder)
