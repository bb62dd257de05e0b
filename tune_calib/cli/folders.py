"""A folder that a command is given: one sweep or search, or all entries of a sweep file."""

from collections.abc import Callable

import typer

from tune_calib.errors import UserError, as_option
from tune_calib.folders import entries
from tune_calib.places import Place, place
from tune_calib.plugin_folders import take_up


def tell_overview(folder: Place) -> None:
    """Write the page over the entries of a sweep file, if the folder holds some."""
    if below := entries(folder):
        from analysis.sweep_file.overview import write_overview

        typer.echo(f"page over all entries: {write_overview(folder, below)}")


def opened(out: str) -> Place:
    """A folder of results, and the plug-ins behind it registered.

    Raises:
        UserError: one of them is not there any more, or has changed.
    """
    folder = place(out)
    take_up(folder)
    return folder


def tell(folder: Place, describe: Callable[[Place], str]) -> None:
    """Print what is to be said of a folder, or of each entry of a sweep file.

    Raises:
        typer.Exit: nothing can be said of an entry; the others are told.
    """
    below = entries(folder)
    if not below:
        take_up(folder)
        typer.echo(as_option(describe(folder)))
        return
    refused = 0
    for entry in below:
        try:
            take_up(entry)
            text = as_option(describe(entry))
        except UserError as error:
            text, refused = f"error: {as_option(error)}", refused + 1
        typer.echo(f"== {entry.name} ==\n{text}\n")
    if refused:
        raise typer.Exit(1)
