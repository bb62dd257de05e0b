"""Generate the tables of the settings of a trial spec."""

from docs.generate.methods import linked
from docs.generate.page import table
from tune_calib.spec import describe as fields
from tune_calib.spec.methods import METHODS
from tune_calib.spec.space import SPACES, Space
from tune_calib.spec.trial import SLOT_TYPES

_OPTIMISER = {"lr", "weight_decay", "batch_size"}


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


def spaces() -> str:
    """Return a table of the number of searched settings of each method, by kind.

    Below it are those that Optuna's GPSampler draws at random.
    """
    rows, conditional = [], []
    for kind in ("network", "head", "posthoc"):
        for name in SPACES:
            if METHODS[name].kind != kind:
                continue
            keys = [key.partition(".")[2] for key in SPACES[name].settings]
            further = [fields.code(key) for key in keys if key not in _OPTIMISER]
            rows.append((kind, fields.code(name), str(len(keys)), ", ".join(further)))
            if switched := _list_switched(SPACES[name]):
                share = f"{len(switched)} of {len(keys)} settings"
                conditional.append(f"{', '.join(switched)} of {fields.code(name)} ({share})")
    heads = ("Kind", "Method", "Settings", "Besides learning rate, weight decay and batch size")
    sentence = "`gp` draws these at random, since other settings switch them on and off: "
    return f"{table(heads, rows)}\n\n{sentence}{'; '.join(conditional)}."


def _list_switched(space: Space) -> list[str]:
    """List the settings of several values that matter for some values of others only."""
    names = []
    for key, setting in space.settings.items():
        values = setting.values()
        if setting.only_if and (values is None or len(values) > 1):
            names.append(fields.code(key.partition(".")[2]))
    return names
