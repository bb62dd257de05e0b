"""The commands of searches: search, resume, evaluate."""

import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib.cli.before import DryRun, tell_plan, tell_settings
from tune_calib.cli.completion import names
from tune_calib.cli.finished import Finished
from tune_calib.cli.options import (
    Address,
    Backbone,
    Bootstrap,
    BothSeeds,
    DataRoot,
    Dataset,
    Epochs,
    Gpus,
    HeadEpochs,
    HeadSeeds,
    Holdout,
    Imported,
    NetworkSeeds,
    Norm,
    Out,
    OwnRecipes,
    Portable,
    Recipe,
    Set,
    Shift,
    StoreRoot,
    Weights,
    known,
    settings,
    site_of,
    stoppable,
    tell_crashed,
    typed,
)
from tune_calib.cli.panels import SEARCHING, SEEDS, WHERE
from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.spec import plugins
from tune_calib.spec.asked import Asked
from tune_calib.spec.methods import METHODS
from tune_calib.spec.metrics import searchable_metrics
from tune_calib.spec.options import chosen_seeds
from tune_calib.spec.space import SPACES

if TYPE_CHECKING:
    from tune_calib.paths import Place
    from tune_calib.tuning.search.job import SearchJob

SAMPLERS = ("tpe", "random", "nsga2", "grid")
SCHEDULERS = ("none", "asha")

Folder = Annotated[str, typer.Argument(help="folder or URL of a search")]
Trials = Annotated[int, typer.Option(help="suggestions to try", rich_help_panel=SEARCHING)]
SamplerOption = Annotated[
    str,
    typer.Option(
        help=", ".join(SAMPLERS), autocompletion=names(lambda: SAMPLERS), rich_help_panel=SEARCHING
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        help="on select, see: tune-calib list metrics; several give a Pareto set",
        show_default="ece",
        autocompletion=names(searchable_metrics),
        rich_help_panel=SEARCHING,
    ),
]
Guard = Annotated[
    float,
    typer.Option(help="accuracy on select that may be lost, a fraction", rich_help_panel=SEARCHING),
]
Population = Annotated[
    int,
    typer.Option(help="suggestions asked for together (head methods)", rich_help_panel=SEARCHING),
]
AtOnce = Annotated[
    int | None,
    typer.Option(help="Ray trials side by side", show_default="all cores", rich_help_panel=WHERE),
]
Scheduler = Annotated[
    str,
    typer.Option(
        help="asha stops networks that are behind; none",
        autocompletion=names(lambda: SCHEDULERS),
        rich_help_panel=SEARCHING,
    ),
]
Storage = Annotated[
    str | None,
    typer.Option(
        help="URL of the database of a search's study",
        show_default="a file",
        rich_help_panel=WHERE,
    ),
]
SamplerSeed = Annotated[int, typer.Option(help="seed of the sampler", rich_help_panel=SEARCHING)]
Extend = Annotated[bool, typer.Option("--extend", help="read test again, under more seeds")]
Retry = Annotated[
    str | None,
    typer.Option(
        help="try again what ended so: crashed",
        autocompletion=names(lambda: ("crashed",)),
        rich_help_panel=WHERE,
    ),
]


def search(
    method: Annotated[
        str,
        typer.Argument(help="see: tune-calib list spaces", autocompletion=names(lambda: SPACES)),
    ],
    dataset: Dataset = "digits",
    imported: Imported = None,
    data_root: DataRoot = None,
    backbone: Backbone = None,
    weights: Weights = None,
    holdout: Holdout = None,
    norm: Norm = None,
    seeds: BothSeeds = None,
    network_seeds: NetworkSeeds = None,
    head_seeds: HeadSeeds = None,
    epochs: Epochs = None,
    head_epochs: HeadEpochs = None,
    recipe: Recipe = None,
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
    dry_run: DryRun = False,
) -> Finished | None:
    """Search the hyper-parameters of a method on select; the test split stays shut.

    Examples:
        tune-calib search mac_cal --trials 200 --seeds 3 --out runs/search
        tune-calib search ls --metric ece --metric nll --scheduler asha
        tune-calib search temperature --imported mine --store store
    """
    METHODS.require(method)
    known("--sampler", sampler, SAMPLERS)
    known("--scheduler", scheduler, SCHEDULERS)
    given = settings(
        dataset, imported, backbone, weights, holdout, norm, epochs, head_epochs, portable, set_
    )
    pairs = chosen_seeds(seeds, network_seeds, head_seeds)

    from tune_calib.tuning.search.objective import Objective

    objective = Objective(tuple(metric or ["ece"]), guard)
    asked = Asked(given, pairs, own_recipes=own_recipes).suited(recipe)

    from tune_calib.tuning.search.job import Question, SearchJob
    from tune_calib.tuning.taken_in import taken_in

    folder = out or f"runs/search-{method}-{imported or dataset}"
    site = site_of(folder, store, data_root, address, gpus, typed())
    question = Question(
        method=method,
        asked=taken_in(asked, data_root, site.store, dry_run),
        objective=objective,
        sampler=sampler,  # type: ignore[arg-type]
        sampler_seed=sampler_seed,
        scheduler=scheduler,  # type: ignore[arg-type]
        population=population,
    )
    job = SearchJob(
        question=question,
        suggestions=trials,
        site=site,
        at_once=os.cpu_count() or 1 if at_once is None else at_once,
        study_storage=study_storage,
    )
    if dry_run:
        tell_plan(job)
        return None
    return _search(job, retry)


def resume(
    out: Folder, trials: Trials = 0, retry: Retry = None, study_storage: Storage = None
) -> Finished:
    """Go on with a search; what is done is not done again.

    Examples:
        tune-calib resume runs/search
        tune-calib resume runs/search --trials 400 --retry crashed
    """
    folder = _opened(out)

    from tune_calib.tuning.search.job import job_of

    job = job_of(folder, study_storage)
    site = replace(job.site, command=typed())
    return _search(replace(job, suggestions=max(trials, job.suggestions), site=site), retry)


def evaluate(
    out: Folder,
    seeds: Annotated[
        int, typer.Option(help="fresh seeds of networks and heads", rich_help_panel=SEEDS)
    ] = 5,
    extend: Extend = False,
    shift: Shift = None,
    bootstrap: Bootstrap = 0,
    study_storage: Storage = None,
    dry_run: DryRun = False,
) -> Finished | None:
    """Read the test split, once: the chosen trial of a search over fresh seeds.

    Examples:
        tune-calib evaluate runs/search --seeds 5
        tune-calib evaluate runs/search --seeds 10 --extend
    """
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    folder = _opened(out)

    from analysis.ladder.report import write_report
    from tune_calib.console import shown
    from tune_calib.tuning.look import CloserLook
    from tune_calib.tuning.search.evaluate import evaluate_choice, optimism, planned_evaluation

    look = CloserLook(tuple(shift or ()), bootstrap)
    words = ["tune-calib", "evaluate", out, "--seeds", str(seeds), *plugins.as_options()]
    again = shlex.join(words)
    again += "".join(f" --shift {shlex.quote(word)}" for word in look.shift)
    again += f" --bootstrap {bootstrap}" if bootstrap else ""
    asked = (folder, seeds, study_storage, again, extend, look)
    if dry_run:
        tell_plan(planned_evaluation(*asked))
        return None
    evaluated = stoppable(again, lambda: evaluate_choice(*asked, begin=tell_settings))
    echo(shown(write_report(evaluated.folder)))
    text = optimism(evaluated)
    echo(shown(text))
    page = renewed_page(folder, study_storage)
    echo(page)
    tell_crashed(evaluated.crashed, again, evaluated.folder)
    return Finished(folder, [evaluated.folder, text, page])


def _opened(out: str) -> "Place":
    """The folder of a search, refused before what takes seconds is imported if it is none."""
    from tune_calib.paths import place
    from tune_calib.results.folders import search_of

    folder = place(out)
    search_of(folder)
    return folder


def report(out: "Place", study_storage: str | None = None) -> str:
    """Write the report of a search, of what has ended so far if it is not over."""
    from analysis.search.load import is_complete
    from analysis.search.report import write_search_report

    if not is_complete(out):
        from tune_calib.tuning.search.driver import write_outcome_so_far

        write_outcome_so_far(out, study_storage)
    return write_search_report(out)


def renewed_page(out: "Place", study_storage: str | None = None) -> str:
    """Write the page of a search anew, now that there is more to tell, and say where it is.

    So is the page over the sweep file that it is an entry of, if there is one.
    """
    from tune_calib.cli.folders import overview

    report(out, study_storage)
    above = overview(out.parent) if (out.parent / "report.html").exists() else []
    return "\n".join([f"page of the search: {out / 'report.html'}", *above])


def refuse_storage(out: "Place", study_storage: str | None) -> None:
    """Refuse the storage of a study where there is none.

    Raises:
        UserError: one is given.
    """
    if study_storage is not None:
        raise UserError(f"--study-storage is of a search, and {out} holds none")


def _search(job: "SearchJob", retry: str | None) -> Finished:
    if retry is not None:
        known("--retry", retry, ("crashed",))
    from tune_calib.console import shown
    from tune_calib.tuning.search.driver import search as run
    from tune_calib.tuning.search.summary import summarise

    again = shlex.join(["tune-calib", "resume", str(job.out), *plugins.as_options()])
    found = stoppable(again, lambda: run(job, retry, tell_settings))
    echo(shown(summarise(found)))
    if (job.out / "report.html").exists():
        echo(renewed_page(job.out, job.study_storage))
    tell_crashed(found.crashed, f"{again} --retry crashed", job.out)
    return Finished(job.out, [summarise(found.at_rest)], [job.question.asked.given])
