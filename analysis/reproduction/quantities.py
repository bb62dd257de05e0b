"""Quantities of the papers that are no means over test samples, one number per trial."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import pandas as pd

from analysis.ladder.results import QUANTITIES as OF_SAMPLES
from analysis.ladder.results import SHARES, LadderResults, angles, costs
from analysis.load import Run
from tune_calib.results.tables import read_table
from tune_calib.spec.metrics import METRICS, Metric


@dataclass(frozen=True, kw_only=True)
class Quantity(Metric):
    """A number per trial, without a best value; its title has its unit."""

    of: Callable[[LadderResults], "pd.Series[float]"]  # returns its values by spec hash
    direction: None = None
    unit: Literal["score"] = "score"
    scale: int = 1  # factor of printed values
    digits: int = 3  # decimals of printed values
    printed: str = ""  # the metric of the published results that it corresponds to
    over: str = ""  # row of the published table by which the printed values are divided


def _series(results: LadderResults, name: str, end: str) -> "pd.Series[float]":
    if name in OF_SAMPLES:
        rows = results.statistics
        split = "train" if name in SHARES else "select"
        rows = rows[rows["split"] == split].dropna(subset=name)
    else:
        rows = results.run.recorded(name).rename(columns={"value": name})
    curves = rows.astype({"spec_hash": str}).sort_values("epoch").groupby("spec_hash")[name]
    first, last = curves.first(), curves.last()
    return {"first": first, "last": last, "change": last - first}[end]


def _cost(results: LadderResults, name: str) -> "pd.Series[float]":
    return costs(results.run)[name].dropna()


def _angles(results: LadderResults) -> "pd.Series[float]":
    table = read_table(results.run.out, "logits").to_pandas()
    spreads = {}
    for spec_hash, rows in table.groupby("spec_hash"):
        logits = np.stack(rows["logits"].tolist()).astype(float)
        spreads[spec_hash] = angles(logits, rows["label"]).std()
    return pd.Series(spreads, dtype=float)


def _settling(results: LadderResults) -> "pd.Series[float]":
    """Return the mean step of q per epoch in the last third of the epochs minus the first third.

    A trial whose q moves by the largest step in each epoch has no value: its steps are those of
    tau, whatever its accuracy and confidence.
    """
    columns = {}
    for name in ("q", "tau"):
        rows = results.run.recorded(name).astype({"spec_hash": str})
        columns[name] = rows.set_index(["spec_hash", "epoch"])["value"]
    rows = pd.DataFrame(columns).reindex(columns["q"].index).sort_index()
    values = {}
    for spec_hash, curve in rows.groupby("spec_hash"):
        steps = curve["q"].diff().abs().iloc[1:]
        # The tau of an epoch bounds the step to the next one; a fixed q makes none.
        bounds = curve["tau"].shift().iloc[1:]
        if not (steps.any() and np.isclose(steps, bounds, rtol=1e-4, atol=1e-6).all()):
            third = max(1, len(steps) // 3)
            values[spec_hash] = steps.iloc[-third:].mean() - steps.iloc[:third].mean()
    return pd.Series(values, dtype=float).dropna()


def _confidence(results: LadderResults) -> "pd.Series[float]":
    trials = results.run.trials.set_index("spec_hash")
    confidence: pd.Series[float] = trials["test/accuracy"] + trials["test/confidence_gap"]
    return confidence.dropna()


_SERIES = {
    "q": "share of weights kept q",
    "tau": "largest step τ of q",
    "over": "over-confident (gate +1, %)",
    "under": "under-confident (gate -1, %)",
    "flipped": "gate flipped since the previous epoch (%)",
    **{name: head.replace("\n", " ") for name, head in OF_SAMPLES.items() if name not in SHARES},
}
_ENDS = {"first": "first epoch", "last": "last epoch", "change": "last minus first epoch"}
_PRINTED = "train_seconds_a40"
_COSTS = {
    "network_s": "network (s)",
    "bank_s": "feature bank (s)",
    "own_s": "own time (s)",
    "memory_mib": "peak memory (MiB)",
}
_total, _ratio = partial(_cost, name="total_s"), partial(_cost, name="ratio")
_quantities = [
    Quantity("q_settling", "change of q per epoch, last third minus first", of=_settling),
    Quantity("confidence", "mean confidence (%)", of=_confidence, scale=100, digits=2),
    Quantity("angles_sd", "spread of the angles between classes (°)", of=_angles, digits=1),
    Quantity("total_s", "total (s)", of=_total, digits=1, printed=_PRINTED),
    Quantity("cost_ratio", "total / plain training", of=_ratio, printed=_PRINTED, over="Vanilla"),
]
for _name, _title in _COSTS.items():
    _quantities.append(Quantity(_name, _title, of=partial(_cost, name=_name), digits=1))
for (_name, _title), (_end, _when) in product(_SERIES.items(), _ENDS.items()):
    _of = partial(_series, name=_name, end=_end)
    _quantity = Quantity(f"{_name}_{_end}", f"{_title}, {_when}", of=_of)
    if _name in SHARES:
        _quantity = replace(_quantity, scale=100, digits=1)
    _quantities.append(_quantity)
QUANTITIES = {quantity.name: quantity for quantity in _quantities}
"""Quantities by name: shares are of the train samples in the loss, correlations are on select."""

RANK = Quantity("rank", "rank", of=lambda results: pd.Series(dtype=float), digits=2)
"""The format of a difference of ranks, which belongs to no trial."""


def with_quantities(run: Run, names: Iterable[str]) -> Run:
    """Return the run with a column ``test/NAME`` for each of the names that is a quantity."""
    results = LadderResults(run)
    hashes = run.trials["spec_hash"]
    values = {}
    for name in dict.fromkeys(names):
        if name in QUANTITIES:
            values[f"test/{name}"] = hashes.map(QUANTITIES[name].of(results))
    return replace(run, trials=run.trials.assign(**values))


def printed_of(name: str) -> Metric:
    return METRICS[name] if name in METRICS else QUANTITIES[name]
