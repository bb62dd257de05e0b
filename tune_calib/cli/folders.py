"""A folder that a command is given: one sweep or search, or all entries of a sweep file."""

from collections.abc import Callable

import typer

from tune_calib.console import shown
from tune_calib.errors import UserError, as_option
from tune_calib.folders import entries, refuse_empty
from tune_calib.places import Place, place
from tune_calib.plugin_folders import take_up


def overview(folder: Place) -> list[str]:
    """Write the page over the entries of a sweep file, if the folder holds some.

    Returns:
        The line that says where it is.
    """
    below = entries(folder)
    if not below:
        return []

    from analysis.sweep_file.overview import write_overview

    return [f"page over all entries: {write_overview(folder, below)}"]


def opened(out: str) -> Place:
    """A folder of results, and the plug-ins behind it registered.

    Raises:
        UserError: there are none, or a plug-in is not there any more, or has changed.
    """
    folder = place(out)
    if not entries(folder):
        refuse_empty(folder)
    take_up(folder)
    return folder


def tell(folder: Place, describe: Callable[[Place], str]) -> None:
    """Print what is to be said of a folder, or of each entry of a sweep file.

    Raises:
        typer.Exit: nothing can be said of an entry; the others are told.
    """
    below = entries(folder)
    if not below:
        refuse_empty(folder)
        take_up(folder)
        typer.echo(as_option(shown(describe(folder))))
        return
    refused = 0
    for entry in below:
        try:
            take_up(entry)
            text = as_option(shown(describe(entry)))
        except UserError as error:
            text, refused = f"error: {as_option(error)}", refused + 1
        typer.echo(f"== {entry.name} ==\n{text}\n")
    if refused:
        raise typer.Exit(1)
