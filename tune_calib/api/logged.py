"""Loggers around a command or a call: what runs in it is followed, its figures are sent last."""

import contextlib
from collections.abc import Iterator, Sequence

from tune_calib.results.folders import is_search
from tune_calib.tuning.loggers.base import load_loggers, request_loggers
from tune_calib.tuning.loggers.follow import send_figures


@contextlib.contextmanager
def logged(names: Sequence[str]) -> Iterator[None]:
    """Let loggers follow every sweep and search that the block carries out.

    Args:
        names: of ``LOGGERS``; nothing is done if there are none.

    Raises:
        UserError: one is unknown, or what it needs is not installed.
    """
    load_loggers(names)
    with request_loggers(names) as folders:
        yield
    if not names or not folders:
        return

    from analysis.ladder.report import write_report
    from analysis.search.report import write_search_report

    for out in folders:
        # A report that lies there and would be the same costs nothing.
        (write_search_report if is_search(out) else write_report)(out)
        send_figures(names, out)
