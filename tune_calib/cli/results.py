"""The commands of a folder of results: report, status, pictures, export."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from tune_calib.cli import searches
from tune_calib.cli.completion import names, published_tables
from tune_calib.cli.options import DataRoot, StoreRoot, StudyStorage
from tune_calib.cli.panels import TABLES
from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.spec import plugins
from tune_calib.spec.metrics import metrics_of_trials, rankable_metrics

if TYPE_CHECKING:
    from tune_calib.paths import AnyPath


def report(
    out: Annotated[str, typer.Argument(help="folder or URL of a sweep, a search or a sweep file")],
    published: Annotated[
        str | None,
        typer.Option(
            help="a paper's table to put beside it, see: tune-calib list published",
            show_default="the one that a ladder follows",
            autocompletion=names(published_tables),
            rich_help_panel=TABLES,
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="of a compare sweep: wilcoxon or t",
            show_default="wilcoxon",
            rich_help_panel=TABLES,
        ),
    ] = None,
    regime: Annotated[
        bool, typer.Option("--regime", help="of networks, too", rich_help_panel=TABLES)
    ] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="of the table of a sweep, see: tune-calib list metrics; repeatable",
            show_default="seven",
            autocompletion=names(metrics_of_trials),
            rich_help_panel=TABLES,
        ),
    ] = None,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals",
            help="over test samples, instead of the spread over seeds",
            rich_help_panel=TABLES,
        ),
    ] = False,
    study_storage: StudyStorage = None,
) -> None:
    """Write tables and figures of a sweep or a search and print its table.

    Examples:
        tune-calib report runs/demo
        tune-calib report runs/demo --metric ece --metric nll --intervals
        tune-calib report runs/demo --columns ece,trials
        tune-calib report runs/demo --published maccal/table5 --regime --wide
    """
    from tune_calib.cli.folders import overview, tell
    from tune_calib.paths import parse_path
    from tune_calib.results.folders import is_search

    def written(folder: "AnyPath") -> str:
        if not is_search(folder):
            from analysis.ladder.report import write_report

            searches.refuse_storage(folder, study_storage)
            return write_report(folder, published, test, regime, metric or (), intervals)
        given = {
            "--published": published, "--test": test, "--regime": regime or None,
            "--metric": metric, "--intervals": intervals or None,
        }  # fmt: skip
        for option, value in given.items():
            if value is not None:
                raise UserError(f"{option} stands beside a sweep; this folder holds a search")
        return searches.report(folder, study_storage)

    try:
        tell(parse_path(out), written)
    finally:  # also where an entry has nothing to tell
        for line in overview(parse_path(out)):
            echo(line)


def as_trials_ran(
    folder: "AnyPath",
    command: list[str],
    store: str | None,
    data_root: Path | None,
    options: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Carry a command out in a process that loads torch as portable trials did, if there are any.

    Heads may be trained again, to the same digits.

    Raises:
        typer.Exit: another process did it.
    """
    from tune_calib.determinism import PORTABLE, is_portable_process
    from tune_calib.results.tables import read_table
    from tune_calib.tuning.progress.screen import screen

    slots = read_table(folder, "trials", keep=lambda name: name == "network")["network"].to_pylist()
    if is_portable_process() or not any(json.loads(each).get("portable") for each in slots if each):
        return
    given = {"--store": store, "--data-root": data_root, **options}
    # With the module path of this process, to which -m would add the current folder.
    words = [sys.executable, "-P", "-m", "tune_calib.cli", *command]
    environment = {**os.environ, **PORTABLE, "PYTHONPATH": os.pathsep.join(sys.path)}
    words += [word for key, value in given.items() if value for word in (key, str(value))]
    words += [word for own in plugins.in_use() for word in ("--plugin", own.where)]
    with screen() as own, own.hidden():
        done = subprocess.run(words, env=environment, check=False)
    raise typer.Exit(done.returncode)


def pictures(
    out: Annotated[str, typer.Argument(help="folder or URL of a sweep")],
    store: StoreRoot = None,
    data_root: DataRoot = None,
    shift: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Keep some logits of a trial of each rung, for the report.

    Examples:
        tune-calib pictures runs/demo
    """
    if shift is not None:
        raise UserError(
            "shifted images are asked for where trials are run: give the command of the sweep "
            "again with --shift corruptions"
        )
    from tune_calib.cli.folders import opened
    from tune_calib.paths import parse_path

    folder = opened(out, runs_plugins=True)
    as_trials_ran(folder, ["pictures", out], store, data_root)

    from tune_calib.tuning.pictures import take_pictures

    artifacts = parse_path(store) if store else folder / "store"
    echo("\n".join(take_pictures(folder, artifacts, data_root)))
    echo(f"tune-calib report {out} draws them")


def export(
    out: Annotated[str, typer.Argument(help="folder or URL of a sweep or a search")],
    file: Annotated[str, typer.Argument(help="FILE.safetensors; FILE.json is written beside it")],
    trial: Annotated[
        str | None, typer.Option(metavar="HASH", help="of the trial, or how it begins")
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="the trial that is best on select",
            autocompletion=names(rankable_metrics),
        ),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="write FILE.onnx too")] = False,
    store: StoreRoot = None,
    data_root: DataRoot = None,
) -> None:
    """Write the calibrated network of a trial: network, head and transform, for any program.

    Examples:
        tune-calib export runs/mine calibrated.safetensors --best ece
        tune-calib export runs/mine calibrated.safetensors --trial 3fa9 --onnx
    """
    from tune_calib.cli.folders import opened
    from tune_calib.paths import parse_path
    from tune_calib.results.folders import entries, is_search, search_of

    folder = opened(out, runs_plugins=True)
    if below := entries(folder):
        raise UserError(f"{out} holds {len(below)} entries; name one of them, e.g. {below[0]}")
    command = ["export", out, file, *(["--onnx"] if onnx else [])]
    as_trials_ran(folder, command, store, data_root, {"--trial": trial, "--best": best})

    from tune_calib.library.export import Wanted
    from tune_calib.library.export import export as write

    named = search_of(folder).store if is_search(folder) and store is None else store
    artifacts = parse_path(named) if named else folder / "store"
    echo(write(folder, artifacts, data_root, Wanted(trial, best), file, onnx))


def status(
    out: Annotated[str, typer.Argument(help="folder or URL of a sweep, a search or a sweep file")],
    watch: Annotated[bool, typer.Option("--watch", help="show its driver at work")] = False,
    study_storage: StudyStorage = None,
) -> None:
    """Say what of a sweep or a search is done, and what its driver does.

    Examples:
        tune-calib status runs/demo
        tune-calib status runs/demo --watch
    """
    from tune_calib.cli.folders import tell
    from tune_calib.paths import parse_path
    from tune_calib.results.folders import is_search
    from tune_calib.tuning.progress.watch import describe_driver
    from tune_calib.tuning.progress.watch import watch as watched

    def described(folder: "AnyPath") -> str:
        if not is_search(folder):
            searches.refuse_storage(folder, study_storage)
            from analysis.ladder.status import sweep_status

            return sweep_status(folder)
        from tune_calib.tuning.search.status import search_status as of_search

        return of_search(folder, study_storage)

    folder = parse_path(out)
    has_ended = not watch or watched(folder)
    tell(folder, described)
    if said := describe_driver(folder):
        echo(said)
    elif watch:
        echo("no driver is at work on it")
    if not has_ended:
        raise typer.Exit(1)
