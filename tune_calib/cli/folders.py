"""A folder that a command is given: one sweep or search, or all entries of a sweep file."""

from collections.abc import Callable

import typer

from tune_calib.cli.entry import damage_in_one_line
from tune_calib.console import echo, shown
from tune_calib.errors import UserError, as_option
from tune_calib.paths import AnyPath, parse_path
from tune_calib.results.folders import entries, refuse_empty
from tune_calib.results.plugin_folders import describe_unloaded, require_loaded


def overview(folder: AnyPath) -> list[str]:
    """Write the page over the entries of a sweep file, if the folder holds some.

    Returns:
        The line that says where it is.
    """
    below = entries(folder)
    if not below:
        return []

    from analysis.sweep_file.overview import write_overview

    return [f"page over all entries: {write_overview(folder, below)}"]


def opened(out: str, runs_plugins: bool = False) -> AnyPath:
    """Return a folder of results.

    Args:
        out: its path or URL.
        runs_plugins: refuse a folder of plug-ins that are not loaded; else only note them.

    Raises:
        UserError: the folder holds no results, or a plug-in behind it has changed.
    """
    folder = parse_path(out)
    if not entries(folder):
        refuse_empty(folder)
    if runs_plugins:
        require_loaded(folder)
    else:
        _note_unloaded(folder)
    return folder


def _note_unloaded(folder: AnyPath) -> None:
    if note := describe_unloaded(folder):
        echo(f"note: {as_option(note)}", err=True)


def tell(folder: AnyPath, describe: Callable[[AnyPath], str]) -> None:
    """Print what is to be said of a folder, or of each entry of a sweep file.

    Raises:
        typer.Exit: nothing can be said of an entry; the others are told.
    """
    with damage_in_one_line(str(folder)):
        below = entries(folder)
    if not below:
        with damage_in_one_line(str(folder)):
            refuse_empty(folder)
            _note_unloaded(folder)
            text = as_option(shown(describe(folder)))
        echo(text)
        return
    refused = 0
    for entry in below:
        try:
            with damage_in_one_line(str(entry)):
                _note_unloaded(entry)
                text = as_option(shown(describe(entry)))
        except UserError as error:
            text, refused = f"error: {as_option(error)}", refused + 1
        echo(f"== {entry.name} ==\n{text}\n")
    if refused:
        raise typer.Exit(1)
