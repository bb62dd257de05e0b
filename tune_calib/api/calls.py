"""What the command line does, in Python: ladders, comparisons, searches, sweep files.

Options are those of the commands (docs/pages/commands.md), with their defaults; a dash is an
underscore, and what a command takes several times is a list. Results lie where the command would
put them, and what is done already is not done again, whoever did it.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tune_calib.api.checked import checked
from tune_calib.api.command import command_of, plain
from tune_calib.api.logged import logged
from tune_calib.api.opened import OpenSearch, OpenSweep, OpenSweepFile, opened
from tune_calib.errors import UserError, as_key
from tune_calib.paths import place
from tune_calib.spec import plugins
from tune_calib.spec.asked import Asked
from tune_calib.spec.ladder import LADDERS, Ladder, refuse_unused
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import CRASHES
from tune_calib.spec.options import chosen_seeds, settings
from tune_calib.spec.pipelines import all_of, side_by_side
from tune_calib.text import counted
from tune_calib.tuning.progress.screen import screen

if TYPE_CHECKING:
    from tune_calib.tuning.site import Site

AnyPath = str | PathLike[str]
Words = str | Sequence[str]
Set = Mapping[str, Any]
"""Settings as ``{"head.gamma": 0.9}``."""


@checked
def ablate(
    ladder: str,
    *,
    dataset: str = "digits",
    imported: str | None = None,
    data_root: AnyPath | None = None,
    backbone: str | None = None,
    weights: AnyPath | None = None,
    holdout: str | None = None,
    norm: str | Sequence[Sequence[float]] | None = None,
    seeds: int | None = None,
    network_seeds: int | None = None,
    head_seeds: int | None = None,
    epochs: int | None = None,
    head_epochs: int | None = None,
    recipe: str | None = None,
    set: Set | None = None,
    controls: bool = False,
    out: AnyPath | None = None,
    store: AnyPath | None = None,
    address: str | None = None,
    gpus: float = 0.0,
    portable: bool = False,
    profile: bool = False,
    shift: Words | None = None,
    bootstrap: int = 0,
    log: Words | None = None,
    plugin: Words | None = None,
) -> OpenSweep:
    """Run an ablation ladder, e.g. ``ablate("mac_cal", seeds=3)``.

    Args and defaults are those of ``tune-calib ablate``.

    Returns:
        Its results.

    Raises:
        UserError: an argument is wrong, data is not there, or ``out`` holds something else.
    """
    given = locals()
    with _begun(ablate, given):
        ran = _carried_out(LADDERS[ladder], ladder, given, command_of(ablate, given))
    _warned(ran)
    return ran


@checked
def compare(
    methods: Words | None = None,
    *,
    all: str | None = None,
    dataset: str = "digits",
    imported: str | None = None,
    data_root: AnyPath | None = None,
    backbone: str | None = None,
    weights: AnyPath | None = None,
    holdout: str | None = None,
    norm: str | Sequence[Sequence[float]] | None = None,
    seeds: int | None = None,
    network_seeds: int | None = None,
    head_seeds: int | None = None,
    epochs: int | None = None,
    head_epochs: int | None = None,
    recipe: str | None = None,
    set: Set | None = None,
    own_recipes: bool = False,
    out: AnyPath | None = None,
    store: AnyPath | None = None,
    address: str | None = None,
    gpus: float = 0.0,
    portable: bool = False,
    profile: bool = False,
    shift: Words | None = None,
    bootstrap: int = 0,
    log: Words | None = None,
    plugin: Words | None = None,
) -> OpenSweep:
    """Run methods beside each other, e.g. ``compare(["ls", "ls+mac_cal+temperature"])``.

    Args and defaults are those of ``tune-calib compare``.

    Returns:
        Their results.

    Raises:
        UserError: an argument is wrong, data is not there, or ``out`` holds something else.
    """
    given = locals()
    if (methods is None) == (all is None):
        raise UserError("name methods, or `all` of a kind: posthoc, head or network")
    with _begun(compare, given):
        record = side_by_side(list(_words(methods))) if methods else all_of(str(all))
        ran = _carried_out(record, "compare", given, command_of(compare, given))
    _warned(ran)
    return ran


@checked
def search(
    method: str,
    *,
    dataset: str = "digits",
    imported: str | None = None,
    data_root: AnyPath | None = None,
    backbone: str | None = None,
    weights: AnyPath | None = None,
    holdout: str | None = None,
    norm: str | Sequence[Sequence[float]] | None = None,
    seeds: int | None = None,
    network_seeds: int | None = None,
    head_seeds: int | None = None,
    epochs: int | None = None,
    head_epochs: int | None = None,
    recipe: str | None = None,
    set: Set | None = None,
    own_recipes: bool = False,
    trials: int = 64,
    sampler: Literal["tpe", "random", "nsga2", "grid"] = "tpe",
    sampler_seed: int = 0,
    metric: Words | None = None,
    guard: float = 0.01,
    population: int = 8,
    at_once: int | None = None,
    scheduler: Literal["none", "asha"] = "none",
    out: AnyPath | None = None,
    store: AnyPath | None = None,
    study_storage: str | None = None,
    address: str | None = None,
    gpus: float = 0.0,
    portable: bool = False,
    retry: Literal["crashed"] | None = None,
    log: Words | None = None,
    plugin: Words | None = None,
) -> OpenSearch:
    """Search the settings of a method on ``select``, e.g. ``search("mac_cal", trials=40)``.

    The test split stays shut; ``evaluate`` of what is returned reads it. The same call with more
    ``trials`` goes on. Args and defaults are those of ``tune-calib search``.

    Returns:
        Its results.

    Raises:
        UserError: an argument is wrong, data is not there, or ``out`` holds something else.
    """
    given = locals()
    with _begun(search, given):
        METHODS.require(method)
        chosen, pairs = _settings(given), _seeds(given)

        from tune_calib.experiments.forecast.told import tell_settings
        from tune_calib.tuning.search.driver import search as run_search
        from tune_calib.tuning.search.job import Question, SearchJob
        from tune_calib.tuning.search.objective import Objective
        from tune_calib.tuning.search.summary import summarise
        from tune_calib.tuning.taken_in import taken_in

        site = _site(given, f"search-{method}", command_of(search, given))
        asked = Asked(chosen, pairs, own_recipes=own_recipes).suited(recipe)
        question = Question(
            method=method,
            asked=taken_in(asked, site.data_root, site.store),
            objective=Objective(_words(metric) or ("ece",), guard),
            sampler=sampler,
            sampler_seed=sampler_seed,
            scheduler=scheduler,
            population=population,
        )
        job = SearchJob(
            question=question,
            suggestions=trials,
            site=site,
            at_once=os.cpu_count() or 1 if at_once is None else at_once,
            study_storage=study_storage,
        )
        found = run_search(job, retry, tell_settings)
        ran = OpenSearch(job.out, tuple(found.crashed), summarise(found), study_storage)
    _warned(ran)
    return ran


@checked
def evaluate(
    out: AnyPath,
    *,
    seeds: int = 5,
    extend: bool = False,
    shift: Words | None = None,
    bootstrap: int = 0,
    study_storage: str | None = None,
    log: Words | None = None,
    plugin: Words | None = None,
) -> OpenSweep:
    """Read the test split, once: the chosen trial of a search over fresh seeds.

    Args and defaults are those of ``tune-calib evaluate``.

    Returns:
        Its results beside those of the baseline and of the defaults.

    Raises:
        UserError: the search found nothing, or test was read with another choice or other seeds.
    """
    given = locals()
    if seeds < 1:
        raise UserError(f"`seeds` must be at least 1, got {seeds}")
    with _begun(evaluate, given):
        from tune_calib.experiments.forecast.told import tell_settings
        from tune_calib.tuning.look import CloserLook
        from tune_calib.tuning.search.evaluate import evaluate_choice, optimism

        command = command_of(evaluate, {**given, "extend": False, "study_storage": None})
        look = CloserLook(_words(shift), bootstrap)
        folder = place(fspath(out))
        asked = (folder, seeds, study_storage, command, extend, look)
        found = evaluate_choice(*asked, begin=tell_settings)
        ran = OpenSweep(found.folder, tuple(found.crashed), optimism(found))
    _warned(ran)
    return ran


@checked
def run(
    file: AnyPath,
    *,
    address: str | None = None,
    retry: Literal["crashed"] | None = None,
    log: Words | None = None,
    plugin: Words | None = None,
) -> OpenSweepFile:
    """Carry a sweep file out, e.g. ``run("sweep.yaml")``.

    Args and defaults are those of ``tune-calib run``.

    Returns:
        Its results, an entry after the other.

    Raises:
        UserError: the file is wrong, data is not there, or another program runs on its folder.
    """
    given = locals()
    with _begun(run, given):
        from tune_calib.experiments.file import read_sweep_file
        from tune_calib.experiments.forecast.told import tell_settings
        from tune_calib.experiments.run import planned_works, run_sweep
        from tune_calib.tuning.search.summary import summarise

        command = command_of(run, {**given, "retry": None})
        try:
            read = read_sweep_file(Path(file))
            read = read if address is None else read.at_address(address)
            works = planned_works(read)
            ended = list(run_sweep(read, works, command, retry, tell_settings))
        except UserError as error:
            raise UserError(as_key(error)) from None
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


@checked
def open_results(
    out: AnyPath, *, study_storage: str | None = None
) -> OpenSweep | OpenSearch | OpenSweepFile:
    """The results in a folder or at a URL: of a sweep, a search, or a sweep file.

    Args:
        out: what a command was given as ``--out``.
        study_storage: URL of the study of a search, where that is a database.

    Raises:
        UserError: it holds no results, or they are damaged.
    """
    return opened(place(fspath(out)), study_storage)


def _carried_out(record: Ladder, name: str, given: Mapping[str, Any], command: str) -> OpenSweep:
    """Run a ladder as ``tune-calib`` does."""
    chosen = _settings(given)
    refuse_unused(record.rungs, chosen)
    flags = {flag: given[flag] for flag in ("controls", "own_recipes") if flag in given}
    asked = Asked(chosen, _seeds(given), **flags).suited(given["recipe"])

    from tune_calib.experiments.forecast.told import tell_settings
    from tune_calib.tuning.ablate import LadderJob
    from tune_calib.tuning.ablate import ablate as run_ladder
    from tune_calib.tuning.look import CloserLook
    from tune_calib.tuning.taken_in import taken_in

    site = _site(given, name, command)
    look = CloserLook(_words(given["shift"]), given["bootstrap"])
    job = LadderJob(record, taken_in(asked, site.data_root, site.store), site, look)
    return OpenSweep(site.out, tuple(run_ladder(job, tell_settings)))


def _settings(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    same = ("dataset", "imported", "backbone", "weights", "holdout", "epochs", "head_epochs")
    norm = given["norm"]
    return settings(
        **{name: given[name] for name in same},
        norm=norm if norm is None or isinstance(norm, str) else plain("norm", norm),
        portable=given["portable"],
        further=[(name, plain(name, value)) for name, value in (given["set"] or {}).items()],
    )


def _seeds(given: Mapping[str, Any]) -> Any:
    return chosen_seeds(given["seeds"], given["network_seeds"], given["head_seeds"])


def _site(given: Mapping[str, Any], name: str, command: str) -> "Site":
    from tune_calib.tuning.site import Site

    out, store, root = given["out"], given["store"], given["data_root"]
    folder = f"runs/{name}-{given['imported'] or given['dataset']}"
    return Site.of(
        folder if out is None else fspath(out),
        None if store is None else fspath(store),
        None if root is None else Path(root),
        given["address"],
        float(given["gpus"]),
        command,
        given.get("profile", False),
    )


def _words(given: AnyPath | Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(given, str | PathLike):
        return (fspath(given),)
    return tuple(given or ())


@contextmanager
def _begun(call: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[None]:
    """What surrounds every call: plug-ins beside those in use, a screen, loggers."""
    with plugins.restored():
        named = map(plugins.read, _words(given["plugin"]))
        plugins.use([*plugins.installed(), *plugins.in_use(), *named])
        first = _words(next(iter(given.values())))
        with screen(" ".join([call.__name__, *first])), logged(_words(given["log"])):
            yield


def _warned(results: OpenSweep | OpenSearch) -> None:
    """Warn of trials that crashed: they have no row, and the next call tries them again."""
    if results.crashed:
        warnings.warn(
            f"{counted(len(results.crashed), 'trial')} crashed; first: {results.crashed[0]}; the "
            "same call tries them again (of a search, with `retry`); tracebacks: "
            f"{results.out / CRASHES}",
            stacklevel=4,  # the line that called
        )
