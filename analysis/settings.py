"""What each trial was set to: the slots' JSON of the results as plain columns."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from tune_calib.spec.names import SLOTS


def settings(rows: pd.DataFrame) -> pd.DataFrame:
    """Every setting of the trials but the seeds, which are an axis of the design.

    Args:
        rows: the ``trials`` table of a sweep or a search.

    Returns:
        Index as of ``rows``; a column a ``slot.key``, as ``--set`` writes it (a method's own
        hyper-parameters beside its slot's: ``head.lr``, ``head.gamma``); None where a trial has
        no such setting. A list and null are their JSON text, so that every value can be grouped.
    """
    known: dict[str, dict[str, Any]] = {}
    found = []
    for texts in rows.reindex(columns=list(SLOTS)).itertuples(index=False):
        own = {}
        for slot, text in zip(SLOTS, texts, strict=True):
            if isinstance(text, str):
                if text not in known:  # trials share most of their slots
                    known[text] = dict(_flat(slot, json.loads(text)))
                own.update(known[text])
        found.append(own)
    names = sorted({name for own in found for name in own}, key=_order)
    # As objects: pandas would turn whole numbers beside None into floats, and print 8 as 8.0.
    return pd.DataFrame(
        {name: pd.Series([own.get(name) for own in found], dtype=object) for name in names}
    ).set_axis(rows.index)


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
        for _, own in rows.loc[texts.index].groupby(texts, sort=False):
            rungs = sorted(own["rung"].unique())
            where = "all" if rungs == present else ", ".join(labels[rung] for rung in rungs)
            found.append({"setting": name, "value": frame[name][own.index[0]], "rungs": where})
    return pd.DataFrame(found, columns=["setting", "value", "rungs"], dtype=object)
