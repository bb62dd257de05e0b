"""Options that several commands share, and how their values become settings and seeds."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from tune_calib.cli import defaults
from tune_calib.cli.completion import names as names_of
from tune_calib.cli.panels import DATA, LOOKS, SEEDS, TRAINING, WHERE
from tune_calib.console import echo
from tune_calib.errors import UserError, as_option
from tune_calib.experiments.yaml_text import UnfoldedError, value_of
from tune_calib.spec import options
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.names import CRASHES, SLOTS
from tune_calib.spec.recipe import RECIPES
from tune_calib.text import command_line, counted, nearest

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


Dataset = Annotated[
    str,
    typer.Option(
        help="see: tune-calib list datasets",
        autocompletion=names_of(lambda: DATASETS),
        rich_help_panel=DATA,
    ),
]
Imported = Annotated[
    str | None,
    typer.Option(
        help="instead of a data set: NAME that tune-calib import took in", rich_help_panel=DATA
    ),
]
DataRoot = Annotated[
    Path | None, typer.Option(help="folder that holds the data set", rich_help_panel=DATA)
]
Holdout = Annotated[
    str | None,
    typer.Option(
        help="part that select and calib are of: train, test",
        show_default="train",
        rich_help_panel=DATA,
    ),
]
Norm = Annotated[
    str | None,
    typer.Option(
        help="constants of the pixels: a name, dataset, or a list of means and one of deviations",
        show_default="the data set's",
        rich_help_panel=DATA,
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="see: tune-calib list backbones; or FILE.py:FUNCTION",
        show_default="the recipe's",
        autocompletion=names_of(lambda: BACKBONES),
        rich_help_panel=TRAINING,
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(
        help="safetensors file of a network that is not trained", rich_help_panel=TRAINING
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(
        help="epochs of the network", show_default="the recipe's", rich_help_panel=TRAINING
    ),
]
HeadEpochs = Annotated[
    int | None,
    typer.Option(help="epochs of the heads", show_default="the recipe's", rich_help_panel=TRAINING),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        help="see: tune-calib list recipes",
        show_default="quick",
        autocompletion=names_of(lambda: RECIPES),
        rich_help_panel=TRAINING,
    ),
]
OwnRecipes = Annotated[
    bool,
    typer.Option(
        "--own-recipes", help="each method as its authors train it", rich_help_panel=TRAINING
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SLOT.KEY=VALUE",
        help="any setting, e.g. head.gamma=0.9; repeatable",
        rich_help_panel=TRAINING,
    ),
]
Portable = Annotated[
    bool,
    typer.Option(
        "--portable",
        help="the same numbers on x86 machines, a little slower",
        rich_help_panel=TRAINING,
    ),
]
Controls = Annotated[
    bool, typer.Option("--controls", help="add the controls", rich_help_panel=TRAINING)
]
BothSeeds = Annotated[
    int | None,
    typer.Option(
        help="how many; network and head vary together", show_default="1", rich_help_panel=SEEDS
    ),
]
NetworkSeeds = Annotated[
    int | None, typer.Option(help="how many networks, crossed with heads", rich_help_panel=SEEDS)
]
HeadSeeds = Annotated[
    int | None, typer.Option(help="how many heads for each network", rich_help_panel=SEEDS)
]
Out = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="folder or URL of results",
        show_default="a folder in runs/",
        rich_help_panel=WHERE,
    ),
]
StoreRoot = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="folder or URL of artifacts",
        show_default="OUT/store",
        rich_help_panel=WHERE,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="a Ray cluster; auto finds it", show_default="this machine", rich_help_panel=WHERE
    ),
]
Gpus = Annotated[
    float,
    typer.Option(help="GPUs of a trial: 0, 1 or 1/k", parser=_share, rich_help_panel=WHERE),
]
Profile = Annotated[
    bool,
    typer.Option(
        "--profile",
        help="write where the time of an epoch of a network went",
        rich_help_panel=WHERE,
    ),
]
Shift = Annotated[
    list[str] | None,
    typer.Option(
        help="look at finished trials on corruptions, noise, a data set (several times)",
        rich_help_panel=LOOKS,
    ),
]
Bootstrap = Annotated[
    int,
    typer.Option(
        help="draws of the test samples, for intervals of finished trials", rich_help_panel=LOOKS
    ),
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
    """What was typed, and the user's own defaults as options, to do the same again."""
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    return command_line(["tune-calib", *given[:end], *defaults.words(), *given[end:]])


def typed_of(context: typer.Context, argument: str, *without: str) -> str:
    """The command as typed, for one of its arguments alone.

    Args:
        context: of the command.
        argument: in the place of all that were named.
        without: keys of options that named them too.
    """
    words = defaults.typed_options(context, without)
    return command_line(["tune-calib", context.command.name or "", argument, *words])


def stoppable(again: str, work: Callable[[], Any]) -> Any:
    """Do some work; a signal that stops it is one line that says how to go on."""
    from tune_calib.tuning.ray.stop import stop_signals

    def tell(name: str) -> None:
        echo(f"stopped by {name}; go on with: {again}", err=True)

    with stop_signals(tell) as stop:
        try:
            return work()
        except KeyboardInterrupt:
            raise typer.Exit(128 + stop.number) from None


def tell_crashed(crashed: list[str], again: str, folder: Any) -> None:
    """Say that trials crashed and what runs them again, and end with exit code 1; if any did."""
    if crashed:
        echo(f"{counted(len(crashed), 'trial')} crashed; first: {as_option(crashed[0])}", err=True)
        echo(f"try them again: {again}; tracebacks: {folder / CRASHES}", err=True)
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
