"""The settings of trials: the JSON of their slots as plain columns."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import pandas as pd

from tune_calib.spec.names import SLOTS

_SEED = re.compile(r'"seed": ?\d+')


def settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the settings of trials except seeds, a column for each ``slot.key``; lists as JSON."""
    texts = rows.reindex(columns=list(SLOTS)).astype(object)
    seeded = ["network", "head"]
    texts[seeded] = texts[seeded].map(_without_seed, na_action="ignore")
    # Trials share most of their slots: each combination is parsed once.
    kinds = texts.groupby(list(SLOTS), dropna=False, sort=False).ngroup()
    known = [
        {name: value for slot in SLOTS if isinstance(kind[slot], str)
         for name, value in _read_slot(slot, kind[slot]).items()}
        for kind in texts[~kinds.duplicated()].to_dict("records")
    ]  # fmt: skip
    names = sorted({name for own in known for name in own}, key=_order)
    # As objects: pandas would turn whole numbers beside None into floats, and print 8 as 8.0.
    frame = pd.DataFrame(
        {name: pd.Series([own.get(name) for own in known], dtype=object) for name in names}
    )
    return frame.take(kinds.to_numpy()).set_axis(rows.index)


def _without_seed(slot: str) -> str:
    """Set the seed of a slot to 0, unless its method has a hyper-parameter of that name too."""
    text, count = _SEED.subn('"seed":0', slot)
    return text if count == 1 else slot


@cache
def _read_slot(slot: str, text: str) -> dict[str, Any]:
    entries = json.loads(text)
    own = {key: value for key, value in entries.items() if key not in ("params", "seed")}
    return {
        f"{slot}.{key}": value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for key, value in {**own, **entries.get("params", {})}.items()
    }


def _order(name: str) -> tuple[int, bool, str]:
    """Order of the slots, a slot's method first."""
    slot, _, key = name.partition(".")
    return SLOTS.index(slot), key != "method", key


def by_rung(rows: pd.DataFrame, labels: Mapping[int, str]) -> pd.DataFrame:
    """Return the rungs (labels or ``all``) of each value of each setting."""
    frame = settings(rows)
    present = sorted(rows["rung"].unique())
    found = []
    for name in map(str, frame):
        texts = frame[name].dropna().map(str)
        # By texts: as data, true and 1 are one value.
        for _, own in rows["rung"][texts.index].groupby(texts, sort=False):
            rungs = sorted(own.unique())
            where = "all" if rungs == present else ", ".join(labels[rung] for rung in rungs)
            found.append({"setting": name, "value": frame[name][own.index[0]], "rungs": where})
    return pd.DataFrame(found, columns=["setting", "value", "rungs"], dtype=object)
