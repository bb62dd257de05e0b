"""The report of a search: made of what its folder holds, told again where nothing changed."""

from collections.abc import Sequence
from pathlib import Path

from analysis.page.record import renew
from tune_calib.console import Text
from tune_calib.paths import AnyPath


def write_search_report(out: AnyPath) -> str:
    """Write ``tables/``, ``figures/`` and ``report.html`` of a search unless they are up to date.

    Returns what to print: the best suggestions, what failed or is missing, the files written.
    """

    def write(folder: Path) -> tuple[Text, Sequence[str]]:
        # Only now: it loads what the same report again does not need.
        from analysis.search.files import write_files

        return write_files(out, folder)

    return renew(out, [], write)
