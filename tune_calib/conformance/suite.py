"""The checks of a method, all of them, and how it did."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tune_calib.conformance import heads, networks, posthoc, records
from tune_calib.conformance.bench import Bench
from tune_calib.conformance.check import Check, FailedCheckError, NotApplicableError
from tune_calib.errors import locate_error
from tune_calib.spec.methods import METHODS, MethodInfo

_OF_KIND = {"network": networks.CHECKS, "head": heads.CHECKS, "posthoc": posthoc.CHECKS}


@dataclass(frozen=True)
class Result:
    """The outcome of a check (``passed``, ``failed`` or ``skipped``), and why it did not pass."""

    check: Check
    outcome: str
    reason: str = ""

    def __str__(self) -> str:
        """Return a line for the command line."""
        mark = {"passed": "ok", "failed": "FAILED", "skipped": "-"}[self.outcome]
        reason = f": {self.reason}" if self.reason else ""
        return f"{mark:<7} {self.check.name:<12} {self.check.rule}{reason}"


def checks_of(info: MethodInfo) -> tuple[Check, ...]:
    """The checks of a method's kind."""
    return (*records.CHECKS, *_OF_KIND[info.kind])


def results(name: str, bench: Bench) -> Iterator[Result]:
    """Try a method, one check after the other; one that fails does not stop the others."""
    info = METHODS[name]
    for check in checks_of(info):
        try:
            check.run(info, bench)
        except FailedCheckError as error:
            yield Result(check, "failed", str(error))
        except NotApplicableError as error:
            yield Result(check, "skipped", str(error))
        except Exception as error:  # whatever the code of a lab may raise
            own = {getattr(sys.modules.get(info.implementation.__module__), "__file__", None)}
            yield Result(check, "failed", str(locate_error(error, own.__contains__)))
        else:
            yield Result(check, "passed")
