"""The report of a ladder: made of what its folder holds, told again where nothing changed."""

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
    """Write ``tables/``, ``figures/`` and ``report.html`` of a sweep; what would be the same stays.

    Args:
        out: folder of the sweep.
        published: a published table to put beside it, e.g. ``fedlas/table1``; None for the one
            that its ladder follows.
        test: paired test of methods side by side against the first, ``wilcoxon`` (unless given)
            or ``t``; a ladder has none.
        regime: columns of the regime in the table.
        metrics: of the table, of ``names.METRICS``; the usual ones if there are none.
        intervals: of the means over the test samples instead of the spread over seeds.

    Returns:
        What to print: the table, what is missing or diverged, the files that were written.

    Raises:
        UserError: the folder holds no sweep, or a file of it is damaged, or there is no such
            published table or test, or no result has a metric or an interval that is asked for.
    """
    options = Options(published, test, regime, tuple(dict.fromkeys(metrics)), intervals)

    def write(folder: Path) -> tuple[Text, Sequence[str]]:
        # Only now: it loads what the same report again does not need.
        from analysis.ladder.files import write_files

        return write_files(out, options, folder)

    return renew(out, options.words(), write)
