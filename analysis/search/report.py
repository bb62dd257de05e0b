"""The report of a search: made from its folder, or printed again where nothing changed."""

from collections.abc import Sequence
from pathlib import Path

from analysis.page.record import renew
from tune_calib.console import Text
from tune_calib.paths import AnyPath


def write_search_report(out: AnyPath) -> str:
    """Write the report of a search unless it is up to date, and return the text to print."""

    def write(folder: Path) -> tuple[Text, Sequence[str]]:
        # Imported here: an up-to-date report needs neither pandas nor matplotlib.
        from analysis.search.files import write_files

        return write_files(out, folder)

    return renew(out, [], write)
