"""The commands of ladders and comparisons: ablate, compare."""

import shlex
import sys
from typing import Annotated, Any

import typer

from tune_calib.cli.options import (
    Address,
    Backbone,
    BothSeeds,
    Controls,
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
    settings,
    stoppable,
    tell_crashed,
)
from tune_calib.cli.results import report
from tune_calib.registry import LADDERS


def ablate(
    ladder: Annotated[str, typer.Argument(help="see: tune-calib list ladders")],
    dataset: Dataset = "digits",
    data_root: DataRoot = None,
    backbone: Backbone = None,
    seeds: BothSeeds = None,
    network_seeds: NetworkSeeds = None,
    head_seeds: HeadSeeds = None,
    epochs: Epochs = None,
    head_epochs: HeadEpochs = None,
    set_: Set = None,
    controls: Controls = False,
    out: Out = None,
    store: StoreRoot = None,
    address: Address = None,
    gpus: Gpus = 0.0,
    portable: Portable = False,
) -> None:
    """Run an ablation ladder and report it; what is done already is not done again."""
    record = LADDERS[ladder]
    _run(record, out or f"runs/{ladder}-{dataset}", {**locals(), "own_recipes": False})


def compare(
    methods: Annotated[
        list[str], typer.Argument(help="tune-calib list methods; several as ls+mac_cal+temperature")
    ],
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
    out: Out = None,
    store: StoreRoot = None,
    address: Address = None,
    gpus: Gpus = 0.0,
    portable: Portable = False,
) -> None:
    """Run methods beside each other, network methods as such, the others on a CE network."""
    from tune_calib.ladder import side_by_side

    record = side_by_side(methods)
    _run(record, out or f"runs/compare-{dataset}", {**locals(), "controls": False})


def _run(record: Any, out: str, options: dict[str, Any]) -> None:
    """Carry a ladder out with the options of ``ablate`` or ``compare``, and report it."""
    from tune_calib.ladder import refuse_unused

    given = settings(options)
    refuse_unused(record.rungs, given)
    seeds = chosen_seeds(options["seeds"], options["network_seeds"], options["head_seeds"])

    from tune_calib.places import place
    from tune_calib.recipes import suited_to
    from tune_calib.tuning.ablate import Request
    from tune_calib.tuning.ablate import ablate as run

    folder = place(out)
    request = Request(
        ladder=record,
        defaults=suited_to(given),
        given=given,
        seeds=seeds,
        with_controls=options["controls"],
        out=folder,
        store=place(options["store"]) if options["store"] else folder / "store",
        data_root=options["data_root"],
        address=options["address"],
        gpus=options["gpus"],
        command=shlex.join(["tune-calib", *sys.argv[1:]]),
        own_recipes=options["own_recipes"],
    )
    crashed = stoppable(request.command, lambda: run(request))
    report(out)
    tell_crashed(crashed, request.command, folder)
