"""The MaC-Cal ladder with and without temperature scaling after each rung.

It shows whether a step of MaC-Cal still helps after temperature scaling, which might achieve the
same gain. ``tune-calib reproduce maccal/scaled`` judges the difference of the differences with its
interval.
"""

from dataclasses import replace
from pathlib import Path

from ablations.ladders import read_ladder
from tune_calib.spec.ladder import LADDERS, Ladder, Rung

_MAC_CAL = read_ladder(Path(__file__).with_name("mac_cal.yaml"))
_PLAIN = [replace(rung, published=None) for rung in _MAC_CAL.rungs]


def _scale(rung: Rung) -> Rung:
    return replace(
        rung,
        label=f"{rung.label}, scaled",
        ingredient="temperature scaling after it",
        slots={**rung.slots, "posthoc": {"method": "temperature"}},
        kind="control" if rung.kind == "control" else "variant",
    )


# The stable order keeps controls last.
_RUNGS = sorted([*_PLAIN, *map(_scale, _PLAIN)], key=lambda rung: rung.kind == "control")

LADDERS.register(
    Ladder(
        name="mac_cal_scaled",
        title="MaC-Cal, one ingredient at a time, with and without temperature scaling",
        table="maccal/scaled",
        rungs=tuple(_RUNGS),
    ),
)
