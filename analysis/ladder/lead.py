"""The sentence that a ladder's page begins with: what is best, by how much, on which networks."""

import numpy as np

from analysis.compare.blocks import over_seeds
from analysis.compare.intervals import t_interval
from analysis.compare.regime import regime_of
from analysis.compare.significance import are_rivals
from analysis.ladder.means import ladder_table
from analysis.load import Sweep
from tune_calib.spec.metrics import METRICS, format_value
from tune_calib.spec.names import is_chance
from tune_calib.text import format_count


def describe_best(sweep: Sweep) -> str:
    """Return the sentence; empty where no two rungs have numbers or no value is the best."""
    metric = METRICS[sweep.shown[0] if sweep.shown else "ece"]
    rows = ladder_table(sweep, [metric.name]).dropna(subset="mean")
    means = dict(zip(rows["rung"], rows["mean"].astype(float), strict=True))
    may_win = [rung for rung in means if not is_chance(sweep.flags(rung))]
    if len(means) < 2 or not may_win or metric.direction is None:
        return ""
    best = (min if metric.is_less_better else max)(may_win, key=means.__getitem__)
    first, name = next(iter(means)), sweep.labels[best]
    value = f"{metric.title} {format_value(metric.name, means[best])}"
    if best == first:
        result = f"{name}, the first, is the best ({value})"
    else:
        result = f"{name} is the best ({value}), {_change(sweep, metric.name, name, first)}"
    things = "methods" if are_rivals(sweep) else "rungs"
    return (
        f"Of {len(means)} {things} compared by {metric.title} on test, {result}; {_network(sweep)}."
    )


def _change(sweep: Sweep, metric: str, best: str, first: int) -> str:
    """Describe the paired difference to the first rung."""
    base, matched = sweep.labels[first], over_seeds(sweep, metric)
    pairs = matched.values[[base, best]].astype(float).dropna()
    if pairs.empty:
        return f"without a trial matched with {base}"
    # Rounded as in ``paired``: the last bit of a float is no difference.
    change = (pairs[best] - pairs[base]).round(12).to_numpy()
    record = METRICS[metric]
    unit = " points" * (record.unit == "fraction")
    size = f"a change of {record.format(change.mean(), signed=True)}{unit} from {base}"
    if len(change) < 2 or {base, best} <= set(matched.fixed):
        return f"{size}, without an interval since only one seed is matched"
    low, high = t_interval(change)
    ends = f"{record.format(low, signed=True)} to {record.format(high, signed=True)}"
    seeds = format_count(len(change), "matched seed")
    if np.isnan(low):
        return f"{size}, the same in {seeds}"
    interval = f"95 % interval {ends} over {seeds}, as if it had been chosen beforehand"
    return f"{size} ({interval})"


def _network(sweep: Sweep) -> str:
    """Describe the base network: its fit to train, and whether it is over-confident."""
    regime = regime_of(sweep)
    if not regime.is_recorded:
        return "whether the base network is over-confident was not recorded"
    train = format_value("accuracy", regime.train)
    fit = "" if np.isnan(regime.train) else f" (accuracy on train {train})"
    if regime.is_over_confident:
        return f"the base network is over-confident{fit}"
    return f"the base network is not significantly over-confident, unlike in the papers{fit}"
