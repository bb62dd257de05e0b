"""Compare the training recipes of the rungs, and list heads that may be trained too briefly."""

import json
from collections.abc import Iterable
from functools import partial
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
    fields = {**NetworkSlot.model_fields, **HeadSlot.model_fields}
    shown = {slot: rungs for slot, rungs in trained.items() if len(_distinct(rungs)) > 1}
    differ: set[str] = set()
    for rungs in shown.values():
        differ.update(key for key in fields if _varies(key, rungs.values()))
    every_recipe = [*trained["network"].values(), *trained["head"].values()]
    if "optimizer" not in differ and _varies("optimizer", every_recipe):
        # Rungs with and without a head were trained by two optimisers.
        shown = trained
        common = set(fields).intersection(*every_recipe)
        differ.update(key for key in common if _varies(key, every_recipe))
    heads = {key: _HEADS.get(key, key.replace("_", " ")) for key in fields if key in differ}
    rows = []
    for slot, rungs in shown.items():
        for recipe in _distinct(rungs):
            row = {"trained": Cell(slot)}
            for key, head in heads.items():
                row[head] = recipe.get(key, NOTHING)
            labels = [sweep.labels[rung] for rung, other in rungs.items() if other == recipe]
            rows.append(row | {"rungs": Cell(", ".join(labels))})
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
        is_below = rows["flags"].str.split(",").map(lambda names: HEAD_BELOW in names).astype(bool)
        below = rows[is_below].reindex(columns=[accuracy, f"{BASE}/{accuracy}"]).dropna()
        if below.empty:
            continue
        mean, base = map(partial(format_value, "accuracy"), below.mean())
        recipe = recipes.get(rung.index, {})
        trained = [f"{head} {recipe[key].text}" for key, head in _WEAK.items() if key in recipe]
        lines.append(
            f"{rung.label}: {len(below)} of {format_count(len(rows), 'head')} far less accurate on "
            f"test than the network ({mean} compared with {base}); trained with "
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
    rows: Any = frame[frame["epochs"].notna()].to_dict("index")
    recipes = {}
    for rung, row in rows.items():
        recipe = {key: _cell(value) for key, value in row.items() if not pd.isna(value)}
        if isinstance(shares := row.get("milestones"), str):
            drops = [round(share * row["epochs"]) for share in json.loads(shares)]
            epoch = float(drops[0]) if len(drops) == 1 else None
            recipe["milestones"] = Cell(", ".join(map(str, drops)) or "never", epoch)
        recipes[int(rung)] = recipe
    return recipes


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return Cell("yes") if value else Cell("no")
    if isinstance(value, float):
        return Cell(f"{value:g}", value)
    return Cell("none") if value == "null" else Cell.of(value)
