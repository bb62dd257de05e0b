"""The summary of a search: its suggestions, its epochs, why it ended, and why trials crashed."""

import json
import re
from collections import ChainMap
from collections.abc import Hashable
from itertools import chain

from analysis.search.load import SearchResults
from analysis.text import capital
from tune_calib.text import format_count

_VARYING = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?")  # in crashes of one kind


def summarise(search: SearchResults) -> list[str]:
    """Describe the end of a search in sentences; each kind of crash has one."""
    outcome = search.outcome
    planned, asked = outcome.planned, outcome.asked
    line = f"Complete: all {planned} planned suggestions ended ({search.ended()})."
    if "missing" in search.counts():
        line = f"INCOMPLETE: of {planned} planned suggestions, {search.ended()}."
    elif planned < asked:
        line += f" {asked} were requested, but there are no more points."
    trained, complete = count_epochs(search)
    epochs = f"Its suggestions trained {format_count(trained, 'epoch')}"
    if saved := complete - trained:
        epochs += f", {saved / complete:.0%} fewer than if each had trained all of its epochs"
    lines = [line, f"{capital(outcome.stopped)}."] if outcome.stopped else [line]
    kinds: dict[str, list[str]] = {}  # causes of crashes that differ in numbers alone
    for cause in chain.from_iterable(entry.crashes for entry in outcome.suggestions):
        kinds.setdefault(_VARYING.sub("0", cause), []).append(cause)
    crashes = []
    for causes in sorted(kinds.values(), key=len, reverse=True):
        crashes.append(f"{format_count(len(causes), 'trial')} crashed: {causes[0]}.")
    return [*lines, f"{epochs}.", *crashes]


def count_epochs(search: SearchResults) -> tuple[int, int]:
    """Count the epochs that suggestions trained, and those of as many complete suggestions.

    Networks that the baseline trains do not count, nor do trials that crashed.
    """
    columns = ["spec_hash", "rung", "network_id", "network", "head", "status", "epoch", "message"]
    trials = search.trials.reindex(columns=columns).dropna(subset="network")
    is_baseline = trials["rung"] < 0
    baselines = set(trials.loc[is_baseline, "network_id"])
    rows = trials[~is_baseline & ~trials["spec_hash"].isin(search.outcome.reused)]
    # By network or head, which count once.
    of_trials, trained = dict[str, dict[Hashable, int]](), dict[Hashable, int]()
    for row in rows.to_dict("records"):
        epochs: dict[Hashable, int] = {row["network_id"]: json.loads(row["network"])["epochs"]}
        if isinstance(row["head"], str) and not str(row["message"]).startswith("network: "):
            epochs[row["network_id"], row["head"]] = json.loads(row["head"])["epochs"]
        if row["status"] == "diverged":
            epochs[list(epochs)[-1]] = int(row["epoch"])
        of_trials[row["spec_hash"]] = {n: epochs[n] for n in epochs if n not in baselines}
        trained |= of_trials[row["spec_hash"]]
    total, complete = sum(trained.values()), 0
    for entry in search.outcome.suggestions:
        if entry.status == "done":
            specs = [of_trials.get(spec_hash, {}) for spec_hash in entry.specs]
            complete = max(complete, sum(ChainMap(*specs).values()))
    return total, max(total, complete * len(search.outcome.suggestions))
