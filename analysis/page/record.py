"""The record next to a report, by which an unchanged report is printed again at once."""

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
"""Writes a report into a folder; returns the text to print, and the names of its files."""


def renew(out: AnyPath, options: Sequence[str], write: Write) -> str:
    """Write the report of a folder unless it is up to date, and return the text to print."""
    # Before anything is read, so that rows added meanwhile are new to the next report.
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
    """Return the printed text of a report if its files are whole and it is up to date."""
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
