"""What a search prints at its end: the choice, the Pareto set and the counts."""

from collections import Counter
from typing import Any

from tabulate import tabulate

from tune_calib.manifests import search_of
from tune_calib.names import METRICS
from tune_calib.places import Place
from tune_calib.results import read_table
from tune_calib.tuning.request import EVALUATED
from tune_calib.tuning.search import Found
from tune_calib.tuning.trials import SearchTrials


def describe(found: Found) -> str:
    """The end of a search, as text."""
    trials, objective = found.trials, found.trials.objective
    front = objective.pareto(trials.verdicts)
    pictures = f"tables, figures and a page: tune-calib report {trials.out}"
    lines = [_table(trials, front), "", found.counts, pictures]
    if not front:
        lines.append(f"no trial kept the accuracy within {objective.guard:g} of the baseline")
        return "\n".join(lines)
    point = trials.study.suggestion(front[0]).point
    settings = " ".join(f"--set {name}={shown(value)}" for name, value in point.items())
    lines.append(f"chosen: trial {front[0]} ({objective.rule()}): {settings}")
    lines.append(f"on the test split, once: tune-calib evaluate {trials.out} --seeds 5")
    return "\n".join(lines)


def _table(trials: SearchTrials, front: list[int]) -> str:
    """Baseline, the method's own defaults and the Pareto set, on ``select``."""
    objective = trials.objective
    rows = [["baseline", *trials.baseline_means(objective.metrics), 0.0]]
    # Trial 0 has the method's own defaults.
    for number in dict.fromkeys([0, *front]):
        verdict = trials.verdicts[number]
        values = verdict.values or (float("nan"),) * len(objective.metrics)
        name = f"trial {number}" + (" (defaults)" if number == 0 else "")
        rows.append([name, *values, verdict.drop])
    titles = [f"select {METRICS[name].title}" for name in objective.metrics]
    text: str = tabulate(rows, headers=["", *titles, "accuracy lost"], floatfmt=".4f")
    return text


def status(out: Place) -> str:
    """What of a search is done, read beside a running driver: from the rows alone."""
    manifest = search_of(out)
    counts = Counter(read_table(out, "trials")["status"].to_pylist())
    seeds = manifest["question"]["seeds"]
    pairs = len(seeds["network"]) * (1 if seeds["is_paired"] else len(seeds["head"]))
    planned = manifest["trials"] * pairs + len(seeds["network"])
    states = ", ".join(f"{n} {state}" for state, n in sorted(counts.items())) or "none yet"
    lines = [f"{out}: {sum(counts.values())} of about {planned} trials have a result ({states})"]
    if (out / EVALUATED).exists():
        lines.append(f"evaluated on test: {out / 'evaluation'}")
    else:
        lines.append(f"go on: tune-calib resume {out}")
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A value as ``--set`` takes it."""
    return "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
