"""The settings of the slots of a trial spec."""

from docs.generate.methods import linked
from docs.generate.page import table
from tune_calib.spec import describe as fields
from tune_calib.spec.trial import SLOTS


def of_slots() -> str:
    """A table a slot."""
    parts = []
    for slot, model in SLOTS.items():
        if slot == "posthoc":
            continue
        rows = [
            (
                f'<span id="{slot}-{name}">`{slot}.{name}`</span>',
                fields.default_of(field),
                fields.range_of(field),
                linked(fields.first_paragraph(field), "").replace("``", "`"),
            )
            for name, field in fields.list_settings(model).items()
        ]
        head = ("setting", "default", "may be", "meaning")
        parts += [f"## {slot.capitalize()}", table(head, rows)]
    return "\n\n".join(parts)
