"""Register the ladders, one YAML file each, when the first of them is looked up."""

from pathlib import Path
from typing import Any

import yaml

from tune_calib.spec.ladder import LADDERS, Factor, Ladder, Rung
from tune_calib.spec.names import SLOTS
from tune_calib.spec.yaml_text import LOADER


def read_ladder(path: Path) -> Ladder:
    """Read a ladder; its ``kind`` and ``ingredient`` are those of rungs without their own."""
    content = yaml.load(path.read_text("utf-8"), LOADER)
    shared = {key: content.pop(key) for key in ("kind", "ingredient") if key in content}
    rungs = []
    for values in content.pop("rungs"):
        factors = []
        for factor in values.pop("factors", ()):
            factors.append(Factor(needs=tuple(factor.pop("needs", ())), **_divide(factor)))
        rungs.append(Rung(factors=tuple(factors), **{**shared, **_divide(values)}))
    return Ladder(name=path.stem, rungs=tuple(rungs), **content)


def _divide(values: dict[str, Any]) -> dict[str, Any]:
    slots = {slot: values.pop(slot) for slot in SLOTS if slot in values}
    return {"slots": slots, **values}


for _file in sorted(Path(__file__).parent.glob("*.yaml")):
    LADDERS.register(read_ladder(_file))
