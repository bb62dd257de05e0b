"""A ladder as numbers: mean, spread and changes of every rung, and what they are over."""

from collections.abc import Collection, Iterable, Sequence
from functools import cache

import pandas as pd

from analysis.load import Sweep
from analysis.published import published
from analysis.tidy import column_in
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import count_flags

_TABLE_METRICS = ("accuracy", "ece", "o_ece", "u_ece", "aece", "mce", "nll")


def table_metrics(sweep: Sweep) -> tuple[str, ...]:
    """The metrics of a ladder's table: those asked for, else the usual ones."""
    return sweep.shown or usual_metrics(sweep.trials)


def usual_metrics(columns: Iterable[object]) -> tuple[str, ...]:
    """Seven, and those of plug-ins that trials have.

    Args:
        columns: of the trials.
    """
    given = (name for name in METRICS if METRICS[name].compute is not None)
    there = set(columns)
    return (*_TABLE_METRICS, *(name for name in given if column("test", name) in there))


def ladder_table(
    sweep: Sweep, metrics: Sequence[str] | None = None, split: str = "test"
) -> pd.DataFrame:
    """Mean and spread of every rung and metric.

    Args:
        sweep: the sweep.
        metrics: names of ``names.METRICS``; those of the table unless given.
        split: ``select`` or ``test``.

    Returns:
        One row a (rung, metric): rung, label, kind, metric, n, mean, sd (with n - 1; NaN
        below two), change_before (mean minus that of the rung before; NaN but for
        steps), change_base (mean minus that of the last base; NaN for a base), statuses, flags, and
        ``published <dataset> <arch>`` for each column of the paper's table (NaN where it has
        none). Fractions. Only trials that are done enter; a change is a difference of means.
    """
    trials = {rung.index: sweep.of_rung(rung.index) for rung in sweep.rungs}
    told = {
        index: {"statuses": sweep.statuses(index), "flags": _flags(sweep, index)}
        for index in trials
    }
    rows = []
    for metric in table_metrics(sweep) if metrics is None else metrics:
        base = before = float("nan")
        printed = published_columns(sweep, metric)
        for index, rung in enumerate(sweep.rungs):
            values = _values(trials[rung.index], column_in(sweep.trials, split, metric))
            mean = values.mean() if len(values) else float("nan")
            # Changes need a base: where the rung that is one is not there, the first stands for it.
            is_base = index == 0 or rung.kind == "base"
            base = mean if is_base else base
            rows.append(
                {
                    "rung": rung.index,
                    "label": rung.label,
                    "kind": rung.kind,
                    "metric": metric,
                    "n": len(values),
                    "mean": mean,
                    "sd": values.std(ddof=1) if len(values) > 1 else float("nan"),
                    "change_before": mean - before if rung.kind == "step" else float("nan"),
                    "change_base": float("nan") if is_base else mean - base,
                    **told[rung.index],
                    **{
                        f"published {key[0]} {key[1]}": printed[key].get(rung.label)
                        for key in printed.columns
                    },
                }
            )
            # Of a rung without numbers too: the next step has then nothing to be compared with.
            before = mean
    return pd.DataFrame(rows)


def _flags(sweep: Sweep, rung: int) -> str:
    """Flags of a rung's trials and how many have them, e.g. ``chance (2)``."""
    return ", ".join(f"{flag.name} ({n})" for flag, n in count_flags(sweep.flags(rung)).items())


def _values(rows: pd.DataFrame, name: str) -> "pd.Series[float]":
    if name not in rows:
        return pd.Series(dtype=float)
    return rows[name].dropna()


def published_columns(sweep: Sweep, metric: str = "ece") -> pd.DataFrame:
    """What the paper prints for each rung.

    Returns:
        Index: label of the rung; one column a (dataset, backbone); fractions. Empty if the
        ladder follows no published table.
    """
    if not sweep.manifest.published:
        return pd.DataFrame()
    labels = {rung.published: rung.label for rung in sweep.rungs if rung.published}
    return _pivot(sweep.manifest.published, metric, tuple(labels)).rename(index=labels)


@cache
def _pivot(name: str, metric: str, methods: tuple[str, ...]) -> pd.DataFrame:
    """What a published table prints of some methods; asked for by every table of a report."""
    table = published(name)
    table = table[(table["metric"] == metric) & table["method"].isin(methods)]
    return table.pivot(index="method", columns=["dataset", "backbone"], values="value")


def has_spread(sweep: Sweep) -> bool:
    """Whether a rung has two trials that are done: planned seeds alone are no spread."""
    return max(_done(sweep), default=0) > 1


def spread_over(sweep: Sweep) -> str:
    """What the spread is over, in words."""
    networks, heads = len(sweep.manifest.network_seeds), len(sweep.manifest.head_seeds)
    if _is_one_seed(sweep):
        return "1 seed: no spread"
    if sweep.manifest.paired_seeds:
        return f"{networks} seeds, network and head vary together"
    if networks == 1:
        return f"{heads} head seeds on 1 network: the spread is that of the head alone"
    if heads == 1:
        return f"{networks} networks with 1 head seed each: the spread is that of the network"
    return f"{networks} networks x {heads} head seeds: both vary"


def mean_over(sweep: Sweep) -> str:
    """What a mean and its spread are over, in words, e.g. ``mean ± sd over 5 seeds, ...``."""
    numbers = _done(sweep)
    if not numbers:
        return "no trial is done"
    if not has_spread(sweep):
        one = "n = 1 trial of each rung: no spread"
        return spread_over(sweep) if _is_one_seed(sweep) else one
    return f"mean ± sd over {spread_over(sweep)}; {trials_of_each(numbers)}"


def _is_one_seed(sweep: Sweep) -> bool:
    return len(sweep.manifest.network_seeds) == len(sweep.manifest.head_seeds) == 1


def _done(sweep: Sweep) -> list[int]:
    """How many trials of each rung are done, of those that have one."""
    return [len(rows) for index in sweep.labels if len(rows := sweep.of_rung(index))]


def trials_behind(sweep: Sweep, hashes: Iterable[str]) -> str:
    """``trials_of_each`` of the trials whose hashes are given."""
    return trials_of_each(sweep.numbers(hashes) or [0])


def trials_of_each(numbers: Collection[int]) -> str:
    """How many trials stand behind what is shown, e.g. ``n = 3 to 5 trials of each rung``.

    Args:
        numbers: of the trials of each rung that is shown, at least one.
    """
    least, most = min(numbers), max(numbers)
    span = f"{most}" if least == most else f"{least} to {most}"
    return f"n = {span} trial{'s' * (most > 1)} of each rung"
