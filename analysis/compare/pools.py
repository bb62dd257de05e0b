"""Pools of networks against their members: the mean member, and the best one on ``select``."""

import json
import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.claims import NO_ERROR, Changes, drawn_rows
from analysis.compare.decision import decide, describe_rules
from analysis.compare.hypotheses import MIN_PAIRS
from analysis.compare.intervals import noise_floors
from analysis.load import Run, cached_per_run
from analysis.tables.table import Table
from analysis.text import Cell, Record, full_stops
from analysis.tidy import pooled_seeds
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.reproduction import Comparison

BEST, MEAN = "best member on select", "mean member"
SHOWN = ("accuracy", "nll", "brier", "ece")
_CAPTION = (
    "Pools: difference on test from their members, each with the transform that the pool has",
    "The best member is the one with the lowest NLL on select",
    "Disagreement: pairs of members that predict different classes",
    "Ambiguity: mean Brier score of the members minus that of the pool, before a transform behind",
)
_canonical = partial(json.dumps, sort_keys=True, separators=(",", ":"))


def find_members(run: Run, row: Any) -> pd.DataFrame:
    """Return the trials of the members of a pool, each with the transform that the pool has."""
    pool, done = json.loads(row["network"])["pool"], run.done
    posthoc = _canonical(pool["posthoc"]) if "posthoc" in pool else row["posthoc"]
    is_alike = done["posthoc"].isna() if pd.isna(posthoc) else done["posthoc"] == posthoc
    if digests := [member["digest"] for member in pool["members"] if "digest" in member]:
        imported = done["data"].str.extract(r'"digest":"(\w+)"', expand=False)
        is_member = imported.isin(digests) & ~done["network"].str.contains('"pool":')
    else:
        is_member = done["network"].isin(list(map(_canonical, pool["members"])))
        is_member &= (done["data"] == row["data"]) & done["head"].isna()
    members = done[is_member & is_alike]
    return members if len(members) == len(pool["members"]) else members[:0]


def measure_pools(run: Run, label: str, metric: str, reference: str) -> Changes:
    """Compute the differences of the pools of a rung from their mean or best member."""
    name, floors = column("test", metric), noise_floors(run)
    _, draws = drawn_rows(run, metric, "test")
    values, drawn, excesses = list[float](), list[Any](), list[float]()
    for _, row in run.done[run.done["rung"].map(run.labels) == label].iterrows():
        members = find_members(run, row)
        if members.empty:
            return Changes(np.array([]), why="the run lacks trials of its members")
        if reference == BEST:
            members = members.nsmallest(1, column("select", "nll"))
        values.append(row[name] - members[name].mean())
        excesses.append(floors[label] - floors[members["rung"].map(run.labels)].mean())
        if draws.keys() >= {row["spec_hash"], *members["spec_hash"]}:
            of_members = [draws[spec_hash] for spec_hash in members["spec_hash"]]
            drawn.append(draws[row["spec_hash"]] - np.mean(of_members, axis=0))
    if not values or len(drawn) < len(values):
        return Changes(np.array(values), why=NO_ERROR)
    if len(values) < MIN_PAIRS:  # the spread over two pools says little
        values = [float(np.mean(values))]
    mean_drawn, excess = np.mean(drawn, axis=0), float(np.mean(excesses))
    if metric != "ece" or math.isnan(excess):
        excess = 0.0
    error = float(np.nanstd(mean_drawn, ddof=1))
    return Changes(np.array(values), error, mean_drawn, excess=excess)


@cached_per_run
def pools_table(run: Run) -> Table:
    """Build the table of each pool's diversity, and of decisions between it and its members."""
    records, rules, labels = list[Record](), list[str](), list(pooled_seeds(run))
    for reference in (MEAN, BEST) if labels else ():
        of_labels = [{"pool": Cell(label), "compared with": Cell(reference)} for label in labels]
        for metric in SHOWN:
            name = column("test", metric)
            comparisons = [Comparison(label, (reference,), name) for label in labels]
            changes = [measure_pools(run, label, metric, reference) for label in labels]
            decisions = decide(comparisons, changes)
            rules = rules or describe_rules(decisions)
            for record, decision in zip(of_labels, decisions, strict=True):
                cell = Cell.number(metric, decision.difference, signed=True)
                outcome = decision.why or decision.outcome
                record[METRICS[metric].head] = Cell(f"{cell.text} {outcome}", cell.value)
        records += of_labels
    for quantity, scale, form in (("disagreement", 100, ".2f"), ("ambiguity", 1, ".3f")):
        recorded = run.recorded(f"test/{quantity}").astype({"spec_hash": str})
        values = run.done["spec_hash"].map(recorded.set_index("spec_hash")["value"]).astype(float)
        means = values.groupby(run.done["rung"].map(run.labels)).mean()
        for record in records:
            head = quantity.capitalize() + " (%)" * (scale == 100)
            record[head] = Cell.formatted(scale * means[record["pool"].text], form)
    counts = run.done["rung"].map(run.labels).value_counts()
    caption = [*_CAPTION, *rules]
    if few := [label for label in labels if counts.get(label, 0) < MIN_PAIRS]:
        text = f"Fewer than {MIN_PAIRS} pools of {', '.join(few)}: decisions are over test samples"
        caption.insert(0, f"{text} only")
    return Table("pools", " ".join(full_stops(caption)), records)
