"""Does a step of MaC-Cal still help behind temperature scaling? Every rung with it and without.

What a step gains may be what one temperature gains as well. The difference of the differences, with
its interval, is judged by ``tune-calib reproduce maccal/scaled``.
"""

from dataclasses import replace
from pathlib import Path

from ablations.ladders import read_ladder
from tune_calib.spec.ladder import LADDERS, Ladder, Rung


def _scaled(rung: Rung) -> Rung:
    return replace(
        rung,
        label=f"{rung.label}, scaled",
        ingredient="temperature scaling behind it",
        slots={**rung.slots, "posthoc": {"method": "temperature"}},
        kind="control" if rung.kind == "control" else "variant",
    )


_MAC_CAL = read_ladder(Path(__file__).with_name("mac_cal.yaml"))
_PLAIN = [replace(rung, published=None) for rung in _MAC_CAL.rungs]
# The stable order keeps controls last.
_BOTH = sorted([*_PLAIN, *map(_scaled, _PLAIN)], key=lambda rung: rung.kind == "control")

LADDERS.register(
    Ladder(
        name="mac_cal_scaled",
        title="MaC-Cal, one ingredient at a time, with and without temperature scaling",
        rungs=tuple(_BOTH),
    ),
)
