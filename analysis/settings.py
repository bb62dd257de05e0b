"""What each trial was set to: the slots' JSON of the results as plain columns."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from tune_calib.spec.names import SLOTS

_SEED = re.compile(r'"seed": ?\d+')


def settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Every setting of the trials but the seeds, which are an axis of the design.

    Args:
        rows: the ``trials`` table of a sweep or a search.

    Returns:
        Index as of ``rows``; a column a ``slot.key``, as ``--set`` writes it (a method's own
        hyper-parameters beside its slot's: ``head.lr``, ``head.gamma``); None where a trial has
        no such setting. A list and null are their JSON text, so that every value can be grouped.
    """
    # Trials share most of their slots, and differ by their seeds alone: each setting is read once.
    codes, known = {}, {}
    for slot in SLOTS:
        texts = rows.reindex(columns=[slot])[slot].astype(object)
        if slot in ("network", "head"):
            texts = texts.map(_without_seed, na_action="ignore")
        codes[slot], unique = pd.factorize(texts)
        known[slot] = [dict(_flat(slot, json.loads(text))) for text in unique]
    kinds, of_kind = np.unique(np.column_stack(list(codes.values())), axis=0, return_inverse=True)
    found: list[dict[str, Any]] = []
    for kind in kinds:
        own = [known[slot][code] for slot, code in zip(SLOTS, kind, strict=True) if code >= 0]
        found.append({name: value for each in own for name, value in each.items()})
    names = sorted({name for own in found for name in own}, key=_order)
    # As objects: pandas would turn whole numbers beside None into floats, and print 8 as 8.0.
    frame = pd.DataFrame(
        {name: pd.Series([own.get(name) for own in found], dtype=object) for name in names}
    )
    return frame.take(of_kind.ravel()).set_axis(rows.index)


def _without_seed(slot: str) -> str:
    """Set the seed of a slot to 0, unless its method has a hyper-parameter of that name too."""
    text, count = _SEED.subn('"seed":0', slot)
    return text if count == 1 else slot


def _flat(slot: str, filling: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    own = {key: value for key, value in filling.items() if key not in ("params", "seed")}
    for key, value in {**own, **filling.get("params", {})}.items():
        is_plain = isinstance(value, bool | int | float | str)
        yield f"{slot}.{key}", value if is_plain else json.dumps(value)


def _order(name: str) -> tuple[int, bool, str]:
    """Order of the slots, a slot's method first."""
    slot, _, key = name.partition(".")
    return SLOTS.index(slot), key != "method", key


def by_rung(rows: pd.DataFrame, labels: Mapping[int, str]) -> pd.DataFrame:
    """Which rungs have which value of each setting.

    Args:
        rows: the ``trials`` table of a sweep, with ``rung``.
        labels: of the rungs by their index, which may have gaps.

    Returns:
        Columns setting, value and rungs (labels joined, ``all`` where no rung has
        another value or none): one row a (setting, value).
    """
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
