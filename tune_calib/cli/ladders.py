"""The commands of ladders and comparisons: ablate, compare."""

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
    Controls,
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
    Profile,
    Recipe,
    Set,
    Shift,
    StoreRoot,
    Weights,
    settings,
    site_of,
    stoppable,
    tell_crashed,
    typed,
)
from tune_calib.cli.results import report
from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.spec.asked import Asked
from tune_calib.spec.ladder import LADDERS, Ladder, refuse_unused
from tune_calib.spec.methods import METHODS
from tune_calib.spec.options import chosen_seeds
from tune_calib.spec.pipelines import all_of, require_kind, require_methods, side_by_side

if TYPE_CHECKING:
    from tune_calib.tuning.site import Site


def ablate(
    ladder: Annotated[
        str,
        typer.Argument(help="see: tune-calib list ladders", autocompletion=names(lambda: LADDERS)),
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
    controls: Controls = False,
    out: Out = None,
    store: StoreRoot = None,
    address: Address = None,
    gpus: Gpus = 0.0,
    portable: Portable = False,
    profile: Profile = False,
    shift: Shift = None,
    bootstrap: Bootstrap = 0,
    dry_run: DryRun = False,
) -> Finished | None:
    """Run an ablation ladder and report it; what is done already is not done again.

    Examples:
        tune-calib ablate mac_cal --seeds 5 --controls --out runs/demo
        tune-calib ablate fedlas --dataset cifar10 --data-root data --gpus 1/2
        tune-calib ablate mac_cal --head-seeds 5 --set head.gamma=0.9
    """
    record = LADDERS[ladder]
    given = settings(
        dataset, imported, backbone, weights, holdout, norm, epochs, head_epochs, portable, set_
    )
    refuse_unused(record.rungs, given)
    pairs = chosen_seeds(seeds, network_seeds, head_seeds)
    asked = Asked(given, pairs, controls=controls).suited(recipe)
    folder = out or f"runs/{ladder}-{imported or dataset}"
    site = site_of(folder, store, data_root, address, gpus, typed())
    look = (tuple(shift or ()), bootstrap)
    return _run(record, asked, replace(site, profile=profile), look, dry_run)


def compare(
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            help="tune-calib list methods; several as ls+mac_cal+temperature",
            autocompletion=names(lambda: METHODS),
        ),
    ] = None,
    all_: Annotated[
        str | None,
        typer.Option(
            "--all",
            help="every method of a kind beside vanilla: posthoc, head, network",
            autocompletion=names(lambda: ("posthoc", "head", "network")),
        ),
    ] = None,
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
    out: Out = None,
    store: StoreRoot = None,
    address: Address = None,
    gpus: Gpus = 0.0,
    portable: Portable = False,
    profile: Profile = False,
    shift: Shift = None,
    bootstrap: Bootstrap = 0,
    dry_run: DryRun = False,
) -> Finished | None:
    """Run methods beside each other, network methods as such, the others on a CE network.

    Examples:
        tune-calib compare ce ls+mac_cal+temperature --seeds 3
        tune-calib compare --all posthoc --dataset cifar10 --data-root data
        tune-calib compare ce temperature --imported mine --store store
    """
    if (methods is None) == (all_ is None):
        raise UserError("name methods, or take --all with a kind: posthoc, head or network")
    require_methods(methods) if methods else require_kind(str(all_))
    given = settings(
        dataset, imported, backbone, weights, holdout, norm, epochs, head_epochs, portable, set_
    )
    pairs = chosen_seeds(seeds, network_seeds, head_seeds)
    asked = Asked(given, pairs, own_recipes=own_recipes).suited(recipe)
    record = side_by_side(methods) if methods else all_of(str(all_))
    refuse_unused(record.rungs, given)
    folder = out or f"runs/compare-{imported or dataset}"
    site = site_of(folder, store, data_root, address, gpus, typed())
    look = (tuple(shift or ()), bootstrap)
    return _run(record, asked, replace(site, profile=profile), look, dry_run)


def _run(
    ladder: Ladder,
    asked: Asked,
    site: "Site",
    look: tuple[tuple[str, ...], int],
    is_dry: bool,
) -> Finished | None:
    """Carry a ladder out, and report it; of a dry run, say what would be done."""
    from tune_calib.console import shown
    from tune_calib.tuning.ablate import LadderJob
    from tune_calib.tuning.ablate import ablate as run
    from tune_calib.tuning.look import CloserLook
    from tune_calib.tuning.profile import profiles_told
    from tune_calib.tuning.taken_in import taken_in

    taken = taken_in(asked, site.data_root, site.store, is_dry)
    job = LadderJob(ladder, taken, site, CloserLook(*look))
    if is_dry:
        tell_plan(job)
        return None
    crashed = stoppable(site.command, lambda: run(job, tell_settings))
    report(str(site.out))
    if site.profile:
        echo(shown(profiles_told(site.out)))
    tell_crashed(crashed, site.command, site.out)
    return Finished(site.out, [site.out], [taken.given])
