"""How the rungs of a sweep were trained, as far as that differs between them."""

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

_SLOTS: dict[str, type[Slot]] = {"network": NetworkSlot, "head": HeadSlot}
# What a rung is, not how it was trained: its label and the table of settings tell these.
_NO_RECIPE = ("plugin", "method", "params", "seed", "backbone")
_HEADS = {
    "optimizer": "optimiser",
    "milestones": "lr drops at epoch",
    "batch_size": "batch",
    "loss_reduction": "loss",
    "clip_grad_norm": "clip",
    "select": "epoch kept",
}

_HOW = {"optimizer": "optimiser", "lr": "lr", "batch_size": "batch", "epochs": "epochs"}

NOTE = "What was trained otherwise from rung to rung, and how:"


def recipes(sweep: Sweep) -> list[Table]:
    """The recipes of a sweep in which rungs differ; none if all were trained alike.

    Where heads were trained by another optimiser than networks, these are compared with each
    other too. A row is a (slot, recipe): trained (``network`` or ``head``), a column for each field
    of these slots of which two rungs have different values (``-`` where the slot has no such field;
    shares of the epochs at which the learning rate drops as epochs), and rungs (labels joined).
    """
    trained = {slot: _by_rung(sweep, slot) for slot in _SLOTS}
    found = {slot: rungs for slot, rungs in trained.items() if len(_distinct(rungs)) > 1}
    fields = dict.fromkeys(key for slot in _SLOTS.values() for key in slot.model_fields)
    differ = {
        key
        for key in fields
        if any(len({each.get(key) for each in rungs.values()}) > 1 for rungs in found.values())
    }
    every = [recipe for rungs in trained.values() for recipe in _distinct(rungs)]
    if "optimizer" not in differ and len({each.get("optimizer") for each in every}) > 1:
        # Rungs with and without a head are compared, and were trained by two optimisers.
        found, shared = trained, [key for key in fields if all(key in each for each in every)]
        differ |= {key for key in shared if len({each[key] for each in every}) > 1}
    heads = {k: _HEADS.get(k, k.replace("_", " ")) for k in fields if k in differ}
    rows = []
    for slot, rungs in found.items():
        for recipe in _distinct(rungs):
            row = {head: recipe.get(key, NOTHING) for key, head in heads.items()}
            own = (sweep.labels[rung] for rung, other in rungs.items() if other == recipe)
            rows.append({"trained": Cell(slot), **row, "rungs": Cell(", ".join(own))})
    label = label_of("recipes", sweep.manifest.ladder.split()[0], sweep.manifest.dataset)
    return [Table("recipes", NOTE, rows, first=["rungs"], label=label)] if rows else []


def of_heads_below(sweep: Sweep) -> list[str]:
    """Return a line for each rung with heads that are far less accurate than their networks.

    It says by how much, and how the heads were trained.
    """
    recipes, accuracy = _by_rung(sweep, "head"), column("test", "accuracy")
    lines = []
    for rung in sweep.rungs:
        rows = sweep.of_rung(rung.index)
        is_below = rows["flags"].str.split(",").map(lambda own: HEAD_BELOW in own).astype(bool)
        below = rows[is_below].reindex(columns=[accuracy, f"{BASE}/{accuracy}"]).dropna()
        if below.empty:
            continue
        own, base = below.mean()
        how = recipes.get(rung.index, {})
        told = [f"{head} {how[key].text}" for key, head in _HOW.items() if key in how]
        lines.append(
            f"{rung.label}: {len(below)} of {format_count(len(rows), 'head')} far below the "
            f"network under it, {format_value('accuracy', own)} accurate on test where the network "
            f"is {format_value('accuracy', base)}; trained by {', '.join(told)}; they may be "
            "trained too briefly for a comparison of their calibration"
        )
    return lines


def _by_rung(sweep: Sweep, slot: str) -> dict[int, dict[str, Cell]]:
    """How each rung that has a slot was trained."""
    kept = [key for key in _SLOTS[slot].model_fields if key not in _NO_RECIPE]
    # Trials of a rung differ by their seeds alone, so the first tells how all were trained.
    trials = sweep.trials.drop_duplicates("rung").set_index("rung")
    frame = settings(trials).reindex(columns=[f"{slot}.{key}" for key in kept])
    frame.columns = pd.Index(kept)
    first = frame[frame["epochs"].notna()]
    rows: list[Any] = first.to_dict("records")
    return {int(rung): _told(row) for rung, row in zip(first.index, rows, strict=True)}


def _told(row: dict[str, Any]) -> dict[str, Cell]:
    shares = row.pop("milestones", None)
    told = {key: _cell(value) for key, value in row.items() if not pd.isna(value)}
    if isinstance(shares, str):
        drops = [round(share * row["epochs"]) for share in json.loads(shares)]
        text = ", ".join(map(str, drops)) or "never"
        told["milestones"] = Cell(text, float(drops[0]) if len(drops) == 1 else None)
    return told


def _distinct(rungs: dict[int, dict[str, Cell]]) -> list[dict[str, Cell]]:
    kinds: list[dict[str, Cell]] = []
    for recipe in rungs.values():
        if recipe not in kinds:
            kinds.append(recipe)
    return kinds


def _cell(value: Any) -> Cell:
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, float):
        return Cell(f"{value:g}", value)
    return Cell("none") if value == "null" else cell(value)
