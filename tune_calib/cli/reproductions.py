"""The command of the papers' tables: reproduce."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tune_calib import console
from tune_calib.cli.before import DryRun, tell_settings
from tune_calib.cli.completion import names
from tune_calib.cli.options import Address, DataRoot, known, stoppable, typed
from tune_calib.cli.panels import FORMATS, WHERE
from tune_calib.cli.sweep_files import GpuModel
from tune_calib.errors import UserError
from tune_calib.registry import REPRODUCTIONS, told
from tune_calib.reproduction import SCALES, Scale

if TYPE_CHECKING:
    from tune_calib.places import Place
    from tune_calib.reproduction import Reproduction
    from tune_calib.tuning.sweep.entries import Work
    from tune_calib.tuning.sweep.file import ReadFile
    from tune_calib.tuning.sweep.reproduced import Ask


def reproduce(
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            help="PAPER/TABLE, as --list has them", autocompletion=names(lambda: REPRODUCTIONS)
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="; ".join(f"{name}: {what}" for name, what in SCALES.items()),
            autocompletion=names(lambda: SCALES),
        ),
    ] = "cpu",
    seeds: Annotated[int | None, typer.Option(help="how many", show_default="the scale's")] = None,
    data_root: DataRoot = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="folder of published networks; without it they are left out"),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="folder or URL of all tables, and of the store that they share",
            show_default="runs/reproduce-SCALE",
            rich_help_panel=WHERE,
        ),
    ] = None,
    address: Address = None,
    gpu_model: GpuModel = None,
    dry_run: DryRun = False,
    list_: Annotated[
        bool, typer.Option("--list", help="list the tables and start nothing")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="with --list", rich_help_panel=FORMATS)
    ] = False,
) -> None:
    """Make tables and figures of the papers again, beside their print, and judge their claims.

    Examples:
        tune-calib reproduce --list
        tune-calib reproduce maccal/table5 --scale smoke
        tune-calib reproduce maccal/table5 fedlas/gate --data-root data --dry-run
    """
    if list_ != (not tables):
        raise UserError("name tables as PAPER/TABLE, or take --list")
    if as_json and not list_:
        raise UserError("--json is of --list; give that too")
    if list_:
        _tell_list(as_json)
        return
    known("--scale", scale, tuple(SCALES))
    if gpu_model is not None and not dry_run:
        raise UserError("--gpu-model is what a --dry-run reckons for; give that too")
    if seeds is not None and seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    # Before torch is loaded.
    for name in tables or ():
        REPRODUCTIONS.require(name)

    from tune_calib.places import place
    from tune_calib.tuning.sweep.reproduced import Ask, refuse_lacking

    own: Scale = next(each for each in SCALES if each == scale)
    folder = place(out or f"runs/reproduce-{scale}")
    asks = [
        Ask(REPRODUCTIONS[name], own, folder, seeds, data_root, weights, address, gpu_model)
        for name in dict.fromkeys(tables or ())
    ]
    if gpu_model is None:
        refuse_lacking(asks)
    failures = [failure for ask in asks for failure in _carry_out(ask, dry_run)]
    for failure in failures:
        typer.echo(failure, err=True)
    if failures:
        raise typer.Exit(1)


def _carry_out(ask: "Ask", dry_run: bool) -> list[str]:
    """Make a table, and tell it; of a dry run, say what would be done.

    Returns:
        A line for each trial that crashed.
    """
    from tune_calib.tuning.dry_run.told import forecast
    from tune_calib.tuning.sweep.reproduced import sweep_file
    from tune_calib.tuning.sweep.run import planned_works

    file = sweep_file(ask)
    works = planned_works(file, ask.gpu_model is None, dry_run)
    if ask.left_out:
        typer.echo(f"left out without --weights FOLDER: {', '.join(ask.left_out)}", err=True)
    if dry_run:
        typer.echo(console.shown(forecast(file, works)))
        return []
    return list(stoppable(typed(), lambda: _run(ask, file, works)))


def _run(ask: "Ask", file: "ReadFile", works: "list[Work]") -> list[str]:
    from analysis.ladder.report import write_report
    from tune_calib.tuning.sweep.reproduced import keep_logits
    from tune_calib.tuning.sweep.run import run_sweep

    failures, done = [], []
    for ended in run_sweep(file, works, typed(), None, tell_settings):
        failures += [f"{ended.name}: {failure}" for failure in ended.failures]
        if not ended.is_refused:
            done.append(ended.folder)
            failures += keep_logits(ask, works, ended.folder)
            write_report(ended.folder)
    _report(ask, works, done)
    return failures


def _report(ask: "Ask", works: "list[Work]", done: "list[Place]") -> None:
    """Write what a reader of the paper asks for beside the results, and tell it."""
    from analysis.reproduction.files import write_reproduction
    from tune_calib.tuning.sweep.lock import write_lock
    from tune_calib.tuning.sweep.reproduced import run_of_folder

    out, names = ask.out / ask.table.folder, run_of_folder(ask, works)
    of_done = {folder.name: names[folder.name] for folder in done}
    asked = {"table": ask.table.name, "scale": ask.scale, "runs": of_done}
    write_lock(out, done, typed(), asked)
    typer.echo(console.shown(write_reproduction(ask.table, out, of_done, typed())))


def _tell_list(as_json: bool) -> None:
    entries = told("list of tables of papers", lambda: [_entry(REPRODUCTIONS[n]) for n in
                                                        REPRODUCTIONS])  # fmt: skip
    if as_json:
        typer.echo(json.dumps(entries, indent=1, ensure_ascii=False))
        return
    heads = ["name", "title", "metrics", "scales", "claims"]
    rows = [
        [each["name"], each["title"], ", ".join(each["metrics"]), ", ".join(each["scales"]),
         str(len(each["claims"]))]
        for each in entries
    ]  # fmt: skip
    typer.echo(console.shown(console.Text([console.Table(heads, rows, is_main=True)])))


def _entry(record: "Reproduction") -> dict[str, Any]:
    return {
        "name": record.name,
        "title": record.title,
        "published": record.published,
        "metrics": list(record.metrics),
        "scales": list(record.scales),
        "claims": [claim.text for claim in record.claims],
        "note": record.note,
    }
