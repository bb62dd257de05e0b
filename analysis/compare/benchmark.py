"""Compare methods over many experiments by proper scores, with the definitions of CalArena.

An experiment is a column of ``gather``: a data set and a model. CalArena: arXiv 2605.30188.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from analysis.compare.gather import KEY, Flagged, Matched, average_seeds, collect
from analysis.compare.hypotheses import Friedman, friedman
from analysis.compare.significance import friedman_sentence
from analysis.load import load
from analysis.published import BASE_OF_FILES
from analysis.tables.latex import label_of
from analysis.tables.render import View, with_none
from analysis.tables.table import BEST, Table
from analysis.text import Cell, full_stops, ranked, records_of
from analysis.tidy import flags_of_methods, tied
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.folders import has_result_files
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import CONTROL, is_never_best
from tune_calib.text import format_count, nearest

Unit = Literal["datasets", "experiments"]

SCORES = ("nll", "brier")
DRAWS = 1000
SEED = 0
_ENDS = (2.5, 97.5)


@dataclass(frozen=True, eq=False)
class Benchmark(Flagged):
    """Scores of methods over experiments: a row per method, a column per experiment."""

    base: str  # method that improvements are measured from
    unit: Unit  # what intervals generalise to
    values: dict[str, pd.DataFrame]  # by metric; NaN without a number
    is_run: pd.DataFrame  # whether a method was run on an experiment; others are left out by name
    flags: dict[str, list[str]]
    notes: tuple[str, ...]

    @property
    def datasets(self) -> "pd.Index[str]":
        return self.is_run.columns.get_level_values("dataset")

    def win_rates(self, metric: str) -> pd.DataFrame:
        """Return the share of the other methods with a larger score; NaN for a method not run.

        A method that was run and has no number wins against none, and none wins against it.
        """
        values, rates = tied(self.values[metric]), {}
        rivals = self.is_run.sum() - 1
        for method in values.index:
            wins = (values.drop(index=method) > values.loc[method]).sum()
            rates[method] = (wins / rivals).where(self.is_run.loc[method])
        return pd.DataFrame(rates).T

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Return a row per method, best mean rank by log loss first.

        Columns are experiments and, for each metric, METRIC_rank, METRIC_win_rate with _low and
        _high, and METRIC_improvement with half the width of its interval in _half.
        """
        columns: dict[str, Any] = {"experiments": self.is_run.sum(axis="columns")}
        # What is drawn with replacement.
        groups: Any = self.datasets
        if self.unit == "experiments":
            groups = np.arange(len(groups))
        for metric, values in self.values.items():
            rates = self.win_rates(metric)
            gains = values.loc[self.base] - values
            counts = gains.notna().T.groupby(groups).any().sum()
            low, high = np.nanpercentile(self._draw(rates, groups), _ENDS, axis=0)
            columns |= {
                f"{metric}_rank": tied(values).rank().mean(axis="columns"),
                f"{metric}_win_rate": rates.mean(axis="columns"),
                f"{metric}_win_rate_low": low,
                f"{metric}_win_rate_high": high,
                f"{metric}_improvement": gains.mean(axis="columns"),
                f"{metric}_improvement_half": 1.96 * gains.std(axis="columns") / np.sqrt(counts),
            }
        return pd.DataFrame(columns).sort_values(f"{SCORES[0]}_rank", kind="stable")

    def _draw(self, rates: pd.DataFrame, groups: Any) -> Any:
        """Return the mean rates of each method in draws of data sets or experiments, (D, M)."""
        sums = rates.T.groupby(groups).sum().to_numpy()
        counts = rates.notna().T.groupby(groups).sum().to_numpy()
        # The same draws for all methods: how often each group is drawn.
        chance, size = np.random.default_rng(SEED), len(sums)
        drawn = chance.multinomial(size, np.full(size, 1 / size), DRAWS)
        with np.errstate(invalid="ignore"):  # a draw may lack all experiments of a method
            return (drawn @ sums) / (drawn @ counts)

    @cached_property
    def friedman(self) -> Friedman:
        controls = [method for method, cells in self.flags.items() if CONTROL in cells[0]]
        values = self.values[SCORES[0]].dropna().drop(index=controls, errors="ignore")
        left_out = [method for method in self.is_run.index if method not in values.index]
        result = friedman(Matched(SCORES[0], "experiment", values.T))
        notes = list(result.notes)
        if left_out:
            notes.insert(0, f"left out, a control or without some numbers: {', '.join(left_out)}")
        if not result.statement and self.datasets.nunique() < len(self.datasets):
            notes.insert(0, "models of one data set share its samples, so this p is too small")
        return replace(result, notes=tuple(notes))


def benchmark(
    folders: Sequence[AnyPath], baseline: str | None = None, unit: str = "datasets"
) -> Benchmark:
    if unit not in get_args(Unit):
        raise UserError(f"unknown `unit` {unit!r}; known: {', '.join(get_args(Unit))}")
    values, notes = {}, []
    flags: dict[str, list[str]] = {}
    for metric in SCORES:
        collected = collect(folders, None, metric)
        rows = collected.frame[collected.frame["metric"] == metric]
        rows = rows.assign(method=rows["method"].astype(str))
        counts = rows.groupby(["method", *KEY], sort=False).size().unstack(KEY)
        values[metric], _, _, seed_notes = average_seeds(rows, metric)
        flags |= flags_of_methods(rows)
        notes += seed_notes
        notes += [note for note in collected.notes if note.startswith("INCOMPLETE")]
    methods, experiments = values[SCORES[0]].index, values[SCORES[0]].columns
    for metric, scores in values.items():
        values[metric] = scores.reindex(index=methods, columns=experiments)
    is_run = counts.reindex(index=methods, columns=experiments).notna()
    baseline = baseline or _find_base(folders)
    if baseline not in methods:
        hint = nearest(baseline, list(methods))
        raise UserError(f"no method {baseline!r} in these results{hint}", "baseline")
    if len(methods) < 2:
        raise UserError("a benchmark needs at least two methods")
    resampled: Unit = "datasets"
    datasets, models = map(experiments.get_level_values, ("dataset", "backbone"))
    if unit == "experiments" or datasets.nunique() == 1 or "" in models:
        resampled = "experiments"  # one data set has no spread; the caption says what is drawn
    if "" in models:  # as of an import named without a slash
        notes.append(
            "Some imports may share a data set, which only names like DATASET/MODEL tell, so that "
            "experiments are counted and drawn"
        )
    return Benchmark(baseline, resampled, values, is_run, flags, tuple(dict.fromkeys(notes)))


def _find_base(folders: Sequence[AnyPath]) -> str:
    bases = set()
    for folder in folders:
        if has_result_files(folder):
            bases.add(BASE_OF_FILES)
        else:
            run = load(folder)
            bases.add(run.bases[run.rungs[0].index].label)
    if len(bases) > 1:
        names = ", ".join(sorted(bases))
        raise UserError(f"the folders have different bases ({names}); name one by `baseline`")
    return bases.pop()


def view(result: Benchmark) -> View:
    summary = result.summary
    columns = {"method": [Cell(result.label(str(method))) for method in summary.index]}
    for metric, values in result.values.items():
        may_win = values.loc[summary.index].notna().all(axis="columns")
        for method, cells in result.flags.items():
            may_win[method] &= not is_never_best(cells)
        columns |= _columns(summary, metric, may_win)
    columns["experiments"] = list(map(Cell.of, summary["experiments"]))
    on_datasets = f" on {format_count(len(set(result.datasets)), 'data set')}"
    if "" in result.is_run.columns.get_level_values("backbone"):
        on_datasets = ""
    unit = "data sets" if result.unit == "datasets" else "experiments"
    lines = [
        f"{format_count(result.is_run.shape[1], 'experiment')}{on_datasets}, test split; best mean "
        f"rank by NLL first. {BEST}",
        "Win rate: share of the other methods with a larger score, mean over experiments. "
        f"Intervals: 95 %, bootstrap over {unit}.",
        f"Improvement: score of {result.base} minus that of the method, mean over experiments, "
        f"± 1.96 standard errors over {unit}.",
        *full_stops([friedman_sentence(result.friedman), *result.friedman.notes]),
        *full_stops([*_describe_partial(result), *result.legend(), *result.notes]),
    ]
    table = Table(
        "benchmark", "\n".join(lines), records_of(columns), label=label_of("benchmark", "nll"),
        first=["NLL mean rank", "NLL win rate (%)", "NLL improvement"], is_main=True,
    )  # fmt: skip
    frame = summary.rename_axis("method").reset_index()
    return View([table], with_none(frame).to_dict("records"), frame, result.notes)


def _columns(
    summary: pd.DataFrame, metric: str, may_win: "pd.Series[bool]"
) -> dict[str, list[Cell]]:
    title, name = METRICS[metric].title, f"{metric}_{{}}".format
    ranks = [Cell.formatted(value, ".2f") for value in summary[name("rank")]]
    rates, low, high = (100 * summary[name(f"win_rate{end}")] for end in ("", "_low", "_high"))
    percent = [Cell.formatted(value, ".1f") for value in rates]
    ends = zip(low, high, strict=True)
    number = partial(Cell.number, metric, signed=True)
    gains = list(map(number, summary[name("improvement")], summary[name("improvement_half")]))
    return {
        f"{title} mean rank": ranked(ranks, "min", may_win),
        f"{title} win rate (%)": ranked(percent, "max", may_win),
        f"{title} 95 % interval": [Cell(f"{least:.1f} to {most:.1f}") for least, most in ends],
        f"{title} improvement": ranked(gains, "max", may_win),
    }


def _describe_partial(result: Benchmark) -> list[str]:
    lines = []
    counts = result.is_run.sum(axis="columns")
    if names := _listed(counts[counts < counts.max()]):
        lines.append(f"run on fewer experiments, so that their means are over others: {names}")
    for metric, values in result.values.items():
        lacking = (values.isna() & result.is_run).sum(axis="columns")
        if names := _listed(lacking[lacking > 0]):
            lines.append(
                f"without {METRICS[metric].title} in some experiments, which count in win rates as "
                f"losses and in ranks and improvements not at all: {names}"
            )
    return lines


def _listed(counts: "pd.Series[int]") -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


def tidy_scores(result: Benchmark) -> pd.DataFrame:
    stacked = (scores.stack(KEY, future_stack=True) for scores in result.values.values())
    return pd.DataFrame(dict(zip(result.values, stacked, strict=True))).reset_index()
