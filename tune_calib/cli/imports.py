"""The command import: features and logits of others. The imports stand inside, as in ``cli``."""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib.console import echo
from tune_calib.text import format_count

if TYPE_CHECKING:
    from tune_calib.spec.slots.data import ImportedData

_FILES = "[ROLE=]FILE[:KEY], of npz, npy, safetensors, Parquet or HDF5"

Name = Annotated[str, typer.Argument(metavar="NAME", help="by which --imported asks for it")]
Train = Annotated[list[str] | None, typer.Option(metavar="FILE", help="heads train on it")]
Select = Annotated[
    list[str] | None, typer.Option(metavar="FILE", help="unless given: half of --calib")
]
Calib = Annotated[list[str] | None, typer.Option(metavar="FILE", help=_FILES)]
Test = Annotated[list[str] | None, typer.Option(metavar="FILE", help="a further array: once more")]
Head = Annotated[
    list[str] | None, typer.Option(metavar="FILE", help="weight and bias; needed with features")
]
StoreRoot = Annotated[
    str, typer.Option(metavar="PATH", help="folder or URL of artifacts, for --store of others")
]
Replace = Annotated[bool, typer.Option("--replace", help="NAME may mean something else so far")]


def import_(
    name: Name,
    store: StoreRoot,
    train: Train = None,
    select: Select = None,
    calib: Calib = None,
    test: Test = None,
    head: Head = None,
    replace: Replace = False,
) -> None:
    """Take features and logits in, which stand where a data set and a network stand.

    Examples:
        tune-calib import mine --calib calib.npz --test test.npz --store store
        tune-calib import mine --calib logits=logits.npy --calib labels=labels.npy --store store
    """
    from tune_calib.engine.import_files import checked
    from tune_calib.engine.imports import keep, refuse_name
    from tune_calib.engine.store import Store
    from tune_calib.paths import parse_path

    refuse_name(name)
    given = checked(train or (), select or (), calib or (), test or (), head or ())
    keep(name, given, Store(parse_path(store)), replace)
    echo(_told(name, given.record))
    words = ["tune-calib", "compare", "ce", "temperature", "--imported", name, "--store", store]
    echo(f"next: {shlex.join(words)}")


def _told(name: str, record: "ImportedData") -> str:
    """What was taken in, and what of it was decided here."""
    sizes = {each: getattr(record, each) for each in ("train", "select", "calib", "test")}
    lines = [
        f"imported as {name} ({record.digest}): {record.classes} classes, "
        f"{format_count(record.width, 'feature')}; samples: "
        + ", ".join(f"{each} {count}" for each, count in sizes.items() if count)
    ]
    if record.outputs == "probs":
        lines.append("probabilities are taken as log-probabilities (at least 1e-12)")
    if record.outputs == "head":
        lines.append("logits are what --head makes of the features")
    if record.is_cut:
        lines.append("select and calib are the halves of --calib, class by class")
    if not record.train:
        lines.append("note: without --train, reports cannot show how well the network fits it")
    if not record.has_heads:
        lines.append("note: post-hoc methods can use it; head methods need features of --train")
    return "\n".join(lines)
