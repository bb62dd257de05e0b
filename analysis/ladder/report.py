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

    Args:
        out: folder of the sweep.
        published: a published table to compare with, e.g. ``fedlas/table1``; None for the one that
            the ladder follows.
        test: paired test of the methods of a comparison against the first, ``wilcoxon`` (if None)
            or ``t``; a ladder has none.
        regime: add the columns of the network check to the table.
        metrics: metrics of the table, names of ``METRICS``; the default ones if empty.
        intervals: show intervals of the means over the test samples, not the spread over seeds.

    Returns:
        What to print: the table, what is missing or diverged, the files that were written.

    Raises:
        UserError: the folder holds no sweep, a file of it is damaged, the published table or test
            is unknown, or no result has a selected metric or an interval.
    """
    options = Options(published, test, regime, tuple(dict.fromkeys(metrics)), intervals)

    def write(folder: Path) -> tuple[Text, Sequence[str]]:
        # Imported here: an up-to-date report needs neither pandas nor matplotlib.
        from analysis.ladder.files import write_files

        return write_files(out, options, folder)

    return renew(out, options.words(), write)
