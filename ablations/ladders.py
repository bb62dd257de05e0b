"""Register the ladders, one YAML file each, when the first of them is looked up."""

from pathlib import Path
from typing import Any

import yaml

from tune_calib.spec.ladder import LADDERS, Ladder, Rung
from tune_calib.spec.names import SLOTS
from tune_calib.spec.yaml_text import LOADER


def read_ladder(path: Path) -> Ladder:
    """Read a ladder; its ``kind`` and ``ingredient`` are those of rungs without their own."""
    content = yaml.load(path.read_text("utf-8"), LOADER)
    shared = {key: content.pop(key) for key in ("kind", "ingredient") if key in content}
    rungs = tuple(_build_rung({**shared, **each}) for each in content.pop("rungs"))
    return Ladder(name=path.stem, rungs=rungs, **content)


def _build_rung(values: dict[str, Any]) -> Rung:
    slots = {slot: values.pop(slot) for slot in SLOTS if slot in values}
    return Rung(slots=slots, **values)


for _file in sorted(Path(__file__).parent.glob("*.yaml")):
    LADDERS.register(read_ladder(_file))
