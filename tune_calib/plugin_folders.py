"""The plug-ins behind a folder of results: kept beside them, found again, never mixed.

The manifest of a folder names them, so that nobody has to when it is read or goes on; their text
is kept in it, so that nobody who changed a file in place has lost what made the numbers.
"""

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tune_calib import plugins
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.manifests import PluginRecord, SearchManifest, SweepManifest
from tune_calib.places import Place
from tune_calib.plugins import Plugin
from tune_calib.results import atomic_write, read_table

FOLDER = "plugins"


def records(used: Iterable[Plugin]) -> list[PluginRecord]:
    """Plug-ins as a manifest names them."""
    return [PluginRecord(name=p.name, content=p.content, where=p.where) for p in used]


def joined(old: Sequence[PluginRecord], new: Sequence[PluginRecord]) -> list[PluginRecord]:
    """Those of a folder and those of what is added to it."""
    return list({record.name: record for record in [*old, *new]}.values())


def keep(out: Place, used: Iterable[Plugin]) -> None:
    """Write the text of the plug-ins into a folder of results."""
    for plugin in used:
        copy = _copy(out, plugin.name, plugin.content)
        if plugin.source is not None and not copy.exists():
            atomic_write(copy, plugin.source.encode())


def _copy(out: Place, name: str, content: str) -> Place:
    # Of the name that it had, which is part of what a manifest says.
    return out / FOLDER / content / f"{name}.py"


def take_up(out: Place) -> None:
    """Register the plug-ins behind a folder of results, each from where it was.

    Raises:
        UserError: one is not there, or has changed; the message says how to go on.
    """
    for record in _of(out):
        here = {plugin.name: plugin for plugin in plugins.in_use()}
        if record.content in {plugin.content for plugin in here.values()}:
            continue
        found = here.get(record.name) or _found(out, record)
        if found is None:
            raise UserError(
                f"{out} needs the plug-in {record.name}, which was at {record.where}: give "
                f"`plugin` {_way(out, record)}"
            )
        if found.content != record.content:
            raise UserError(
                f"{out} holds results of plug-in {record.name} as it was before a change "
                f"({record.content}; {found.where} is {found.content}): run it in another "
                f"`out`, or read and resume these with the old one, `plugin` {_way(out, record)}"
            )
        plugins.use([*plugins.in_use(), found])


def _found(out: Place, record: PluginRecord) -> Plugin | None:
    """A plug-in where it was; None if it is not there."""
    is_file = record.where.endswith(".py")
    # Results may come from anybody: what came with them is run only where a user names it.
    if is_file and (
        not Path(record.where).is_absolute() or record.where.startswith(f"{out.resolve()}/")
    ):
        return None
    try:
        return plugins.read(record.where)
    except UserError:
        return None


def _way(out: Place, record: PluginRecord) -> str:
    """The copy of a plug-in, where its text is known."""
    copy = _copy(out, record.name, record.content)
    return str(copy) if copy.exists() else record.name


def _of(out: Place) -> list[PluginRecord]:
    """The plug-ins that a folder names; where its manifest is lost, its rows do."""
    for manifest in (SweepManifest, SearchManifest):
        with contextlib.suppress(DamagedFileError, FileNotFoundError, NotADirectoryError):
            return list(manifest.read(out).plugins)
    texts = read_table(out, "trials", keep=lambda name: name == "plugins")["plugins"].to_pylist()
    named = {pair for text in texts if text for pair in json.loads(text).items()}
    return [
        PluginRecord(name=name, content=content, where=str(_copy(out, name, content)))
        for name, content in sorted(named)
    ]
