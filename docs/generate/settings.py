"""Generate the tables of the settings of a trial spec."""

from docs.generate.methods import linked
from docs.generate.page import table
from tune_calib.spec import describe as fields
from tune_calib.spec.trial import SLOT_TYPES


def of_slots() -> str:
    """Return a table for each slot."""
    parts = []
    for slot, model in SLOT_TYPES.items():
        if slot == "posthoc":
            continue
        rows = []
        for name, schema in fields.list_settings(model).items():
            anchor = f'<span id="{slot}-{name}">`{slot}.{name}`</span>'
            meaning = schema.get("description", "").split("\n\n")[0]  # without its options
            meaning = linked(meaning, "").replace("``", "`")
            rows.append((anchor, fields.default_of(schema), fields.range_of(schema), meaning))
        head = ("Setting", "Default", "Values", "Meaning")
        parts += [f"## {slot.capitalize()}", table(head, rows)]
    return "\n\n".join(parts)
