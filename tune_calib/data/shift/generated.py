"""Corruptions that are made here, of the images of the test split."""

from collections.abc import Callable
from functools import partial

from tune_calib.data.base import Split
from tune_calib.data.corruptions import KINDS, SEVERITIES, VERSION, corrupted
from tune_calib.data.shift.parts import Part, ShiftSet, chunks_of
from tune_calib.errors import UserError
from tune_calib.spec.datasets import DatasetInfo
from tune_calib.text import nearest


def refuse_kind(kind: str, info: DatasetInfo) -> None:
    """Refuse an unknown kind, and one that changes nothing in grey images."""
    if kind not in KINDS:
        raise UserError(f"no corruption {kind!r} is generated{nearest(kind, list(KINDS))}")
    if KINDS[kind].needs_colour and info.channels == 1:
        raise UserError(f"{kind} changes colours, and the images of {info.name} are grey")


def generated(kind: str, test: Callable[[], Split]) -> ShiftSet:
    """Return a kind of corruption of the test split at every severity."""

    def parts() -> list[Part]:
        split = test()
        changes = [(level, partial(corrupted, kind=kind, severity=level)) for level in SEVERITIES]
        return [Part(str(n), split.labels, chunks_of(split, change)) for n, change in changes]

    return ShiftSet(f"generated/{kind}", f"version {VERSION}", parts)
