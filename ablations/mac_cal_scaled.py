"""The MaC-Cal ladder with and without temperature scaling after each rung.

It shows whether a step of MaC-Cal still helps after temperature scaling, which might achieve the
same gain. ``tune-calib reproduce maccal/scaled`` judges the difference of the differences with its
interval.
"""

from dataclasses import replace
from pathlib import Path

from ablations.ladders import read_ladder
from tune_calib.spec.ladder import LADDERS, Ladder

_RUNGS = []
for _rung in read_ladder(Path(__file__).with_name("mac_cal.yaml")).rungs:
    _scaled = replace(
        _rung,
        label=f"{_rung.label}, scaled",
        ingredient="temperature scaling after it",
        slots={**_rung.slots, "posthoc": {"method": "temperature"}},
        kind="control" if _rung.kind == "control" else "variant",
    )
    _RUNGS += [replace(_rung, published=None), replace(_scaled, published=None)]
_RUNGS.sort(key=lambda rung: (rung.kind == "control", rung.label.endswith(", scaled")))

LADDERS.register(
    Ladder(
        name="mac_cal_scaled",
        title="MaC-Cal, one ingredient at a time, with and without temperature scaling",
        table="maccal/scaled",
        rungs=tuple(_RUNGS),
    )
)
