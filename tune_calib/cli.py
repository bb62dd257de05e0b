"""The command line. Heavy imports stand inside the commands, so that ``--help`` is quick."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import yaml

from tune_calib import cli_analysis
from tune_calib.errors import UserError
from tune_calib.registry import BACKBONES, DATASETS, LADDERS, METHODS, Registry

app = typer.Typer(
    help="Hyper-parameter search and ablation harness for neural-network calibration.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_LISTS: dict[str, Registry[Any]] = {
    "methods": METHODS,
    "ladders": LADDERS,
    "datasets": DATASETS,
    "backbones": BACKBONES,
}


@app.command("list")
def list_(
    what: Annotated[str, typer.Argument(help="methods, ladders, datasets or backbones")],
    as_json: Annotated[bool, typer.Option("--json", help="a list of objects")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="a table for a page")] = False,
) -> None:
    """Show what is registered."""
    if what not in _LISTS:
        raise UserError(f"cannot list {what!r}; known: {', '.join(_LISTS)}")
    registry = _LISTS[what]
    entries = [_entry(name, registry[name]) for name in registry]
    if as_json:
        typer.echo(json.dumps(entries, indent=1))
        return
    from tabulate import tabulate

    rows = [_printed(entry) for entry in entries]
    if as_markdown:
        rows = [{k: v for k, v in row.items() if k not in ("defaults", "recipe")} for row in rows]
    typer.echo(tabulate(rows, headers="keys", tablefmt="github" if as_markdown else "simple"))


def _printed(entry: dict[str, Any]) -> dict[str, str]:
    """An entry as a table row: nested values in one line each, links left to --json."""
    row = {}
    for key, value in entry.items():
        if isinstance(value, dict):
            row[key] = ", ".join(f"{k}={v}" for k, v in value.items())
        elif key != "url":
            row[key] = ", ".join(value) if isinstance(value, list) else str(value)
    return row


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
        }
    if hasattr(record, "rungs"):
        return {
            "name": name,
            "title": record.title,
            "published": record.published,
            "rungs": [rung.label for rung in record.rungs],
        }
    return {"name": name, "title": record.title}


Dataset = Annotated[str, typer.Option(help="see: tune-calib list datasets")]
DataRoot = Annotated[Path | None, typer.Option(help="folder that holds the data set")]
Backbone = Annotated[str | None, typer.Option(help="see: tune-calib list backbones")]
BothSeeds = Annotated[int | None, typer.Option(help="vary network and head together")]
NetworkSeeds = Annotated[int | None, typer.Option(help="networks, crossed with heads")]
HeadSeeds = Annotated[int | None, typer.Option(help="heads for each network")]
Epochs = Annotated[int | None, typer.Option(help="epochs of the network")]
HeadEpochs = Annotated[int | None, typer.Option(help="epochs of the heads")]
Set = Annotated[list[str] | None, typer.Option("--set", help="slot.key=value: head.gamma=0.9")]
Controls = Annotated[bool, typer.Option("--controls", help="add the controls")]
Out = Annotated[Path | None, typer.Option(help="folder of the results; a default in runs/")]
StoreRoot = Annotated[Path | None, typer.Option(help="artifacts; default: OUT/store")]
Address = Annotated[str | None, typer.Option(help="a Ray cluster; auto finds it")]
Gpus = Annotated[float, typer.Option(help="GPUs of a trial: 0, 1 or 1/k")]


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
) -> None:
    """Run an ablation ladder and report it; what is done already is not done again."""
    record = LADDERS[ladder]
    folder = out or Path("runs") / f"{ladder}-{dataset}"
    _run(record, folder, dict(locals()))


@app.command()
def compare(
    methods: Annotated[list[str], typer.Argument(help="see: tune-calib list methods")],
    dataset: Dataset = "digits",
    data_root: DataRoot = None,
    backbone: Backbone = None,
    seeds: BothSeeds = None,
    network_seeds: NetworkSeeds = None,
    head_seeds: HeadSeeds = None,
    epochs: Epochs = None,
    head_epochs: HeadEpochs = None,
    set_: Set = None,
    out: Out = None,
    store: StoreRoot = None,
    address: Address = None,
    gpus: Gpus = 0.0,
) -> None:
    """Run methods beside each other, network methods as such, the others on a CE network."""
    from ablations._ladder import side_by_side

    record = side_by_side(methods)
    folder = out or Path("runs") / f"compare-{dataset}"
    _run(record, folder, {**locals(), "controls": False})


def _run(record: Any, folder: Path, options: dict[str, Any]) -> None:
    """Carry a ladder out with the options of ``ablate`` or ``compare``, and report it."""
    given: dict[str, dict[str, Any]] = {"data": {"dataset": options["dataset"]}}
    for slot, key, name in (
        ("network", "backbone", "backbone"),
        ("network", "epochs", "epochs"),
        ("head", "epochs", "head_epochs"),
    ):
        if options[name] is not None:
            given.setdefault(slot, {})[key] = options[name]
    for text in options["set_"] or []:
        slot, key, value = _setting(text)
        given.setdefault(slot, {})[key] = value
    seeds = _seeds(options["seeds"], options["network_seeds"], options["head_seeds"])
    defaults = DATASETS[options["dataset"]].cpu_defaults

    from tune_calib.tuning.ablate import Request
    from tune_calib.tuning.ablate import ablate as run

    request = Request(
        ladder=record,
        defaults=defaults,
        given=given,
        seeds=seeds,
        with_controls=options["controls"],
        out=folder,
        store=options["store"] or folder / "store",
        data_root=options["data_root"],
        address=options["address"],
        gpus=options["gpus"],
        command=shlex.join(["tune-calib", *sys.argv[1:]]),
    )
    crashed = run(request)
    report(folder)
    if crashed:
        typer.echo(f"{len(crashed)} trials crashed; first: {crashed[0]}", err=True)
        typer.echo("The same command runs them again.", err=True)
        raise typer.Exit(1)


@app.command()
def report(
    out: Annotated[Path, typer.Argument(help="folder of a sweep")],
    published: Annotated[str | None, typer.Option(help="a paper's table to put beside it")] = None,
    test: Annotated[str, typer.Option(help="of a compare sweep: wilcoxon or t")] = "wilcoxon",
) -> None:
    """Write tables and figures of a sweep and print its table."""
    from analysis.report import write_report

    typer.echo(write_report(out, published, test))


@app.command()
def status(out: Annotated[Path, typer.Argument(help="folder of a sweep")]) -> None:
    """Say what of a sweep is done."""
    from analysis.report import status as describe

    typer.echo(describe(out))


app.command()(cli_analysis.ranks)
app.command()(cli_analysis.significance)


def _setting(text: str) -> tuple[str, str, Any]:
    place, equals, value = text.partition("=")
    slot, dot, key = place.partition(".")
    slots = ("data", "network", "head", "posthoc")
    if not equals or not dot or slot not in slots:
        raise UserError(f"--set {text}: write slot.key=value with slot one of {', '.join(slots)}")
    if key in ("seed", "method", "params"):
        raise UserError(f"--set {text}: the {key} is not a setting; the ladder or --seeds names it")
    try:
        return slot, key, yaml.safe_load(value)
    except yaml.YAMLError:
        raise UserError(f"--set {text}: {value!r} is not a value") from None


def _seeds(both: int | None, network: int | None, head: int | None) -> Any:
    from ablations._ladder import Seeds

    given = {"--seeds": both, "--network-seeds": network, "--head-seeds": head}
    for option, count in given.items():
        if count is not None and count < 1:
            raise UserError(f"{option} must be at least 1, got {count}")
    if both is not None and (network is not None or head is not None):
        raise UserError(
            "--seeds varies both together; give it, or --network-seeds and --head-seeds"
        )
    if network is None and head is None:
        count = both or 1
        return Seeds(tuple(range(count)), tuple(range(count)), is_paired=True)
    return Seeds(tuple(range(network or 1)), tuple(range(head or 1)), is_paired=False)


def main() -> NoReturn:
    """Entry point: a user's mistake is one line and exit code 2."""
    try:
        app(standalone_mode=True)
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    sys.exit(0)


if __name__ == "__main__":
    main()
