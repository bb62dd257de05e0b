"""The command import: features and logits from elsewhere."""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib.console import echo
from tune_calib.text import format_count

if TYPE_CHECKING:
    from tune_calib.spec.slots.data import ImportedData

_FILES = "[ROLE=]FILE[:KEY]: npz, npy, safetensors, Parquet or HDF5; repeat for more arrays"


def _files(help_: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(metavar="FILE", help=help_)
    return option


def import_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="name for --imported NAME")],
    store: Annotated[
        str, typer.Option(metavar="PATH", help="folder or URL of artifacts; --store of later runs")
    ],
    train: Annotated[list[str] | None, _files("training split, needed for heads")] = None,
    select: Annotated[list[str] | None, _files("default: half of --calib")] = None,
    calib: Annotated[list[str] | None, _files(_FILES)] = None,
    test: Annotated[list[str] | None, _files("test split; read once, at the end")] = None,
    head: Annotated[
        list[str] | None, _files("weight and bias of the last layer; needed with features")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="overwrite an existing import of this name")
    ] = False,
) -> None:
    """Import features or logits to use in place of a data set and network.

    Examples:
        tune-calib import mine --calib calib.npz --test test.npz --store store
        tune-calib import mine --calib logits=logits.npy --calib labels=labels.npy --store store
    """
    from tune_calib.engine.imports import check_files, check_name, write_import
    from tune_calib.engine.store import Store
    from tune_calib.paths import parse_path

    check_name(name)
    checked = check_files(train or (), select or (), calib or (), test or (), head or ())
    write_import(name, checked, Store(parse_path(store)), replace)
    echo(_describe(name, checked.record))
    words = ["tune-calib", "compare", "ce", "temperature", "--imported", name, "--store", store]
    echo(f"next: {shlex.join(words)}")


def _describe(name: str, record: "ImportedData") -> str:
    sizes = {each: getattr(record, each) for each in ("train", "select", "calib", "test")}
    lines = [
        f"imported as {name} ({record.digest}): {record.classes} classes, "
        f"{format_count(record.width, 'feature')}; samples: "
        + ", ".join(f"{each} {count}" for each, count in sizes.items() if count)
    ]
    if record.outputs == "probs":
        lines.append("probabilities are used as log-probabilities (at least 1e-12)")
    if record.outputs == "head":
        lines.append("logits are computed from the features with --head")
    if record.is_cut:
        lines.append("select and calib are the two halves of --calib, stratified by class")
    if not record.train:
        lines.append("note: without --train, reports cannot show how well the network fits it")
    if not record.has_heads:
        lines.append("note: post-hoc methods can use it; head methods need features of --train")
    return "\n".join(lines)
