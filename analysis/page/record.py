"""What a report was made of, kept beside it: the same report again is told at once."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from analysis.tables.render import from_plain, to_plain
from tune_calib.console import Text
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import AnyPath, folder_to_fill
from tune_calib.results import digests
from tune_calib.results.manifests import VERSION, ReportRecord

Write = Callable[[Path], tuple[Text, Sequence[str]]]
"""Writes a report into a folder; returns what to print, and the names of its files, if any."""


def renew(out: AnyPath, options: Sequence[str], write: Write) -> str:
    """Write the report of a folder unless the same report exists, and return what to print.

    ``options`` are those of the report, as words of the command line; ``write`` imports what the
    same report again does not need.
    """
    # Before anything is read: what is added meanwhile is then new to the next report.
    results, program = digests.digest_folder(out), digests.digest_program()
    made_of = None
    if results is not None and program is not None:
        made_of = digests.digest_texts(
            program, json.dumps([sorted(results.items()), *options, str(out)])
        )
    with folder_to_fill(out) as folder:
        text = _read_text(folder, made_of)
        if text is not None:
            return text
        text, files = write(folder)
        if made_of is not None and files:
            whole = {name: digests.digest_file(folder / name) for name in files}
            record = ReportRecord(
                version=VERSION, made_of=made_of, text=to_plain(text), files=whole
            )
            record.write(folder)
        return text


def _read_text(folder: Path, made_of: str | None) -> Text | None:
    """Return what a report printed, if it is whole and would be the same again."""
    try:
        record = ReportRecord.read(folder)
    except (OSError, DamagedFileError, UserError):
        return None
    if record.made_of != made_of:
        return None
    is_whole = all(
        own and digests.digest_file(folder / n) == own for n, own in record.files.items()
    )
    return from_plain(record.text) if is_whole else None
