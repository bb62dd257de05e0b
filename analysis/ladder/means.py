"""Compute the mean, spread and changes of each rung, and describe the seeds behind them."""

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import pandas as pd

from analysis.compare.intervals import noise_floors
from analysis.load import Run, cached_per_run
from analysis.published import published
from analysis.text import NOTHING, Cell, format_counts, rounded
from analysis.tidy import column_in, match_seeds, planned_trials, repeat_pools
from tune_calib.spec.metrics import AT_VALUE, METRICS, column
from tune_calib.spec.names import count_flags, is_never_best
from tune_calib.text import format_count

_TABLE_METRICS = ("accuracy", "ece", "o_ece", "u_ece", "aece", "mce", "nll", "brier")


def usual_metrics(columns: Iterable[object]) -> tuple[str, ...]:
    present = set(columns)
    of_plugins = filter(lambda name: METRICS[name].compute is not None, METRICS)
    return (*_TABLE_METRICS, *(name for name in of_plugins if column("test", name) in present))


def ladder_table(
    run: Run, metrics: Sequence[str] | None = None, split: str = "test"
) -> pd.DataFrame:
    """Compute the mean and spread of every rung and metric over finished trials, as fractions.

    One row per (rung, metric): rung, label, kind, metric, n, mean, sd (ddof 1), change_before and
    change_base (differences of means over the seeds of both, from the previous rung of a step and
    from ``Run.bases``), statuses, flags, and ``published <dataset> <arch>`` for each column of the
    paper's table.
    """
    rows = []
    if metrics is None:
        metrics = run.shown or usual_metrics(run.trials)
    for metric in metrics:
        previous = None
        printed = published_columns(run, metric)
        name = column_in(run.trials, split, metric)
        numbers: dict[int, pd.Series[float]] = {}
        for rung in run.rungs:
            values = run.of_rung(rung.index).get(name, pd.Series(dtype=float))
            numbers[rung.index] = values.dropna().astype(float)
        matched = match_values(run, metric, split)
        for rung in run.rungs:
            base, values = run.bases[rung.index].index, numbers[rung.index]
            change_before = change_base = math.nan
            if rung.kind == "step" and previous is not None:
                change_before = _change(matched, numbers, previous, rung.index)
            if rung.index != base:
                change_base = _change(matched, numbers, base, rung.index)
            flags = count_flags(run.flags(rung.index)).items()
            row = {
                "rung": rung.index, "label": rung.label, "kind": rung.kind, "metric": metric,
                "n": len(values), "mean": values.mean(), "sd": values.std(ddof=1),
                "change_before": change_before, "change_base": change_base,
                "statuses": format_counts(run.counts(rung.index)),
                "flags": ", ".join(f"{flag.name} ({n})" for flag, n in flags),
            }  # fmt: skip
            for key in printed.columns:
                row[f"published {key[0]} {key[1]}"] = printed[key].get(rung.label)
            rows.append(row)
            previous = rung.index
    return pd.DataFrame(rows)


@cached_per_run
def match_values(run: Run, metric: str, split: str = "test") -> pd.DataFrame:
    """Return the values of each rung, in a column by index, with a row per combination of seeds."""
    rows = planned_trials(run)
    values = rows.get(column_in(rows, split, metric), pd.Series(dtype=float))
    matched = match_seeds(rows.assign(value=values.astype(float)))
    matched = matched.reindex(columns=list(run.labels.values()))  # an import may lack a rung
    return repeat_pools(run, matched).set_axis(list(run.labels), axis="columns")


def _change(
    matched: pd.DataFrame, numbers: "dict[int, pd.Series[float]]", first: int, second: int
) -> float:
    pairs = matched[[first, second]].dropna()
    if len(pairs) == len(matched):  # without repetitions of a value
        return float(numbers[second].mean() - numbers[first].mean())
    return float(pairs[second].mean() - pairs[first].mean())


def nll_gains(run: Run) -> list[float]:
    """Compute the reduction of the NLL by each rung, as a share of what calibration can achieve.

    It is (NLL of the base - NLL) / (calibration part of the base's NLL), of means over trials. The
    calibration part is what the best temperature removes (``metrics.refinement``; Berta et al.,
    arXiv 2501.19195). So 1 equals a base with the best temperature, more takes a better refinement,
    and less than 0 is worse than the base. NaN for the base itself, and where its calibration part
    is printed as 0.
    """
    changes = ladder_table(run, ["nll"]).set_index("rung")["change_base"].astype(float)
    means = ladder_table(run, ["nll_calibration"]).set_index("rung")["mean"]
    matched, parts = match_values(run, "nll"), match_values(run, "nll_calibration")
    gains = []
    for rung in run.rungs:
        base = run.bases[rung.index].index
        part = float(means[base])
        has_both = matched[[rung.index, base]].notna().all(axis="columns")
        if not has_both.all():
            part = float(parts.loc[has_both, base].mean())
        is_some = not math.isnan(part) and rounded("nll", part) > 0
        gains.append(-float(changes[rung.index]) / part if is_some else math.nan)
    return gains


@cached_per_run
def may_win(run: Run, metric: str, split: str = "test") -> "pd.Series[bool]":
    """Return whether the mean of each rung, by its label, may be marked as the best.

    No ECE below the noise floor may, which chance alone explains.
    """
    is_allowed = is_comparable(run, metric, split)
    if column(split, metric) == "test/ece":
        means = ladder_table(run, [metric], split).set_index("label")["mean"]
        is_allowed &= ~(means < noise_floors(run))
    return is_allowed.astype(bool)


def is_comparable(run: Run, metric: str, split: str = "test") -> "pd.Series[bool]":
    """Return whether each rung, by its label, has every seed and no flag of ``NEVER_BEST``."""
    has_value = match_values(run, metric, split).notna()
    is_allowed = has_value[has_value.any(axis="columns")].all()
    is_allowed &= np.array([not is_never_best(run.flags(index)) for index in run.labels])
    is_allowed.index = pd.Index(run.labels.values())
    return is_allowed.astype(bool)


@cached_per_run
def published_columns(run: Run, metric: str = "ece") -> pd.DataFrame:
    """Return the published numbers by rung label, with a column per (dataset, backbone)."""
    if not run.manifest.published:
        return pd.DataFrame()
    labels = {rung.published: rung.label for rung in run.rungs if rung.published}
    table = published(run.manifest.published)
    table = table[(table["metric"] == metric) & table["method"].isin(list(labels))]
    numbers = table.pivot(index="method", columns=["dataset", "backbone"], values="value")
    return numbers.rename(index=labels)


def spread_over(run: Run) -> str:
    networks, heads = len(run.manifest.network_seeds), len(run.manifest.head_seeds)
    is_paired = run.manifest.paired_seeds
    if splits := len(run.manifest.split_seeds):
        kind = "of the calibration data" if run.has_one_network else "of the data"
        text = f"{format_count(splits, 'split')} {kind}"
        if networks == heads == 1:
            return text
        if heads > 1 and not is_paired:
            return f"{text} x {networks} x {heads} seeds of networks and heads"
        return f"{text} x {networks} network seeds"
    if networks == heads == 1:
        return "1 seed: no spread"
    if is_paired:
        return f"{networks} seeds of network and head"
    if networks == 1:
        return f"{heads} head seeds on 1 network: the spread is that of the head alone"
    if heads == 1:
        return f"{networks} networks with 1 head seed each: the spread is that of the network"
    return f"{networks} networks x {heads} head seeds: both vary"


def mean_over(run: Run) -> str:
    """Describe mean and spread, and the number of trials unless each rung has one per seed."""
    numbers = run.numbers(run.done["spec_hash"])
    if not numbers:
        return "no finished trial"
    if max(numbers) > 1:
        text = f"mean ± sd over {spread_over(run)}"
        planned = [len(run.manifest.network_seeds)] * len(run.rungs)
        if run.manifest.paired_seeds and numbers == planned:
            return text
        return f"{text}; {trials_of_each(run, numbers)}"
    is_one_seed = len(run.manifest.network_seeds) == len(run.manifest.head_seeds) == 1
    is_one_seed &= not run.manifest.split_seeds
    return spread_over(run) if is_one_seed else f"n = 1 trial of each {run.row_name}: no spread"


def trials_behind(run: Run, hashes: Iterable[str]) -> str:
    return trials_of_each(run, run.numbers(hashes) or [0])


def trials_of_each(run: Run, numbers: Collection[int]) -> str:
    """Describe the numbers of trials of the rungs, e.g. ``n = 3 to 5 trials of each rung``."""
    least, most = min(numbers), max(numbers)
    span = f"{most}" if least == most else f"{least} to {most}"
    noun = "trials" if most > 1 else "trial"
    return f"n = {span} {noun} of each {run.row_name}"


def interval_cell(run: Run, rung: int, metric: str, mean: float) -> Cell:
    """Return the cell of a mean and the averaged ends of its intervals: ``1.20 [0.80, 1.43]``."""
    if math.isnan(mean):
        return NOTHING
    wanted = pd.MultiIndex.from_product([run.of_rung(rung)["spec_hash"], [metric]])
    # A mean over some of the trials would stand next to one over all of them.
    low, high = run.intervals.reindex(wanted)[["lower", "upper"]].mean(skipna=False)
    formatted = METRICS[metric].format
    span = "" if math.isnan(low) else f" [{formatted(low)}, {formatted(high)}]"
    return Cell(f"{formatted(mean)}{span}", rounded(metric, mean))


def interval_note(run: Run) -> str:
    draws = " or ".join(map(str, sorted(set(run.intervals["resamples"]))))
    drawn = "groups of test samples" if run.has_groups else "test samples"
    return (
        f"Brackets: 95 % intervals over the {drawn} ({draws} bootstrap draws) for fixed "
        f"classifiers, with their ends averaged over the trials of a {run.row_name}. For ECE and "
        f"other distances, the bias due to chance is subtracted. {AT_VALUE}"
    )
