"""The plug-ins that a folder of results depends on: named in its manifest and stored as text.

Results may come from anybody, so a folder never loads them, whatever their path or hash: the user
names each on the command line or in Python. Their text is stored so that the code behind the
numbers is not lost when a file is changed in place.
"""

import contextlib
import shlex
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path

from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.paths import AnyPath, atomic_write
from tune_calib.results.manifests import PluginRecord, RunManifest, SearchManifest
from tune_calib.spec import plugins
from tune_calib.spec.plugins import Plugin

FOLDER = "plugins"


def merge_records(old: Sequence[PluginRecord], new: Sequence[PluginRecord]) -> list[PluginRecord]:
    """Merge the plug-ins of a folder with those of additions to it, by name."""
    merged = {record.name: record for record in [*old, *new]}
    return list(merged.values())


def store_sources(out: AnyPath, used: Iterable[Plugin]) -> None:
    """Write the text of the plug-ins and of their modules into a folder of results."""
    for plugin in used:
        copy = _copy(out, plugin.name, plugin.content)
        if plugin.source is None or copy.exists():
            continue
        for name, path in plugins.find_parts(plugin).items():
            if "/" not in name:
                tail = "/__init__.py" if path.stem == "__init__" else ".py"
                atomic_write(copy.parent / f"{name.replace('.', '/')}{tail}", path.read_bytes())
        atomic_write(copy, plugin.source.encode())


def _copy(out: AnyPath, name: str, content: str) -> AnyPath:
    return out / FOLDER / content / f"{name}.py"


def require_loaded(out: AnyPath) -> None:
    """Refuse to work on a folder before the user has named the plug-ins that it depends on."""
    if missing := _find_unloaded(out):
        names, options = missing
        raise UserError(
            f"{out} needs {names}, and only code that you name is run: read it, then add {options}"
        )


def describe_unloaded(out: AnyPath) -> str:
    """Return a note for commands that only read a folder; empty if its plug-ins are loaded."""
    missing = _find_unloaded(out)
    if missing is None:
        return ""
    return (
        f"{out} is read without {missing[0]}: metrics, figures and so on registered there are left "
        f"out; to run the code, add {missing[1]}"
    )


def _find_unloaded(out: AnyPath) -> tuple[str, str] | None:
    """Return the names of missing plug-ins and the options that load them; None if none is."""
    loaded = {plugin.name: plugin for plugin in plugins.in_use()}
    contents = set(map(attrgetter("content"), loaded.values()))
    missing = [record for record in read_records(out) if record.content not in contents]
    for record in missing:
        if (other := loaded.get(record.name)) is not None:
            old = shlex.quote(str(_copy(out, record.name, record.content)))
            raise UserError(
                f"{out} contains results of plug-in {record.name} from before a change "
                f"({record.content}; {other.where} is {other.content}): run the new one in another "
                f"`out`, or read and resume these results with the old one, `plugin` {old}"
            )
    if not missing:
        return None
    names = ", ".join(map(attrgetter("name"), missing))
    options = " ".join(f"`plugin` {shlex.quote(_locate(out, record))}" for record in missing)
    noun = "plug-ins" if len(missing) > 1 else "plug-in"
    return f"the {noun} {names}", options


def _locate(out: AnyPath, record: PluginRecord) -> str:
    """Return the module or file of a recorded plug-in, or its stored copy if the file is gone."""
    copy = _copy(out, record.name, record.content)
    if (path := Path(record.where)).is_file():
        return str(path.resolve())  # a path may hide its target
    return str(copy) if copy.exists() else record.where


def read_records(out: AnyPath) -> list[PluginRecord]:
    """Return the plug-ins that a folder's manifest names; none if it is lost."""
    for manifest in (RunManifest, SearchManifest):
        with contextlib.suppress(DamagedFileError, FileNotFoundError, NotADirectoryError):
            return list(manifest.read(out).plugins)
    return []
