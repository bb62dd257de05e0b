"""Options that several commands share, and how their values become settings and seeds."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from tune_calib import plugins
from tune_calib.errors import UserError, as_option
from tune_calib.names import CRASHES, IMPORTED, NOT_SETTINGS, SLOTS
from tune_calib.registry import nearest
from tune_calib.settings import refuse_unknown_names
from tune_calib.wording import counted
from tune_calib.yaml_text import UnfoldedError, value_of

if TYPE_CHECKING:
    from tune_calib.tuning.site import Site


def _share(text: str) -> float:
    """``1/3`` as the number that it means."""
    over = str(text).removeprefix("1/")
    is_share = over != str(text) and over.isdigit() and int(over) > 0
    try:
        return 1 / int(over) if is_share else float(text)
    except (ValueError, OverflowError):
        raise UserError(f"--gpus must be 0, 1 or 1/k, got {text}") from None


Dataset = Annotated[str, typer.Option(help="see: tune-calib list datasets")]
Imported = Annotated[
    str | None, typer.Option(help="instead of a data set: NAME that tune-calib import took in")
]
DataRoot = Annotated[Path | None, typer.Option(help="folder that holds the data set")]
Backbone = Annotated[
    str | None, typer.Option(help="see: tune-calib list backbones; or FILE.py:FUNCTION")
]
BothSeeds = Annotated[int | None, typer.Option(help="vary network and head together")]
NetworkSeeds = Annotated[int | None, typer.Option(help="networks, crossed with heads")]
HeadSeeds = Annotated[int | None, typer.Option(help="heads for each network")]
Weights = Annotated[
    Path | None, typer.Option(help="safetensors file of a network that is not trained")
]
Holdout = Annotated[
    str | None, typer.Option(help="part that select and calib are of: train (default), test")
]
Norm = Annotated[
    str | None, typer.Option(help="constants of the pixels: a name, dataset, or [[means],[stds]]")
]
Epochs = Annotated[int | None, typer.Option(help="epochs of the network")]
HeadEpochs = Annotated[int | None, typer.Option(help="epochs of the heads")]
Set = Annotated[list[str] | None, typer.Option("--set", help="slot.key=value: head.gamma=0.9")]
Recipe = Annotated[
    str | None, typer.Option(help="see: tune-calib list recipes; quick unless named")
]
OwnRecipes = Annotated[
    bool,
    typer.Option("--own-recipes", help="each method as its authors train it"),
]
Controls = Annotated[bool, typer.Option("--controls", help="add the controls")]
Out = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="folder or URL of results; a default in runs/"),
]
StoreRoot = Annotated[
    str | None, typer.Option(metavar="PATH", help="folder or URL of artifacts; default: OUT/store")
]
Address = Annotated[str | None, typer.Option(help="a Ray cluster; auto finds it")]
Gpus = Annotated[float, typer.Option(help="GPUs of a trial: 0, 1 or 1/k", parser=_share)]
Portable = Annotated[
    bool, typer.Option("--portable", help="the same numbers on x86 machines, a little slower")
]
Shift = Annotated[
    list[str] | None,
    typer.Option(help="look at finished trials on corruptions, noise, a data set (several times)"),
]
Bootstrap = Annotated[
    int, typer.Option(help="draws of the test samples, for intervals of finished trials")
]
Profile = Annotated[
    bool, typer.Option("--profile", help="write where the time of an epoch of a network went")
]


def settings(
    dataset: str,
    imported: str | None,
    backbone: str | None,
    weights: Path | None,
    holdout: str | None,
    norm: str | None,
    epochs: int | None,
    head_epochs: int | None,
    portable: bool,
    set_: list[str] | None,
) -> dict[str, dict[str, Any]]:
    """Settings by slot that were asked for, from the options that give any.

    Raises:
        UserError: a ``--set`` is not ``slot.key=value``, or a setting is given twice, or a name is
            unknown.
    """
    if weights is not None and epochs is not None:
        raise UserError(
            "--weights is a network that is not trained: leave --epochs out; to train it on, write "
            f"--set network.weights={weights}"
        )
    if imported is not None and dataset != "digits":
        raise UserError("--imported takes the place of --dataset; give one of them")
    given: dict[str, dict[str, Any]] = {"data": {"dataset": dataset}}
    if imported is not None:
        given = {"data": {"dataset": IMPORTED, "imported": imported}}
    for slot, key, option in (
        ("data", "holdout", holdout),
        ("data", "norm", _value(f"--norm {norm}", norm) if norm is not None else None),
        ("network", "backbone", backbone),
        ("network", "weights", str(weights) if weights is not None else None),
        ("network", "epochs", epochs if weights is None else 0),
        ("head", "epochs", head_epochs),
        ("network", "portable", portable or None),
    ):
        if option is not None:
            given.setdefault(slot, {})[key] = option
    for text in set_ or []:
        slot, key, value = _setting(text)
        if key in given.get(slot, {}):
            raise UserError(
                f"--set {text}: {slot}.{key} is given twice (--dataset, --backbone, --epochs, "
                "--head-epochs, --weights, --holdout and --norm give settings too); name it once"
            )
        given.setdefault(slot, {})[key] = value
    network = given.get("network", {})
    if isinstance(named := network.get("backbone"), str):
        network["backbone"] = plugins.backbone(named)
    refuse_unknown_names(given)
    return given


def _setting(text: str) -> tuple[str, str, Any]:
    setting, equals, value = text.partition("=")
    slot, dot, key = setting.partition(".")
    if not equals or not dot or slot not in SLOTS:
        raise UserError(f"--set {text}: write slot.key=value with slot one of {', '.join(SLOTS)}")
    if not value.strip():
        raise UserError(f"--set {text}: give it a value; null is none")
    if key in NOT_SETTINGS:
        raise UserError(f"--set {text}: the {key} is not a setting; the ladder or --seeds names it")
    try:
        return slot, key, _value(f"--set {text}", value)
    except UnfoldedError as error:
        raise UserError(f"--set {slot}.{key}: {error}") from None


def _value(typed_: str, value: str) -> Any:
    try:
        return value_of(value)
    except (yaml.YAMLError, ValueError):
        raise UserError(f"{typed_}: {value!r} is not a value") from None


def chosen_seeds(both: int | None, network: int | None, head: int | None) -> Any:
    """Seeds of networks and heads (``tune_calib.asked.Seeds``).

    Raises:
        UserError: a count is below 1, or the options contradict each other.
    """
    from tune_calib.asked import Seeds

    given = {"--seeds": both, "--network-seeds": network, "--head-seeds": head}
    for option, count in given.items():
        if count is not None and count < 1:
            raise UserError(f"{option} must be at least 1, got {count}")
    if both is not None and (network is not None or head is not None):
        raise UserError(
            "--seeds varies both together; give it, or --network-seeds and --head-seeds"
        )
    return Seeds.count(both, network, head)


def site_of(
    out: str,
    store: str | None,
    data_root: Path | None,
    address: str | None,
    gpus: float,
    command: str,
) -> "Site":
    """Where a job is carried out; artifacts lie in the folder of its results unless named."""
    from tune_calib.places import place
    from tune_calib.tuning.site import Site

    folder = place(out)
    artifacts = place(store) if store else folder / "store"
    return Site(folder, artifacts, data_root, address, gpus, command)


def typed() -> str:
    """What was typed, to do the same again."""
    return shlex.join(["tune-calib", *sys.argv[1:]])


def stoppable(again: str, work: Callable[[], Any]) -> Any:
    """Do some work; a signal that stops it is one line that says how to go on."""
    from tune_calib.tuning.backend.stop import stop_signals

    def tell(name: str) -> None:
        typer.echo(f"stopped by {name}; go on with: {again}", err=True)

    with stop_signals(tell) as stop:
        try:
            return work()
        except KeyboardInterrupt:
            raise typer.Exit(128 + stop.number) from None


def tell_crashed(crashed: list[str], again: str, folder: Any) -> None:
    """Say that trials crashed and what runs them again, and end with exit code 1; if any did."""
    if crashed:
        typer.echo(
            f"{counted(len(crashed), 'trial')} crashed; first: {as_option(crashed[0])}", err=True
        )
        typer.echo(f"try them again: {again}; tracebacks: {folder / CRASHES}", err=True)
        raise typer.Exit(1)


def known(option: str, value: str, names: tuple[str, ...]) -> None:
    """Refuse a value that is not among some names.

    Raises:
        UserError: it is not; the message suggests the nearest.
    """
    if value not in names:
        raise UserError(f"unknown {option} {value!r}{nearest(value, list(names))}")


def one_format(**flags: bool) -> str:
    """The one format that is asked for; ``plain`` if none is."""
    asked = [name for name, is_asked in flags.items() if is_asked]
    if len(asked) > 1:
        raise UserError(f"ask for one format, not {' and '.join('--' + name for name in asked)}")
    return asked[0] if asked else "plain"
