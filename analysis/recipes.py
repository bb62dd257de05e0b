"""How the rungs of a sweep were trained, as far as that differs between them."""

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
from tabulate import tabulate

from analysis.load import Sweep
from analysis.settings import settings
from tune_calib.spec import HeadSlot, NetworkSlot, Slot

_SLOTS: dict[str, type[Slot]] = {"network": NetworkSlot, "head": HeadSlot}
_NO_RECIPE = ("method", "params", "seed", "backbone")

NOTE = "Rungs were trained alike but for this:"


def differing(sweep: Sweep) -> pd.DataFrame:
    """Settings of training in which rungs differ.

    Returns:
        Column rung (its label), and one for each field of the slots ``network`` and ``head`` of
        which two rungs have different values, as text (``-`` for a rung without that slot; shares
        of the epochs at which the learning rate drops as epochs). One row a rung; no row where
        all rungs are trained alike.
    """
    trials = sweep.trials
    frame = settings(trials)
    found: dict[str, dict[int, str]] = {}
    for name, slot, key in _fields(frame):
        if key == "milestones":
            texts = frame[name].combine(frame[f"{slot}.epochs"], _drops)
        else:
            texts = frame[name].map(_text)
        by_rung = {
            rung: " | ".join(sorted(set(group.dropna())))
            for rung, group in texts.groupby(trials["rung"], sort=True)
        }
        values = {rung: text for rung, text in by_rung.items() if text}
        if len(set(values.values())) > 1:
            found[name] = values
    slots = {name.partition(".")[0] for name in found}
    rows = [
        {"rung": rung["label"]}
        | {_title(name, slots): values.get(rung["index"], "-") for name, values in found.items()}
        for rung in sweep.rungs
    ]
    return pd.DataFrame(rows if found else [], columns=list(rows[0]) if rows else ["rung"])


def _fields(frame: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    for name in map(str, frame):
        slot, _, key = name.partition(".")
        if slot in _SLOTS and key in _SLOTS[slot].model_fields and key not in _NO_RECIPE:
            yield name, slot, key


def _title(name: str, slots: set[str]) -> str:
    slot, _, key = name.partition(".")
    title = "lr drops at epoch" if key == "milestones" else key.replace("_", " ")
    return title if len(slots) == 1 else f"{slot}: {title}"


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else {"null": "none"}.get(value, str(value))


def _drops(shares: str | None, epochs: int | None) -> str | None:
    if shares is None or epochs is None:
        return None
    return ", ".join(str(round(share * epochs)) for share in json.loads(shares)) or "never"


def render(sweep: Sweep, table_format: str) -> str:
    """The table of ``differing`` in a format of tabulate's; empty where nothing differs."""
    frame = differing(sweep)
    if frame.empty:
        return ""
    rows = frame.to_dict("list")
    return str(tabulate(rows, headers="keys", tablefmt=table_format, disable_numparse=True))
