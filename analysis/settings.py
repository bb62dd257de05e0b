"""The settings of trials, from the JSON of their slots, as plain columns."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tune_calib.spec.names import SLOTS

_SEED = re.compile(r'"seed": ?\d+')


def settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the settings of trials except seeds, one column per ``slot.key``, lists as JSON."""
    kinds, known = _kinds(rows)
    names = sorted({name for own in known for name in own}, key=_order)
    # As objects, since pandas would turn integers into floats next to None, and print 8 as 8.0.
    frame = pd.DataFrame(
        {name: pd.Series([own.get(name) for own in known], dtype=object) for name in names}
    )
    return frame.take(kinds).set_axis(rows.index)


def _kinds(rows: pd.DataFrame) -> tuple[NDArray[Any], list[dict[str, Any]]]:
    """Number distinct settings without seeds; return the number of each trial, and the settings."""
    codes, texts = {}, {}
    for slot in SLOTS:
        column = rows.reindex(columns=[slot])[slot].astype("category").cat
        numbers: dict[str, int] = {}
        own = []
        # One text at a time, since those of 200,000 trials would take hundreds of megabytes.
        for text in column.categories:
            plain, count = _SEED.subn('"seed":0', text)
            # Two seeds: the method has a hyper-parameter of that name too.
            is_own = count == 1 and slot in ("network", "head")
            own.append(numbers.setdefault(plain if is_own else text, len(numbers)))
        codes[slot] = np.array([*own, -1])[column.codes]
        texts[slot] = [*numbers, None]
    frame = pd.DataFrame(codes)
    known = [
        {name: value for slot in SLOTS if (text := texts[slot][kind[slot]]) is not None
         for name, value in _read_slot(slot, text).items()}
        for kind in frame.drop_duplicates().to_dict("records")
    ]  # fmt: skip
    return frame.groupby(list(SLOTS), sort=False).ngroup().to_numpy(), known


@cache
def _read_slot(slot: str, text: str) -> dict[str, Any]:
    entries = json.loads(text)
    own = {key: value for key, value in entries.items() if key not in ("params", "seed")}
    return {
        f"{slot}.{key}": value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for key, value in {**own, **entries.get("params", {})}.items()
    }


def _order(name: str) -> tuple[int, bool, str]:
    """Return the sort key of a setting: in the order of slots, with the method first."""
    slot, _, key = name.partition(".")
    return SLOTS.index(slot), key != "method", key


def by_rung(rows: pd.DataFrame, labels: Mapping[int, str]) -> pd.DataFrame:
    """Return a row per setting and value with its rungs (labels or ``all``)."""
    # One trial per rung and combination of settings is enough.
    pairs = pd.DataFrame({"settings": _kinds(rows)[0], "rung": rows["rung"].to_numpy()})
    rows = rows[~pairs.duplicated().to_numpy()]
    frame = settings(rows)
    present = sorted(rows["rung"].unique())
    found = []
    for name in map(str, frame):
        texts = frame[name].dropna().map(str)
        # Grouped as strings, since pandas treats true and 1 as equal.
        for _, own in rows["rung"][texts.index].groupby(texts, sort=False):
            rungs = sorted(own.unique())
            where = "all" if rungs == present else ", ".join(labels[rung] for rung in rungs)
            found.append({"setting": name, "value": frame[name][own.index[0]], "rungs": where})
    return pd.DataFrame(found, columns=["setting", "value", "rungs"], dtype=object)
