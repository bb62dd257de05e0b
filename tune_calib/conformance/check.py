"""What a check is, and the complaint of one that a method fails."""

from collections.abc import Callable
from dataclasses import dataclass

from tune_calib.conformance.bench import Bench
from tune_calib.spec.methods import MethodInfo


class FailedCheckError(AssertionError):
    """A method does not do what every method must."""


class NotApplicableError(Exception):
    """A check says nothing of a method, and why."""


@dataclass(frozen=True)
class Check:
    """Something that every method of a kind must do.

    Attributes:
        name: one word.
        rule: what the method must do, in words.
        run: raises ``FailedCheckError`` if it does not, ``NotApplicableError`` if the check says
            nothing of it; what else it raises is an error of the method.
    """

    name: str
    rule: str
    run: Callable[[MethodInfo, Bench], None]


def require(condition: object, complaint: str) -> None:
    """Raise ``FailedCheckError`` with a complaint unless a condition holds."""
    if not condition:
        raise FailedCheckError(complaint)
