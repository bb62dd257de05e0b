"""Pools of networks against their members: the mean member, and the best one on ``select``."""

import json
import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.claims import NO_ERROR, Changes
from analysis.compare.decision import Decision, decide, describe_rules
from analysis.compare.hypotheses import MIN_PAIRS
from analysis.compare.intervals import noise_floors
from analysis.load import Run, cached_per_run
from analysis.shifts import read_draws
from analysis.tables.table import Table
from analysis.text import Cell, Record, full_stops
from analysis.tidy import pooled_seeds
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.reproduction import Comparison

BEST, MEAN = "best member on select", "mean member"
SHOWN = ("accuracy", "nll", "brier", "ece")
_canonical = partial(json.dumps, sort_keys=True, separators=(",", ":"))


def find_members(run: Run, row: Any) -> pd.DataFrame:
    """Return the trials of the members of a pool, each with the transform that the pool has."""
    pool, done = json.loads(row["network"])["pool"], run.done
    posthoc = _canonical(pool["posthoc"]) if "posthoc" in pool else row["posthoc"]
    is_member = done["network"].isin(list(map(_canonical, pool["members"])))
    is_member &= (done["data"] == row["data"]) & done["head"].isna()
    is_alike = done["posthoc"].isna() if pd.isna(posthoc) else done["posthoc"] == posthoc
    members = done[is_member & is_alike]
    return members if len(members) == len(pool["members"]) else members[:0]


def measure_pools(run: Run, label: str, metric: str, reference: str) -> Changes:
    """Compute the differences of the pools of a rung from their mean or best member."""
    name, floors, draws = column("test", metric), noise_floors(run), _draws(run, metric)
    values, drawn, excesses = [], list[Any](), []
    for _, row in run.done[run.done["rung"].map(run.labels) == label].iterrows():
        members = find_members(run, row)
        if members.empty:
            return Changes(np.array([]), why="the run lacks trials of its members")
        if reference == BEST:
            members = members.nsmallest(1, column("select", "nll"))
        values.append(row[name] - members[name].mean())
        hashes = list(members["spec_hash"])
        if draws.keys() >= {row["spec_hash"], *hashes}:
            means = np.mean([draws[spec_hash] for spec_hash in hashes], axis=0)
            drawn.append(draws[row["spec_hash"]] - means)
        excesses.append(floors[label] - floors[members["rung"].map(run.labels)].mean())
    if not values or len(drawn) < len(values):
        return Changes(np.array(values), why=NO_ERROR)
    mean_drawn = np.mean(drawn, axis=0)
    excess = float(np.mean(excesses)) if metric == "ece" else 0.0
    if len(values) < MIN_PAIRS:  # the spread over two pools says little
        values = [float(np.mean(values))]
    error = float(np.nanstd(mean_drawn, ddof=1))
    excess = 0.0 if math.isnan(excess) else excess
    return Changes(np.array(values), error, mean_drawn, excess=excess)


@cached_per_run
def _draws(run: Run, metric: str) -> Any:
    return read_draws(run.out, metric)


@cached_per_run
def pools_table(run: Run) -> Table:
    """Build the table of each pool's diversity, and of decisions between it and its members."""
    records: dict[tuple[str, str], Record] = {}
    rules: list[str] = []
    for reference in (MEAN, BEST):
        for metric in SHOWN if pooled_seeds(run) else ():
            labels = list(pooled_seeds(run))
            comparisons = [
                Comparison(each, (reference,), column("test", metric)) for each in labels
            ]
            changes = [measure_pools(run, each, metric, reference) for each in labels]
            decisions = decide(comparisons, changes)
            rules = rules or describe_rules(decisions)
            for decision in decisions:
                first = {"pool": Cell(decision.method), "compared with": Cell(reference)}
                record = records.setdefault((decision.method, reference), first)
                record[METRICS[metric].head] = _cell(decision)
    for quantity, scale in (("disagreement", 100), ("ambiguity", 1)):
        recorded = run.recorded(f"test/{quantity}").astype({"spec_hash": str})
        values = run.done["spec_hash"].map(recorded.set_index("spec_hash")["value"])
        means = values.astype(float).groupby(run.done["rung"].map(run.labels)).mean()
        for (label, _), record in records.items():
            head = f"{quantity.capitalize()}{' (%)' if scale == 100 else ''}"
            record[head] = Cell.formatted(scale * means[label], f".{2 if scale == 100 else 3}f")
    caption = [
        "Pools: difference on test from their members, each with the transform that the pool has",
        "The best member has the lowest NLL on select, the split that selects nothing else here",
        "Disagreement: pairs of members that predict different classes; ambiguity: mean Brier "
        "score of the members minus that of the pool, before a transform behind it",
    ]
    counts = run.done["rung"].map(run.labels).value_counts()
    few = [label for label in pooled_seeds(run) if counts.get(label, 0) < MIN_PAIRS]
    if few:
        caption.append(
            f"Fewer than {MIN_PAIRS} pools of {', '.join(few)}: decisions are over test samples "
            "only, for these networks"
        )
    return Table("pools", " ".join(full_stops([*caption, *rules])), list(records.values()))


def _cell(decision: Decision) -> Cell:
    cell = Cell.number(decision.metric, decision.difference, signed=True)
    return Cell(f"{cell.text} {(decision.why and '?') or decision.outcome}", cell.value)
