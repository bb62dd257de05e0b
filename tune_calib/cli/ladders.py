"""The commands of ladders and comparisons: ablate, compare."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib.asked import Asked
from tune_calib.cli.before import DryRun, tell_plan, tell_settings
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
from tune_calib.errors import UserError
from tune_calib.ladder import Ladder, refuse_unused
from tune_calib.options import chosen_seeds
from tune_calib.pipelines import all_of, side_by_side
from tune_calib.registry import LADDERS

if TYPE_CHECKING:
    from tune_calib.tuning.site import Site


def ablate(
    ladder: Annotated[str, typer.Argument(help="see: tune-calib list ladders")],
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
) -> None:
    """Run an ablation ladder and report it; what is done already is not done again."""
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
    _run(record, asked, replace(site, profile=profile), look, dry_run)


def compare(
    methods: Annotated[
        list[str] | None,
        typer.Argument(help="tune-calib list methods; several as ls+mac_cal+temperature"),
    ] = None,
    all_: Annotated[
        str | None,
        typer.Option("--all", help="every method of a kind beside vanilla: posthoc, head, network"),
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
) -> None:
    """Run methods beside each other, network methods as such, the others on a CE network."""
    if (methods is None) == (all_ is None):
        raise UserError("name methods, or take --all with a kind: posthoc, head or network")
    record = side_by_side(methods) if methods else all_of(str(all_))
    given = settings(
        dataset, imported, backbone, weights, holdout, norm, epochs, head_epochs, portable, set_
    )
    refuse_unused(record.rungs, given)
    pairs = chosen_seeds(seeds, network_seeds, head_seeds)
    asked = Asked(given, pairs, own_recipes=own_recipes).suited(recipe)
    folder = out or f"runs/compare-{imported or dataset}"
    site = site_of(folder, store, data_root, address, gpus, typed())
    look = (tuple(shift or ()), bootstrap)
    _run(record, asked, replace(site, profile=profile), look, dry_run)


def _run(
    ladder: Ladder,
    asked: Asked,
    site: "Site",
    look: tuple[tuple[str, ...], int],
    is_dry: bool,
) -> None:
    """Carry a ladder out, and report it; of a dry run, say what would be done."""
    from tune_calib.tuning.ablate import LadderJob
    from tune_calib.tuning.ablate import ablate as run
    from tune_calib.tuning.look import CloserLook
    from tune_calib.tuning.profile import profiles_told
    from tune_calib.tuning.taken_in import taken_in

    taken = taken_in(asked, site.data_root, site.store, is_dry)
    job = LadderJob(ladder, taken, site, CloserLook(*look))
    if is_dry:
        tell_plan(job)
        return
    crashed = stoppable(site.command, lambda: run(job, tell_settings))
    report(str(site.out))
    if site.profile:
        typer.echo(profiles_told(site.out))
    tell_crashed(crashed, site.command, site.out)
