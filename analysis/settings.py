"""What each trial was set to: the slots' JSON of the results as plain columns."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from tune_calib.names import SLOTS


def settings(trials: pd.DataFrame) -> pd.DataFrame:
    """Every setting of the trials but the seeds, which are an axis of the design.

    Args:
        trials: the ``trials`` table of a sweep or a search.

    Returns:
        Index as of ``trials``; a column a ``slot.key``, as ``--set`` writes it (a method's own
        hyper-parameters beside its slot's: ``head.lr``, ``head.gamma``); None where a trial has
        no such setting. A list and null are their JSON text, so that every value can be grouped.
    """
    known: dict[str, dict[str, Any]] = {}
    rows = []
    for texts in trials.reindex(columns=list(SLOTS)).itertuples(index=False):
        row = {}
        for slot, text in zip(SLOTS, texts, strict=True):
            if isinstance(text, str):
                if text not in known:
                    known[text] = dict(_flat(slot, json.loads(text)))
                row.update(known[text])
        rows.append(row)
    names = sorted({name for row in rows for name in row}, key=_place)
    return pd.DataFrame(
        {name: pd.Series([row.get(name) for row in rows], dtype=object) for name in names}
    ).set_axis(trials.index)


def _flat(slot: str, filling: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    own = {key: value for key, value in filling.items() if key not in ("params", "seed")}
    for key, value in {**own, **filling.get("params", {})}.items():
        is_plain = isinstance(value, bool | int | float | str)
        yield f"{slot}.{key}", value if is_plain else json.dumps(value)


def _place(name: str) -> tuple[int, bool, str]:
    """Order of the slots, a slot's method first."""
    slot, _, key = name.partition(".")
    return SLOTS.index(slot), key != "method", key


def by_rung(trials: pd.DataFrame, labels: Mapping[int, str]) -> pd.DataFrame:
    """Which rungs have which value of each setting.

    Args:
        trials: the ``trials`` table of a sweep, with ``rung``.
        labels: of the rungs by their index, which may have gaps.

    Returns:
        Columns setting, value (as text) and rungs (labels joined, ``all`` where no rung has
        another value or none): one row a (setting, value).
    """
    frame = settings(trials)
    present = sorted(trials["rung"].unique())
    rows = []
    for name in map(str, frame):
        texts = frame[name].dropna().map(str)
        for value, rungs in trials.loc[texts.index, "rung"].groupby(texts, sort=False):
            own = sorted(rungs.unique())
            where = "all" if own == present else ", ".join(labels[rung] for rung in own)
            rows.append({"setting": name, "value": str(value), "rungs": where})
    return pd.DataFrame(rows, columns=["setting", "value", "rungs"])
