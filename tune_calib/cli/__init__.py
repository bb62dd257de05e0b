"""The command line. Heavy imports stand inside the commands, so that ``--help`` is quick."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tune_calib.cli import analysis, search, sweep_file
from tune_calib.cli.entry import OnceCommand, one_line, refuse_empty
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
from tune_calib.errors import UserError
from tune_calib.registry import BACKBONES, DATASETS, LADDERS, METHODS, SPACES, Registry

if TYPE_CHECKING:
    from tune_calib.places import Place

app = typer.Typer(
    help="Hyper-parameter search and ablation harness for neural-network calibration.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

_LISTS: dict[str, Registry[Any]] = {
    "methods": METHODS,
    "ladders": LADDERS,
    "datasets": DATASETS,
    "backbones": BACKBONES,
    "spaces": SPACES,
}


_WIDE = ("defaults", "recipe", "recipe on a data set")  # columns too wide for a page


@app.callback(invoke_without_command=True)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="methods, ladders, datasets, backbones or spaces")],
    name: Annotated[str | None, typer.Argument(help="one entry alone")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="a list of objects")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="a table for a page")] = False,
) -> None:
    """Show what is registered."""
    form = analysis.one_format(json=as_json, markdown=as_markdown)
    if what not in _LISTS:
        raise UserError(f"cannot list {what!r}; known: {', '.join(_LISTS)}")
    registry = _LISTS[what]
    entries = [_entry(entry, registry[entry]) for entry in ([name] if name else registry)]
    if form == "json":
        typer.echo(json.dumps(entries, indent=1))
        return
    from tabulate import tabulate

    if what == "spaces":
        entries = _space_rows(entries)
    rows = [_printed(entry) for entry in entries]
    if form == "markdown":
        rows = [{k: v for k, v in row.items() if k not in _WIDE} for row in rows]
    typer.echo(
        tabulate(rows, headers="keys", tablefmt="github" if form == "markdown" else "simple")
    )


def _printed(entry: dict[str, Any]) -> dict[str, str]:
    """An entry as a table row: nested values in one line each, links left to --json."""
    row = {}
    for key, value in entry.items():
        if isinstance(value, dict):
            row[key] = ", ".join(f"{k}={v}" for k, v in value.items())
        elif key != "url":
            row[key] = ", ".join(value) if isinstance(value, list) else str(value)
    return row


def _space_rows(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a setting: where it is searched, and which published values are tried first."""
    return [
        {
            "method": entry["name"],
            "setting": key,
            "values": str(setting),
            "tried first, after the defaults": [str(p[key]) for p in entry["first"] if key in p],
        }
        for entry in entries
        for key, setting in SPACES[entry["name"]].settings.items()
    ]


def _entry(name: str, record: Any) -> dict[str, Any]:
    if hasattr(record, "kind"):
        return {
            "name": name,
            "kind": record.kind,
            "title": record.title,
            "paper": record.paper,
            "year": record.year,
            "url": record.url,
            "needs": sorted(record.needs),
            "defaults": record.params().model_dump(mode="json"),
            "recipe": record.slot_defaults or {},
            "recipe on a data set": record.dataset_slot_defaults or {},
        }
    if hasattr(record, "rungs"):
        return {
            "name": name,
            "title": record.title,
            "published": record.published,
            "rungs": [rung.label for rung in record.rungs],
        }
    if hasattr(record, "settings"):
        return {
            "name": name,
            "settings": {key: setting.plain() for key, setting in record.settings.items()},
            "first": [dict(point) for point in record.first],
        }
    return {"name": name, "title": record.title}


@app.command()
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


@app.command()
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
    from ablations._ladder import side_by_side

    record = side_by_side(methods)
    _run(record, out or f"runs/compare-{dataset}", {**locals(), "controls": False})


def _run(record: Any, out: str, options: dict[str, Any]) -> None:
    """Carry a ladder out with the options of ``ablate`` or ``compare``, and report it."""
    from ablations._ladder import refuse_unused

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


@app.command()
def report(
    out: Annotated[str, typer.Argument(help="folder or URL of a sweep, a search or a sweep file")],
    published: Annotated[str | None, typer.Option(help="a paper's table to put beside it")] = None,
    test: Annotated[str | None, typer.Option(help="of a compare sweep: wilcoxon or t")] = None,
    study_storage: search.Storage = None,
) -> None:
    """Write tables and figures of a sweep or a search and print its table."""
    from analysis.report import write_report
    from tune_calib.cli.folders import tell
    from tune_calib.manifests import is_search
    from tune_calib.places import place

    def written(folder: "Place") -> str:
        if not is_search(folder):
            search.refuse_storage(folder, study_storage)
            return write_report(folder, published, test)
        for option, value in (("--published", published), ("--test", test)):
            if value is not None:
                raise UserError(f"{option} stands beside a sweep; this folder holds a search")
        return search.report(folder, study_storage)

    tell(place(out), written)


@app.command()
def pictures(
    out: Annotated[str, typer.Argument(help="folder or URL of a sweep")],
    store: StoreRoot = None,
    data_root: DataRoot = None,
) -> None:
    """Evaluate a trial of each rung on corrupted images and keep some logits, for the report."""
    from tune_calib.places import place
    from tune_calib.portable import PORTABLE, is_portable_process
    from tune_calib.results import read_table

    folder = place(out)
    slots = read_table(folder, "trials", keep=lambda name: name == "network")["network"].to_pylist()
    if not is_portable_process() and any(
        json.loads(slot).get("portable") for slot in slots if slot
    ):
        # Heads are trained again, in a process that loads torch as the trials' did.
        command = [sys.executable, "-m", "tune_calib.cli", "pictures", out]
        command += ["--store", store] if store else []
        command += ["--data-root", str(data_root)] if data_root else []
        done = subprocess.run(command, env={**os.environ, **PORTABLE}, check=False)
        raise typer.Exit(done.returncode)

    from tune_calib.tuning.pictures import take_pictures

    artifacts = place(store) if store else folder / "store"
    typer.echo("\n".join(take_pictures(folder, artifacts, data_root)))
    typer.echo(f"tune-calib report {out} draws them")


@app.command()
def status(
    out: Annotated[str, typer.Argument(help="folder or URL of a sweep, a search or a sweep file")],
    study_storage: search.Storage = None,
) -> None:
    """Say what of a sweep or a search is done."""
    from analysis.report import status as of_sweep
    from tune_calib.cli.folders import tell
    from tune_calib.manifests import is_search
    from tune_calib.places import place

    def described(folder: "Place") -> str:
        if not is_search(folder):
            search.refuse_storage(folder, study_storage)
            return of_sweep(folder)
        from tune_calib.tuning.describe import status as of_search

        return of_search(folder, study_storage)

    tell(place(out), described)


search.register(app)
app.command()(sweep_file.run)
app.command()(sweep_file.schema)
app.command()(analysis.ranks)
app.command()(analysis.significance)

for _registered in app.registered_commands:
    _registered.cls = OnceCommand


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point: a user's mistake is one line and exit code 2."""
    with one_line():
        refuse_empty(sys.argv[1:] if arguments is None else arguments)
        code = app(args=arguments, standalone_mode=False)
    sys.exit(code)
