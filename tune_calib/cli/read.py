"""The commands that read a folder of results: report and status."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tune_calib.cli.common import open_folder, print_each, published_tables, write_overview
from tune_calib.cli.options import TABLES, DataRoot, StoreRoot, StudyStorage, complete, flag
from tune_calib.console import echo
from tune_calib.determinism import PORTABLE, is_portable_process
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, parse_path
from tune_calib.results.folders import is_search
from tune_calib.spec.metrics import metrics_of_trials

_OUT = typer.Argument(help="folder or URL of a run, a search or an experiment file's entries")
_INTERVALS = "show intervals over test samples instead of the spread over seeds"


def report(
    out: Annotated[str, _OUT],
    shell: typer.Context,
    published: Annotated[
        str | None,
        typer.Option(
            help="compare with a paper's table; see: tune-calib list published",
            show_default="the one that a ladder follows",
            autocompletion=complete(published_tables),
            rich_help_panel=TABLES,
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="significance test of a comparison: wilcoxon or t",
            show_default="wilcoxon",
            rich_help_panel=TABLES,
        ),
    ] = None,
    regime: Annotated[bool, flag("--regime", "also show the fit of the networks", TABLES)] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="metric of the table; see: tune-calib list metrics; repeatable",
            show_default="seven",
            autocompletion=complete(metrics_of_trials),
            rich_help_panel=TABLES,
        ),
    ] = None,
    intervals: Annotated[bool, flag("--intervals", _INTERVALS, TABLES)] = False,
    with_pictures: Annotated[
        bool, flag("--pictures", "first compute the logits that some figures need")
    ] = False,
    store: StoreRoot = None,
    data_root: DataRoot = None,
    study_storage: StudyStorage = None,
) -> None:
    """Write the tables and figures of a run or a search and print the main table.

    Examples:
        tune-calib report runs/demo
        tune-calib report runs/demo --metric ece --metric nll --intervals
        tune-calib report runs/demo --columns ece,trials
        tune-calib report runs/demo --published maccal/table5 --regime --wide
        tune-calib report runs/demo --pictures
    """
    if with_pictures:
        folder = open_folder(out, runs_plugins=True)
        run_as_trials_ran(folder, shell)

        from tune_calib.tuning.pictures import take_pictures

        artifacts = parse_path(store) if store else folder / "store"
        echo("\n".join(take_pictures(folder, artifacts, data_root)))
    options: dict[str, Any] = {
        "published": published, "test": test, "regime": regime, "metrics": metric or (),
        "intervals": intervals,
    }  # fmt: skip
    print_report(out, study_storage, options)


def print_report(
    out: str, study_storage: str | None = None, options: Mapping[str, Any] = {}
) -> None:
    def write(folder: AnyPath) -> str:
        if not is_search(folder):
            from analysis.report import write_report

            if study_storage is not None:
                raise UserError(f"--study-storage applies to a search, and {folder} contains none")
            return write_report(folder, **options)
        for name in filter(options.get, options):
            option = "metric" if name == "metrics" else name
            raise UserError(f"--{option} applies to runs; {folder} contains a search")
        return write_search_page(folder, study_storage)

    try:
        print_each(parse_path(out), write)
    finally:  # even if an entry cannot be reported
        for line in write_overview(parse_path(out)):
            echo(line)


def write_search_page(out: AnyPath, study_storage: str | None = None) -> str:
    """Write the report of a search, from the finished trials if it is unfinished."""
    from analysis.report import write_search_report
    from analysis.search.load import is_complete

    if not is_complete(out):
        from tune_calib.tuning.search.run import write_outcome_so_far

        write_outcome_so_far(out, study_storage)
    return write_search_report(out)


def run_as_trials_ran(folder: AnyPath, shell: typer.Context) -> None:
    """Run this command in a process that loads torch as portable trials did, if there are any."""
    from tune_calib.results.tables import read_table

    column = read_table(folder, "trials", columns=["network"])["network"]
    slots = map(json.loads, filter(None, column.to_pylist()))
    if is_portable_process() or not any(slot.get("portable") for slot in slots):
        return
    # With the module path of this process; -m would add the current folder to it.
    words = [sys.executable, "-P", "-m", "tune_calib.cli", *sys.argv[1:]]
    environment = {**os.environ, **PORTABLE, "PYTHONPATH": os.pathsep.join(sys.path)}
    with shell.obj.view.display.hidden():
        done = subprocess.run(words, env=environment, check=False)
    raise typer.Exit(done.returncode)


def status(
    out: Annotated[str, _OUT],
    watch: Annotated[bool, flag("--watch", "follow the progress of its driver")] = False,
    study_storage: StudyStorage = None,
) -> None:
    """Show what a run or a search has finished, and what its driver is doing.

    Examples:
        tune-calib status runs/demo
        tune-calib status runs/demo --watch
    """
    from tune_calib.tuning.progress.screen import describe_driver, is_running
    from tune_calib.tuning.progress.screen import watch as watch_driver

    def describe(entry: AnyPath) -> str:
        has_driver = is_running(folder) or is_running(entry)
        if not is_search(entry):
            from analysis.report import run_status

            if study_storage is not None:
                raise UserError(f"--study-storage applies to a search, and {entry} contains none")
            return run_status(entry, has_driver)
        from tune_calib.tuning.search.study import search_status

        return search_status(entry, study_storage, has_driver)

    folder = parse_path(out)
    has_ended = not watch or watch_driver(folder)
    print_each(folder, describe)
    if driver := describe_driver(folder):
        echo(driver)
    elif watch:
        echo("no driver is running")
    if not has_ended:
        raise typer.Exit(1)
