"""The figures of a report, sent to loggers."""

import contextlib
from collections.abc import Sequence

from tune_calib.console import echo
from tune_calib.paths import AnyPath, files
from tune_calib.results.folders import identity_of_rows
from tune_calib.tuning.loggers.base import Group
from tune_calib.tuning.loggers.known import loggers
from tune_calib.tuning.loggers.sent import Sent, content_of

_REPORT = "report"


def send_figures(names: Sequence[str], out: AnyPath) -> None:
    """Send the figures that lie in a folder to loggers; those that they have are not sent again.

    A logger that fails is told, and costs nothing else.

    Args:
        names: of the loggers.
        out: folder of the results.
    """
    paths = [copy for _, copy in files(out / "figures", "*.png")]
    if not names or not paths:
        return
    content = content_of(paths)
    group = Group.of(out, identity_of_rows(out) or "")
    for name, kind in loggers(names).items():
        sent = Sent(out, name)
        if sent.holds(_REPORT, content):
            continue
        try:
            logger = kind(group)
            with contextlib.closing(logger):
                logger.figures(paths)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            echo(f"{name} takes no figures ({reason}); they lie in {out}/figures", err=True)
            continue
        sent.add(_REPORT, content)
