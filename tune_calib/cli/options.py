"""Options that several commands share, and how their values become settings and seeds."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from tune_calib import options
from tune_calib.errors import UserError, as_option
from tune_calib.names import CRASHES, SLOTS
from tune_calib.registry import nearest
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
        UserError: a ``--set`` is not ``slot.key=value``, or a setting is given twice.
    """
    return options.settings(
        dataset,
        imported,
        backbone,
        weights,
        holdout,
        _value(f"--norm {norm}", norm) if norm is not None else None,
        epochs,
        head_epochs,
        portable,
        [_setting(text) for text in set_ or []],
    )


def _setting(text: str) -> tuple[str, Any]:
    setting, equals, value = text.partition("=")
    if not equals or "." not in setting:
        raise UserError(f"--set {text}: write slot.key=value with slot one of {', '.join(SLOTS)}")
    if not value.strip():
        raise UserError(f"--set {text}: give it a value; null is none")
    try:
        return setting, _value(f"--set {text}", value)
    except UnfoldedError as error:
        raise UserError(f"--set {setting}: {error}") from None


def _value(typed_: str, value: str) -> Any:
    try:
        return value_of(value)
    except (yaml.YAMLError, ValueError):
        raise UserError(f"{typed_}: {value!r} is not a value") from None


def site_of(
    out: str,
    store: str | None,
    data_root: Path | None,
    address: str | None,
    gpus: float,
    command: str,
) -> "Site":
    """Where a job is carried out; artifacts lie in the folder of its results unless named."""
    from tune_calib.tuning.site import Site

    return Site.of(out, store, data_root, address, gpus, command)


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
