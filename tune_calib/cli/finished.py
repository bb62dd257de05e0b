"""A command with nothing left to do says so at once: without torch, Ray, or a look at its data.

Where a command ends well, what it was and how it left its results is kept in the user's cache. The
same command of the same program over the same results would do nothing: it is told from there.
"""

import contextlib
import functools
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.tables.render import from_plain, to_plain
from tune_calib.caches import cache_folder
from tune_calib.console import Text, echo, shown
from tune_calib.errors import UserError, as_option
from tune_calib.paths import Place, remove_folder
from tune_calib.results import contents
from tune_calib.results.manifests import VERSION, FinishedRecord, SaidRecord
from tune_calib.spec.datasets import Settings

KEPT_S = 30 * 24 * 3600.0

_NEVER_KEPT = ("dry_run", "profile", "retry", "log", "weights", "imported")
"""Options with which a command does more than its results tell, or asks for what lies beside them:
large files, which are not read here."""


@dataclass(frozen=True)
class Finished:
    """How a command ended that left nothing to do.

    Attributes:
        folder: of its results.
        said: what it said, a text or the folder of a report each.
        given: settings of what it ran.
    """

    folder: Place
    said: Sequence[str | Place]
    given: Sequence[Settings] = ()

    @property
    def is_told_by_words(self) -> bool:
        """Whether its options alone say what it asks, and no file beside them."""
        return not any(
            given.get(slot, {}).get(key) is not None
            for given in self.given
            for slot, key in (("network", "weights"), ("data", "imported"), ("data", "found"))
        )


def told_again(command: Callable[..., Finished | None]) -> Callable[..., None]:
    """A command that is not carried out again where it would do nothing."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        if any(options.get(name) for name in _NEVER_KEPT):
            command(**options)
            return
        asked = _asked(command.__name__, options)
        if asked is not None and _is_told(asked):
            return
        ended = command(**options)
        # What it took up itself, such as the plug-ins of a sweep file, is not known before.
        if ended is not None and asked is not None and asked == _asked(command.__name__, options):
            _keep(asked, ended)

    return run


def _asked(name: str, options: dict[str, Any]) -> Path | None:
    """Where it is kept how a command ended; None where nobody knows what it asks."""
    program = contents.of_program()
    if program is None:
        return None
    files = [contents.of_file(value) for value in options.values() if isinstance(value, Path)]
    words = json.dumps([name, options, files], sort_keys=True, default=str)
    with contextlib.suppress(RuntimeError, OSError):  # no home, or no folder to stand in
        return cache_folder() / "finished" / contents.of_texts(program, os.getcwd(), words)
    return None


def _is_told(asked: Path) -> bool:
    try:
        record = FinishedRecord.read(asked)
    except (OSError, UserError):
        return False
    if record.results != _left(Path(record.folder)):
        return False
    echo(f"nothing is left to do in {record.folder}", err=True)

    from analysis.ladder.report import write_report

    for said in record.said:
        text = write_report(Path(said.report)) if said.report else from_plain(said.text)
        echo(as_option(shown(text or "")))
    return True


def _left(folder: Place) -> str | None:
    """Digest of results and of the page over them; None where that is not known."""
    results = contents.of_folder(folder)
    if results is None or not isinstance(folder, Path):
        return None
    pages = [contents.of_file(folder / name) for name in ("report.html", "report.txt")]
    return contents.of_texts(json.dumps(sorted(results.items())), *pages)


def _keep(asked: Path, ended: Finished) -> None:
    left = _left(ended.folder)
    if left is None or not ended.is_told_by_words:
        return
    said = [
        SaidRecord(text=to_plain(each if isinstance(each, Text) else Text([each])))
        if isinstance(each, str)
        else SaidRecord(report=str(each))
        for each in ended.said
    ]
    record = FinishedRecord(version=VERSION, folder=str(ended.folder), results=left, said=said)
    with contextlib.suppress(UserError, OSError):  # it costs time only
        record.write(asked)
        _forget_old(asked.parent)


def _forget_old(kept: Path) -> None:
    """Remove what was kept long ago: most of it is of programs and results that are no more."""
    for folder in kept.iterdir():
        if time.time() - folder.stat().st_mtime > KEPT_S:
            remove_folder(folder)
