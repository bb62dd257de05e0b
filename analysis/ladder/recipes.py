"""How the rungs of a sweep were trained, as far as that differs between them."""

import json
import re
from typing import Any

import pandas as pd
from tabulate import tabulate

from analysis.load import Sweep
from analysis.settings import settings
from tune_calib.spec import HeadSlot, NetworkSlot, Slot

_SLOTS: dict[str, type[Slot]] = {"network": NetworkSlot, "head": HeadSlot}
_NO_RECIPE = ("method", "params", "seed", "backbone")
_TITLES = {
    "optimizer": "optimiser",
    "milestones": "lr drops at epoch",
    "batch_size": "batch",
    "loss_reduction": "loss",
    "clip_grad_norm": "clip",
    "select": "epoch kept",
}

NOTE = "What was trained otherwise from rung to rung, and how:"


def differing(sweep: Sweep) -> pd.DataFrame:
    """The recipes of a sweep in which rungs differ.

    Returns:
        One row a (slot, recipe): trained (``network`` or ``head``), a column for each field of
        these slots of which two rungs have different values, as text (``-`` where the slot has no
        such field; shares of the epochs at which the learning rate drops as epochs), and rungs
        (labels joined). Empty where all rungs are trained alike.
    """
    found = {slot: _by_rung(sweep, slot) for slot in _SLOTS}
    found = {slot: rungs for slot, rungs in found.items() if len(_distinct(rungs)) > 1}
    fields = dict.fromkeys(key for slot in found for key in _SLOTS[slot].model_fields)
    differ = [key for key in fields if any(_differs(rungs, key) for rungs in found.values())]
    labels = {rung.index: rung.label for rung in sweep.rungs}
    rows = []
    for slot, rungs in found.items():
        for recipe in _distinct(rungs):
            row = {_TITLES.get(key, key.replace("_", " ")): recipe.get(key, "-") for key in differ}
            own = ", ".join(labels[rung] for rung, other in rungs.items() if other == recipe)
            rows.append({"trained": slot, **row, "rungs": own})
    return pd.DataFrame(rows)


def _by_rung(sweep: Sweep, slot: str) -> dict[int, dict[str, str]]:
    """How each rung that has a slot was trained."""
    kept = [key for key in _SLOTS[slot].model_fields if key not in _NO_RECIPE]
    trials = sweep.trials
    frame = settings(trials).reindex(columns=[f"{slot}.{key}" for key in kept])
    frame.columns = pd.Index(kept)
    first = frame[frame["epochs"].notna()].groupby(trials["rung"]).first()
    rows: list[Any] = first.to_dict("records")
    return {int(rung): _told(row) for rung, row in zip(first.index, rows, strict=True)}


def _told(row: dict[str, Any]) -> dict[str, str]:
    shares = row.pop("milestones", None)
    told = {key: _text(value) for key, value in row.items() if not pd.isna(value)}
    if isinstance(shares, str):
        drops = (str(round(share * row["epochs"])) for share in json.loads(shares))
        told["milestones"] = ", ".join(drops) or "never"
    return told


def _distinct(rungs: dict[int, dict[str, str]]) -> list[dict[str, str]]:
    kinds: list[dict[str, str]] = []
    for recipe in rungs.values():
        if recipe not in kinds:
            kinds.append(recipe)
    return kinds


def _differs(rungs: dict[int, dict[str, str]], key: str) -> bool:
    return len({recipe.get(key) for recipe in rungs.values()}) > 1


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else {"null": "none"}.get(value, str(value))


def render(sweep: Sweep, table_format: str) -> str:
    """The table of ``differing`` in a format of tabulate's; empty where nothing differs.

    In LaTeX the labels of the rungs are broken over several lines.
    """
    frame = differing(sweep)
    if frame.empty:
        return ""
    rows = frame.to_dict("list")
    text = tabulate(rows, headers="keys", tablefmt=table_format, disable_numparse=True)
    return re.sub(r"(?<=begin{tabular}{)(l+)l}", r"\1p{.4\\linewidth}}", str(text))
