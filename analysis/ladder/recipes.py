"""The training recipes of the rungs of a sweep, as far as they differ."""

import json
from typing import Any

import pandas as pd

from analysis.load import Sweep
from analysis.settings import settings
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import NOTHING, Cell, cell
from tune_calib.spec.metrics import BASE, column, format_value
from tune_calib.spec.names import HEAD_BELOW
from tune_calib.spec.slots.base import Slot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.text import format_count

Recipe = dict[str, Cell]

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

NOTE = "Training recipes that differ between rungs:"


def recipes(sweep: Sweep) -> list[Table]:
    """Build a table of the recipes that differ between rungs; none if all were trained alike.

    Where heads and networks were trained by different optimisers, they are compared too.
    """
    trained = {slot: _by_rung(sweep, slot) for slot in _SLOTS}
    differing = {slot: rungs for slot, rungs in trained.items() if len(_distinct(rungs)) > 1}
    fields = dict.fromkeys(key for slot in _SLOTS.values() for key in slot.model_fields)
    differ = {
        key
        for key in fields
        if any(len({each.get(key) for each in rungs.values()}) > 1 for rungs in differing.values())
    }
    every = [recipe for rungs in trained.values() for recipe in _distinct(rungs)]
    if "optimizer" not in differ and len({each.get("optimizer") for each in every}) > 1:
        # Rungs with and without a head are compared, and were trained by two optimisers.
        differing, shared = trained, [key for key in fields if all(key in each for each in every)]
        differ |= {key for key in shared if len({each[key] for each in every}) > 1}
    heads = {k: _HEADS.get(k, k.replace("_", " ")) for k in fields if k in differ}
    rows = []
    for slot, rungs in differing.items():
        for recipe in _distinct(rungs):
            row = {head: recipe.get(key, NOTHING) for key, head in heads.items()}
            own = (sweep.labels[rung] for rung, other in rungs.items() if other == recipe)
            rows.append({"trained": Cell(slot), **row, "rungs": Cell(", ".join(own))})
    label = label_of("recipes", sweep.manifest.ladder.split()[0], sweep.manifest.dataset)
    return [Table("recipes", NOTE, rows, first=["rungs"], label=label)] if rows else []


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
            f"{rung.label}: {len(below)} of {format_count(len(rows), 'head')} far below the "
            f"network, test accuracy {own} against {base}; trained with {', '.join(trained)}, "
            "perhaps too briefly for a comparison of calibration"
        )
    return lines


def _by_rung(sweep: Sweep, slot: str) -> dict[int, Recipe]:
    """Return the recipe of each rung that has a slot."""
    keys = [key for key in _SLOTS[slot].model_fields if key not in _NO_RECIPE]
    # Trials of a rung differ only by their seeds, so the first has the recipe of all.
    trials = sweep.trials.drop_duplicates("rung").set_index("rung")
    frame = settings(trials).reindex(columns=[f"{slot}.{key}" for key in keys])
    frame.columns = pd.Index(keys)
    first = frame[frame["epochs"].notna()]
    rows: list[Any] = first.to_dict("records")
    return {int(rung): _recipe(row) for rung, row in zip(first.index, rows, strict=True)}


def _recipe(row: dict[str, Any]) -> Recipe:
    shares = row.pop("milestones", None)
    recipe = {key: _cell(value) for key, value in row.items() if not pd.isna(value)}
    if isinstance(shares, str):
        drops = [round(share * row["epochs"]) for share in json.loads(shares)]
        text = ", ".join(map(str, drops)) or "never"
        recipe["milestones"] = Cell(text, float(drops[0]) if len(drops) == 1 else None)
    return recipe


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, float):
        return Cell(f"{value:g}", value)
    return Cell("none") if value == "null" else cell(value)


def _distinct(rungs: dict[int, Recipe]) -> list[Recipe]:
    kinds: list[Recipe] = []
    for recipe in rungs.values():
        if recipe not in kinds:
            kinds.append(recipe)
    return kinds
