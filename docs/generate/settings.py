"""The settings of the slots of a trial spec."""

from docs.generate import fields
from docs.generate.methods import linked
from docs.generate.page import table
from tune_calib.recipes import SLOTS
from tune_calib.registry import DATASETS


def of_slots() -> str:
    """A table a slot; what a data set sets otherwise stands in a column of its own."""
    parts = []
    for slot, model in SLOTS.items():
        if slot == "posthoc":
            continue
        own = {name: DATASETS[name].cpu_defaults.get(slot, {}) for name in DATASETS}
        rows = [
            (
                f'<span id="{slot}-{name}">`{slot}.{name}`</span>',
                fields.default_of(field),
                *(_told(values, name) for values in own.values()),
                fields.range_of(field),
                linked(fields.first_paragraph(field)).replace("../", ""),
            )
            for name, field in fields.shown(model).items()
        ]
        head = ("setting", "default", *(f"on `{name}`" for name in own), "may be", "meaning")
        parts += [f"## {slot.capitalize()}", table(head, rows)]
    return "\n\n".join(parts)


def _told(values: object, name: str) -> str:
    assert isinstance(values, dict)
    return f"`{values[name]}`" if name in values else ""
