"""The commands of searches: search, resume, evaluate."""

import os
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib.cli.options import (
    Address,
    Backbone,
    BothSeeds,
    DataRoot,
    Dataset,
    Epochs,
    Gpus,
    HeadEpochs,
    HeadSeeds,
    NetworkSeeds,
    Out,
    OwnRecipes,
    Portable,
    Set,
    StoreRoot,
    chosen_seeds,
    known,
    settings,
    stoppable,
    tell_crashed,
)
from tune_calib.errors import UserError
from tune_calib.registry import METHODS

if TYPE_CHECKING:
    from tune_calib.places import Place
    from tune_calib.tuning.search.job import SearchRequest

SAMPLERS = ("tpe", "random", "nsga2", "grid")
SCHEDULERS = ("none", "asha")

Folder = Annotated[str, typer.Argument(help="folder or URL of a search")]
Trials = Annotated[int, typer.Option(help="suggestions to try")]
SamplerOption = Annotated[str, typer.Option(help=", ".join(SAMPLERS))]
Metrics = Annotated[list[str] | None, typer.Option(help="on select; several give a Pareto set")]
Guard = Annotated[float, typer.Option(help="accuracy on select that may be lost, a fraction")]
Population = Annotated[int, typer.Option(help="suggestions asked for together (head methods)")]
AtOnce = Annotated[int | None, typer.Option(help="Ray trials side by side; default: all cores")]
Scheduler = Annotated[str, typer.Option(help="asha stops networks that are behind; none")]
Storage = Annotated[str | None, typer.Option(help="URL of the study's database; default: a file")]
SamplerSeed = Annotated[int, typer.Option(help="seed of the sampler")]
Extend = Annotated[bool, typer.Option("--extend", help="read test again, under more seeds")]
Retry = Annotated[str | None, typer.Option(help="try again what ended so: crashed")]


def search(
    method: Annotated[str, typer.Argument(help="see: tune-calib list spaces")],
    dataset: Dataset = "digits",
    data_root: DataRoot = None,
    backbone: Backbone = None,
    seeds: BothSeeds = None,
    network_seeds: NetworkSeeds = None,
    head_seeds: HeadSeeds = None,
    epochs: Epochs = None,
    head_epochs: HeadEpochs = None,
    set_: Set = None,
    own_recipes: OwnRecipes = False,
    trials: Trials = 64,
    sampler: SamplerOption = "tpe",
    sampler_seed: SamplerSeed = 0,
    metric: Metrics = None,
    guard: Guard = 0.01,
    population: Population = 8,
    at_once: AtOnce = None,
    scheduler: Scheduler = "none",
    out: Out = None,
    store: StoreRoot = None,
    study_storage: Storage = None,
    address: Address = None,
    gpus: Gpus = 0.0,
    portable: Portable = False,
    retry: Retry = None,
) -> None:
    """Search the hyper-parameters of a method on select; the test split stays shut."""
    _ = METHODS[method]
    known("--sampler", sampler, SAMPLERS)
    known("--scheduler", scheduler, SCHEDULERS)
    given = settings(dict(locals()))
    chosen = chosen_seeds(seeds, network_seeds, head_seeds)

    from tune_calib.places import place
    from tune_calib.recipes import suited_to
    from tune_calib.tuning.search.job import Question, SearchRequest
    from tune_calib.tuning.search.objective import Objective

    folder = place(out or f"runs/search-{method}-{dataset}")
    question = Question(
        method=method,
        defaults=suited_to(given),
        given=given,
        seeds=chosen,
        objective=Objective(tuple(metric or ["ece"]), guard),
        sampler=sampler,  # type: ignore[arg-type]
        sampler_seed=sampler_seed,
        scheduler=scheduler,  # type: ignore[arg-type]
        population=population,
        own_recipes=own_recipes,
    )
    request = SearchRequest(
        question=question,
        trials=trials,
        out=folder,
        store=place(store) if store else folder / "store",
        data_root=data_root,
        address=address,
        gpus=gpus,
        at_once=os.cpu_count() or 1 if at_once is None else at_once,
        study_storage=study_storage,
        command=_command(),
    )
    _search(request, retry)


def resume(
    out: Folder, trials: Trials = 0, retry: Retry = None, study_storage: Storage = None
) -> None:
    """Go on with a search; what is done is not done again."""
    from tune_calib.places import place
    from tune_calib.tuning.search.job import request_of

    request = request_of(place(out), study_storage)
    longer = replace(request, trials=max(trials, request.trials), command=_command())
    _search(longer, retry)


def evaluate(
    out: Folder,
    seeds: Annotated[int, typer.Option(help="fresh seeds of networks and heads")] = 5,
    extend: Extend = False,
    study_storage: Storage = None,
) -> None:
    """Read the test split, once: the chosen trial of a search over fresh seeds."""
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")

    from analysis.ladder.report import write_report
    from tune_calib.places import place
    from tune_calib.tuning.search.evaluate import evaluate as run
    from tune_calib.tuning.search.evaluate import optimism

    again = f"tune-calib evaluate {out} --seeds {seeds}"
    evaluated = stoppable(again, lambda: run(place(out), seeds, study_storage, again, extend))
    typer.echo(write_report(evaluated.folder))
    typer.echo(optimism(evaluated))
    tell_crashed(evaluated.crashed, again, evaluated.folder)


def report(out: "Place", study_storage: str | None = None) -> str:
    """Write the report of a search, of what has ended so far if it is not over."""
    from analysis.search.load import is_complete
    from analysis.search.report import write_search_report

    if not is_complete(out):
        from tune_calib.tuning.search.driver import write_outcome_so_far

        write_outcome_so_far(out, study_storage)
    return write_search_report(out)


def refuse_storage(out: "Place", study_storage: str | None) -> None:
    """Refuse the storage of a study where there is none.

    Raises:
        UserError: one is given.
    """
    if study_storage is not None:
        raise UserError(f"--study-storage is of a search, and {out} holds none")


def _command() -> str:
    """What was typed, without passwords."""
    from tune_calib.tuning.search.storage import without_password

    return without_password(shlex.join(["tune-calib", *sys.argv[1:]]))


def _search(request: "SearchRequest", retry: str | None) -> None:
    if retry is not None:
        known("--retry", retry, ("crashed",))
    from tune_calib.tuning.search.driver import search as run
    from tune_calib.tuning.search.summary import describe

    again = f"tune-calib resume {request.out}"
    found = stoppable(again, lambda: run(request, retry))
    typer.echo(describe(found))
    tell_crashed(found.crashed, f"{again} --retry crashed", request.out)
