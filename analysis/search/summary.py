"""The summary of a search: its suggestions, its epochs, why it ended, and why trials crashed."""

import json
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from analysis.search.load import SearchResults
from analysis.text import capital
from tune_calib.text import format_count

_VARYING = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?")  # in crashes of one kind
Trained = dict[Hashable, int]  # epochs of networks and heads, each of which counts once


def summarise(search: SearchResults) -> list[str]:
    """Describe the end of a search in sentences; each kind of crash has one."""
    outcome = search.outcome
    planned, asked = outcome.planned, outcome.asked
    line = f"Complete: all {planned} planned suggestions ended ({search.ended()})."
    if "missing" in search.counts():
        line = f"INCOMPLETE: of {planned} planned suggestions, {search.ended()}."
    elif planned < asked:
        line += f" {asked} were requested, but there are no more points."
    lines = [line, f"{capital(outcome.stopped)}."] if outcome.stopped else [line]
    return [*lines, _describe_epochs(search), *_describe_crashes(search)]


def _describe_epochs(search: SearchResults) -> str:
    trained, complete = count_epochs(search)
    line = f"Its suggestions trained {format_count(trained, 'epoch')}"
    if saved := complete - trained:
        line += f", {saved / complete:.0%} fewer than if each had trained all of its epochs"
    return f"{line}."


def count_epochs(search: SearchResults) -> tuple[int, int]:
    """Count the epochs that suggestions trained, and those of as many complete suggestions.

    Networks that the baseline trains do not count, nor do trials that crashed.
    """
    columns = ["spec_hash", "rung", "network_id", "network", "head", "status", "epoch", "message"]
    trials = search.trials.reindex(columns=columns).dropna(subset="network")
    is_baseline = trials["rung"] < 0
    baselines = set(trials.loc[is_baseline, "network_id"])
    is_trained = ~trials["network_id"].isin(baselines) | trials["head"].notna()
    is_trained &= ~is_baseline & ~trials["spec_hash"].isin(search.outcome.reused)
    rows = trials[is_trained]
    of_trials = {row["spec_hash"]: _list_epochs(row, baselines) for row in rows.to_dict("records")}
    trained = _sum(of_trials.values())
    complete = 0
    for entry in search.outcome.suggestions:
        if entry.status == "done":
            complete = max(complete, _sum(of_trials.get(spec, {}) for spec in entry.specs))
    return trained, max(trained, complete * len(search.outcome.suggestions))


def _list_epochs(row: Mapping[Hashable, Any], baselines: set[str]) -> Trained:
    network = row["network_id"]
    epochs: Trained = {network: json.loads(row["network"])["epochs"]}
    if isinstance(row["head"], str) and not str(row["message"]).startswith("network: "):
        epochs[network, row["head"]] = json.loads(row["head"])["epochs"]
    if row["status"] == "diverged":
        epochs[list(epochs)[-1]] = int(row["epoch"])
    return {trained: count for trained, count in epochs.items() if trained not in baselines}


def _sum(parts: Iterable[Trained]) -> int:
    epochs: Trained = {}
    for part in parts:
        epochs |= part
    return sum(epochs.values())


def _describe_crashes(search: SearchResults) -> list[str]:
    """Describe each kind of crash by its number and first cause; kinds differ in their words."""
    kinds: dict[str, list[str]] = {}
    for entry in search.outcome.suggestions:
        for cause in entry.crashes:
            kinds.setdefault(_VARYING.sub("0", cause), []).append(cause)
    ordered = sorted(kinds.values(), key=len, reverse=True)
    return [f"{format_count(len(causes), 'trial')} crashed: {causes[0]}." for causes in ordered]
