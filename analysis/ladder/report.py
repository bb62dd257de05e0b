"""The report of a ladder: made from its folder, or printed again where nothing changed."""

from collections.abc import Sequence
from pathlib import Path

from analysis.ladder.options import Options
from analysis.page.record import renew
from tune_calib.console import Text
from tune_calib.paths import AnyPath


def write_report(
    out: AnyPath,
    published: str | None = None,
    test: str | None = None,
    regime: bool = False,
    metrics: Sequence[str] = (),
    intervals: bool = False,
) -> str:
    """Write ``tables/``, ``figures/`` and ``report.html`` of a sweep unless they are up to date.

    Returns what to print: the table, what is missing or diverged, the files that were written.
    ``published`` is a table to compare with, e.g. ``fedlas/table1`` (None: the one that the ladder
    follows), ``test`` the paired test of a comparison, ``regime`` adds the columns of the network
    check, ``intervals`` shows intervals over the test samples instead of the spread over seeds.
    """
    options = Options(published, test, regime, tuple(dict.fromkeys(metrics)), intervals)

    def write(folder: Path) -> tuple[Text, Sequence[str]]:
        # Imported here: an up-to-date report needs neither pandas nor matplotlib.
        from analysis.ladder.files import write_files

        return write_files(out, options, folder)

    return renew(out, options.words(), write)
