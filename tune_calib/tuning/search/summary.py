"""What a search prints at its end: the choice, the Pareto set and the counts."""

from collections import Counter
from typing import Any

from tabulate import tabulate

from tune_calib.errors import UserError
from tune_calib.folders import search_of
from tune_calib.names import METRICS, SEARCH_EVALUATED
from tune_calib.places import Place
from tune_calib.remarks import shown as shown_metric
from tune_calib.results import read_table
from tune_calib.tuning.search.driver import Found, study_so_far
from tune_calib.tuning.search.ledger import OPEN, Ledger
from tune_calib.tuning.search.storage import lost_database
from tune_calib.wording import counted


def summarise(found: Found) -> str:
    """The end of a search, as text."""
    ledger, objective = found.ledger, found.ledger.objective
    front = objective.pareto(ledger.standings)
    pictures = f"tables, figures and a page: tune-calib report {ledger.out}"
    lines = [_table(ledger, front), "", found.counts, pictures]
    lines += ledger.remarks()
    at_chance = sum(standing.at_chance for standing in ledger.standings.values())
    if at_chance:
        lines.append(f"{at_chance} suggestions are at chance and cannot be chosen")
    if not front:
        lines.append(
            f"no trial kept the accuracy within {100 * objective.guard:g} points of the baseline"
        )
        return "\n".join(lines)
    point = ledger.study.suggestion(front[0]).point
    settings = " ".join(f"--set {name}={shown(value)}" for name, value in point.items())
    lines.append(f"chosen: trial {front[0]} ({objective.rule()}): {settings}")
    lines.append(f"on the test split, once: tune-calib evaluate {ledger.out} --seeds 5")
    return "\n".join(lines)


def _table(ledger: Ledger, front: list[int]) -> str:
    """Baseline, the method's own defaults and the Pareto set, on ``select``."""
    objective = ledger.objective
    metrics = objective.metrics
    means = zip(metrics, ledger.baseline_means(metrics), strict=True)
    rows = [["baseline", *(shown_metric(*each) for each in means), shown_metric("accuracy", 0.0)]]
    # Trial 0 has the method's own defaults.
    for number in dict.fromkeys([0, *front]):
        standing = ledger.standings[number]
        values = standing.values or (float("nan"),) * len(metrics)
        told = [shown_metric(*each) for each in zip(metrics, values, strict=True)]
        name = f"trial {number}" + (" (defaults)" if number == 0 else "")
        rows.append([name, *told, shown_metric("accuracy", standing.drop)])
    titles = [f"select {METRICS[name].title}" for name in metrics]
    text: str = tabulate(
        rows, headers=["", *titles, "accuracy lost"], disable_numparse=True, stralign="right"
    )
    return text


def search_status(out: Place, study_storage: str | None = None) -> str:
    """What of a search is done; its driver may be at work, and nothing is written.

    Args:
        out: its folder.
        study_storage: URL of its study, where that is a database.
    """
    counts = Counter(read_table(out, "trials")["status"].to_pylist())
    rows = f"{counted(counts.total(), 'trial')} with a result ({_told(counts)})"
    asked = search_of(out).trials
    try:
        with lost_database(study_storage):
            study = study_so_far(out, study_storage)
            assert study is not None  # the manifest was read
            states = Counter(state for state in study.states() if state not in OPEN)
            ended, planned = states.total(), study.planned(asked)
    except UserError as error:
        return f"{out}: {rows}; how many suggestions ended is not known: {error}"
    lines = [f"{out}: {ended} of {planned} suggestions ended ({_told(states)}); {rows}"]
    if planned < asked:
        lines.append(f"{asked} were asked for, and there are no more points")
    if (out / SEARCH_EVALUATED).exists():
        lines.append(f"evaluated on test: {out / 'evaluation'}")
    elif ended < planned:
        lines.append(f"go on: tune-calib resume {out}")
    else:
        lines.append(f"finished; tables, figures and a page: tune-calib report {out}")
    return "\n".join(lines)


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items())) or "none yet"


def shown(value: Any) -> str:
    """A value as ``--set`` takes it."""
    return "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
