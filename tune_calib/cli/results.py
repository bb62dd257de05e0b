"""The commands of a folder of results: report, status, pictures."""

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib import plugins
from tune_calib.cli import searches
from tune_calib.cli.options import DataRoot, StoreRoot
from tune_calib.errors import UserError

if TYPE_CHECKING:
    from tune_calib.places import Place


def report(
    out: Annotated[str, typer.Argument(help="folder or URL of a sweep, a search or a sweep file")],
    published: Annotated[str | None, typer.Option(help="a paper's table to put beside it")] = None,
    test: Annotated[str | None, typer.Option(help="of a compare sweep: wilcoxon or t")] = None,
    regime: Annotated[bool, typer.Option("--regime", help="in the table of a sweep")] = False,
    study_storage: searches.Storage = None,
) -> None:
    """Write tables and figures of a sweep or a search and print its table."""
    from analysis.ladder.report import write_report
    from tune_calib.cli.folders import tell
    from tune_calib.folders import is_search
    from tune_calib.places import place

    def written(folder: "Place") -> str:
        if not is_search(folder):
            searches.refuse_storage(folder, study_storage)
            return write_report(folder, published, test, regime)
        given = {"--published": published, "--test": test, "--regime": regime or None}
        for option, value in given.items():
            if value is not None:
                raise UserError(f"{option} stands beside a sweep; this folder holds a search")
        return searches.report(folder, study_storage)

    tell(place(out), written)


def pictures(
    out: Annotated[str, typer.Argument(help="folder or URL of a sweep")],
    store: StoreRoot = None,
    data_root: DataRoot = None,
    shift: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Keep some logits of a trial of each rung, for the report."""
    if shift is not None:
        raise UserError(
            "shifted images are asked for where trials are run: give the command of the sweep "
            "again with --shift corruptions"
        )
    from tune_calib.cli.folders import opened
    from tune_calib.places import place
    from tune_calib.portable import PORTABLE, is_portable_process
    from tune_calib.results import read_table

    folder = opened(out)
    slots = read_table(folder, "trials", keep=lambda name: name == "network")["network"].to_pylist()
    if not is_portable_process() and any(
        json.loads(slot).get("portable") for slot in slots if slot
    ):
        # Heads are trained again, in a process that loads torch as the trials' did.
        command = [sys.executable, "-m", "tune_calib.cli", "pictures", out]
        command += ["--store", store] if store else []
        command += ["--data-root", str(data_root)] if data_root else []
        command += [word for own in plugins.in_use() for word in ("--plugin", own.where)]
        done = subprocess.run(command, env={**os.environ, **PORTABLE}, check=False)
        raise typer.Exit(done.returncode)

    from tune_calib.tuning.pictures import take_pictures

    artifacts = place(store) if store else folder / "store"
    typer.echo("\n".join(take_pictures(folder, artifacts, data_root)))
    typer.echo(f"tune-calib report {out} draws them")


def status(
    out: Annotated[str, typer.Argument(help="folder or URL of a sweep, a search or a sweep file")],
    study_storage: searches.Storage = None,
) -> None:
    """Say what of a sweep or a search is done."""
    from analysis.ladder.report import sweep_status
    from tune_calib.cli.folders import tell
    from tune_calib.folders import is_search
    from tune_calib.places import place

    def described(folder: "Place") -> str:
        if not is_search(folder):
            searches.refuse_storage(folder, study_storage)
            return sweep_status(folder)
        from tune_calib.tuning.search.summary import search_status as of_search

        return of_search(folder, study_storage)

    tell(place(out), described)
