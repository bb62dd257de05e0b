"""Compare the training recipes of the rungs, and list heads that may be trained too briefly."""

import json
from collections.abc import Iterable
from typing import Any

import pandas as pd

from analysis.load import Sweep, cached_per_sweep
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import NOTHING, Cell, Record
from analysis.tidy import settings
from tune_calib.spec.metrics import BASE, column, format_value
from tune_calib.spec.names import HEAD_BELOW
from tune_calib.spec.slots.base import Slot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.text import format_count

_SLOTS: dict[str, type[Slot]] = {"network": NetworkSlot, "head": HeadSlot}
# Not part of a recipe: the rung's label and the table of settings have them.
_NO_RECIPE = ("plugin", "method", "params", "seed", "backbone")
_HEADS = {
    "optimizer": "optimiser",
    "milestones": "lr drops at epoch",
    "batch_size": "batch",
    "loss_reduction": "loss",
    "clip_grad_norm": "clip",
    "select": "epoch kept",
}
_WEAK = {"optimizer": "optimiser", "lr": "lr", "batch_size": "batch", "epochs": "epochs"}


def recipes(sweep: Sweep) -> Table:
    """Build a table of the recipes that differ between rungs."""
    trained = {slot: _by_rung(sweep, slot) for slot in _SLOTS}
    fields = dict.fromkeys(key for slot in _SLOTS.values() for key in slot.model_fields)
    shown = {slot: rungs for slot, rungs in trained.items() if len(_distinct(rungs)) > 1}
    differ = {key for key in fields for rungs in shown.values() if _varies(key, rungs.values())}
    every = [recipe for rungs in trained.values() for recipe in rungs.values()]
    if "optimizer" not in differ and _varies("optimizer", every):
        # Rungs with and without a head were trained by two optimisers.
        shown = trained
        in_all = [key for key in fields if all(key in recipe for recipe in every)]
        differ |= {key for key in in_all if _varies(key, every)}
    heads = {k: _HEADS.get(k, k.replace("_", " ")) for k in fields if k in differ}
    rows = []
    for slot, rungs in shown.items():
        for recipe in _distinct(rungs):
            row = {head: recipe.get(key, NOTHING) for key, head in heads.items()}
            own = (sweep.labels[rung] for rung, other in rungs.items() if other == recipe)
            rows.append({"trained": Cell(slot), **row, "rungs": Cell(", ".join(own))})
    label = label_of("recipes", sweep.manifest.ladder.split()[0], sweep.manifest.dataset)
    caption = f"Training recipes that differ between {sweep.row_name}s:"
    return Table("recipes", caption, rows, first=["rungs"], label=label)


def _varies(key: str, recipes: Iterable[Record]) -> bool:
    return len({recipe.get(key) for recipe in recipes}) > 1


def _distinct(rungs: dict[int, Record]) -> list[Record]:
    return list({tuple(recipe.items()): recipe for recipe in rungs.values()}.values())


def weak_heads(sweep: Sweep) -> list[str]:
    """Return a line for each rung with heads far less accurate than their networks."""
    recipes, accuracy = _by_rung(sweep, "head"), column("test", "accuracy")
    lines = []
    for rung in sweep.rungs:
        rows = sweep.of_rung(rung.index)
        is_below = rows["flags"].str.split(",").map(lambda own: HEAD_BELOW in own).astype(bool)
        below = rows[is_below].reindex(columns=[accuracy, f"{BASE}/{accuracy}"]).dropna()
        if below.empty:
            continue
        own, base = (format_value("accuracy", value) for value in below.mean())
        recipe = recipes.get(rung.index, {})
        trained = [f"{head} {recipe[key].text}" for key, head in _WEAK.items() if key in recipe]
        lines.append(
            f"{rung.label}: {len(below)} of {format_count(len(rows), 'head')} far less accurate on "
            f"test than the network ({own} compared with {base}); trained with "
            f"{', '.join(trained)}, perhaps too briefly for a comparison of calibration"
        )
    return lines


@cached_per_sweep
def _by_rung(sweep: Sweep, slot: str) -> dict[int, Record]:
    """Return the recipe of each rung that has a slot."""
    keys = [key for key in _SLOTS[slot].model_fields if key not in _NO_RECIPE]
    # The trials of a rung differ only in their seeds and share a recipe.
    trials = sweep.trials.drop_duplicates("rung").set_index("rung")
    frame = settings(trials).reindex(columns=[f"{slot}.{key}" for key in keys])
    frame.columns = pd.Index(keys)
    known: Any = frame[frame["epochs"].notna()].to_dict("index")
    found = {}
    for rung, row in known.items():
        recipe = {key: _cell(value) for key, value in row.items() if not pd.isna(value)}
        if isinstance(shares := row.get("milestones"), str):
            drops = [round(share * row["epochs"]) for share in json.loads(shares)]
            text = ", ".join(map(str, drops)) or "never"
            recipe["milestones"] = Cell(text, float(drops[0]) if len(drops) == 1 else None)
        found[int(rung)] = recipe
    return found


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, float):
        return Cell(f"{value:g}", value)
    return Cell("none") if value == "null" else Cell.of(value)
