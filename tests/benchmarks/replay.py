"""Regret of the rules of searches on tabulated points, and the decisions between rules.

python -m tests.benchmarks.replay TABLE.parquet [--metric nll] [--repetitions 50] [--budgets 12 24]

Every rule searches with its budget and each seed of the sampler, by both answers, with the same
program as any search. The report is continued by the same command. The regret of a search is the
metric of its chosen point without noise, minus that of the best point of the table within the
guard: on ``select`` by the table, and on ``test`` by ``TABLE-test.parquet``, read at the end only.
"""

import argparse
import contextlib
import io
import itertools
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter
from scipy.stats import wilcoxon
from statsmodels.stats.multitest import multipletests

from tune_calib import search
from tune_calib.results.manifests import SearchOutcome
from tune_calib.results.tables import read_table
from tune_calib.spec.metrics import METRICS
from tune_calib.tuning.work.replay import Forest, Table, build_inputs, encode, load_table, restore

RULES: Mapping[str, Mapping[str, Any]] = {
    "tpe": {},
    "random": {"sampler": "random"},
    "tpe, batches of 2": {"population": 2},  # heads only; the default is 8
    "gp": {"sampler": "gp"},
    "gp, batches of 2": {"sampler": "gp", "population": 2},
    "qmc": {"sampler": "qmc"},
    "race": {"race": True},
    "halving": {"halving": 3},  # networks only
    "tpe, 5 seeds": {"seeds": 5},
    "race, 5 seeds": {"seeds": 5, "race": True},
}
REFERENCES = {"race, 5 seeds": "tpe, 5 seeds"}  # TPE with two seeds for all other rules
BUDGETS = (12, 24, 64, 200)
ANSWERS = ("surrogate", "nearest")
GUARD = 0.01
BRACKET = 9  # suggestions that halving with three rungs draws together
KEY = ["answer", "budget", "rule", "repetition"]


class Truth:
    """The values of points without noise, on ``select`` and on ``test``."""

    def __init__(self, path: Path, metric: str) -> None:
        self.table: Table = load_table(str(path))
        table, lengths = self.table, self.table.record.epochs
        self.longest, self.names = lengths[-1], [metric, "accuracy"]
        tests = pd.read_parquet(path.with_name(f"{path.stem}-test.parquet"))
        tests = tests[tests["epochs"] == self.longest].groupby("point").mean(numeric_only=True)
        of_test = tests.loc[table.numbers, [f"test/{name}" for name in self.names]].to_numpy()
        self.test_forest = Forest(table.encoded, np.log(of_test))
        every = build_inputs(table.encoded, [self.longest] * len(table.points))
        self.columns = [table.metrics.index(name) for name in self.names]
        means = restore(table.curves[:, -1].mean(axis=1), table.metrics)[:, self.columns, -1]
        self.by_answer = {
            "surrogate": (self.select_of(every), np.exp(self.test_forest.predict(table.encoded))),
            "nearest": (means, of_test),
        }
        baseline = [row for row in table.record.baseline if row["epochs"] == self.longest]
        self.baseline = float(np.mean([row["accuracy"] for row in baseline]))
        self.sign = 1 if METRICS[metric].is_less_better else -1

    def select_of(self, inputs: np.ndarray) -> np.ndarray:
        """Return the values on ``select`` at the end of the longest schedule, (N, 2)."""
        table = self.table
        shape = (len(inputs), len(table.metrics), table.curves.shape[-1])
        curves = table.forest.predict(inputs)[:, :-1].reshape(shape)
        values: np.ndarray = restore(curves, table.metrics)[:, self.columns, -1]
        return values

    def find_best(self, answer: str) -> tuple[float, float]:
        """Return the best values on ``select`` and ``test`` of points within the guard."""
        on_select, on_test = self.by_answer[answer]
        is_within = self.baseline - on_select[:, 1] <= GUARD
        return tuple(float((self.sign * v[is_within, 0]).min()) for v in (on_select, on_test))  # type: ignore[return-value]

    def measure(self, answer: str, points: list[dict[str, Any]], chosen: int) -> dict[str, float]:
        """Return the regret of the chosen one of the suggested points, and its accuracy drop."""
        table = self.table
        encoded = encode(table.record.space, points)
        if answer == "surrogate":
            point = encoded[[chosen]]
            select = self.select_of(build_inputs(point, [self.longest]))[0]
            test = np.exp(self.test_forest.predict(point))[0]
        else:
            used: list[int] = []
            for row in encoded[: chosen + 1]:
                order = table.find_nearest(row, len(used) + 1).tolist()
                used.append(next(index for index in order if index not in used))
            select, test = (values[used[-1]] for values in self.by_answer[answer])
        best_select, best_test = self.find_best(answer)
        return {
            "select": self.sign * float(select[0]) - best_select,
            "test": self.sign * float(test[0]) - best_test,
            "drop": self.baseline - float(select[1]),
        }


def replay_search(
    truth: Truth, metric: str, answer: str, rule: str, repetition: int, budgets: Iterable[int]
) -> Iterator[dict[str, Any]]:
    """Yield the row of one search at each budget; it continues from one to the next."""
    options: dict[str, Any] = {"seeds": 2, "replay_answer": answer, **RULES[rule]}
    started = time.process_time()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for budget in sorted(budgets):
            with contextlib.redirect_stderr(io.StringIO()):
                opened = search(
                    truth.table.record.method, replay=truth.table.path, trials=budget,
                    metric=metric, guard=GUARD, sampler_seed=repetition,
                    out=f"{folder}/run", **options,
                )  # fmt: skip
            outcome = SearchOutcome.read(opened.out)
            trials = read_table(opened.out, "trials", columns=["rung", "epoch"]).to_pandas()
            row = {"answer": answer, "budget": budget, "rule": rule, "repetition": repetition}
            row |= {"epochs": int(trials.loc[trials["rung"] >= 0, "epoch"].sum())}
            row |= {"seconds": time.process_time() - started}
            if outcome.chosen is not None:
                points = [record.point for record in outcome.suggestions]
                row |= truth.measure(answer, points, outcome.chosen)
            yield row


def decide(rows: pd.DataFrame) -> pd.DataFrame:
    """Compare each rule with TPE by its regret on test, paired by repetition, with Holm."""
    decisions = []
    for (answer, budget), part in rows.groupby(["answer", "budget"]):
        wide = part.pivot(index="repetition", columns="rule", values="test")
        epochs = part.pivot(index="repetition", columns="rule", values="epochs")
        for rule in wide.columns.drop(["tpe", "tpe, 5 seeds"], errors="ignore"):
            reference = REFERENCES.get(rule, "tpe")
            pairs = wide[[rule, reference]].dropna()
            differences = (pairs[rule] - pairs[reference]).round(12)
            p = wilcoxon(differences).pvalue if differences.any() else 1.0
            decisions.append(
                {"answer": answer, "budget": budget, "rule": rule, "pairs": len(pairs),
                 "median": pairs[rule].median(), "median_tpe": pairs[reference].median(), "p": p,
                 "mean": pairs[rule].mean(), "mean_tpe": pairs[reference].mean(),
                 "share_of_epochs": (epochs[rule] / epochs[reference]).median(),
                 "share_better": (differences < 0).mean(), "share_worse": (differences > 0).mean()}
            )  # fmt: skip
    table = pd.DataFrame(decisions)
    table["p_holm"] = table.groupby("answer")["p"].transform(correct_by_holm)
    is_decided, is_better = table["p_holm"] < 0.05, table["share_better"] > table["share_worse"]
    table["decision"] = np.where(is_decided, np.where(is_better, "better", "worse"), "open")
    return table


def correct_by_holm(p: pd.Series) -> Any:
    """Correct the p-values of all rules and budgets of an answer."""
    return multipletests(p, method="holm")[1]


def draw(rows: pd.DataFrame, metric: str, title: str, path: Path) -> None:
    """Draw the median and interquartile range of the regret against the trained epochs."""
    plt.rcParams.update({"font.size": 7})
    figure, axes = plt.subplots(2, 2, figsize=(120 / 25.4, 100 / 25.4), sharex=True, sharey="row")
    for (row, split), (column, answer) in itertools.product(
        enumerate(("select", "test")), enumerate(ANSWERS)
    ):
        axis = axes[row, column]
        for number, rule in enumerate(RULES):
            part = rows[(rows["rule"] == rule) & (rows["answer"] == answer)]
            if part.empty:
                continue
            groups = part.groupby("budget")
            epochs = groups["epochs"].median() * 1.03 ** (number - (len(RULES) - 1) / 2)
            low, middle, high = (groups[split].quantile(q) for q in (0.25, 0.5, 0.75))
            axis.errorbar(
                epochs, middle, [middle - low, high - middle], label=rule, lw=0.8, ms=3,
                marker="osD^v<>ph*"[number], color=f"C{number}", elinewidth=0.6, capsize=1.5,
            )  # fmt: skip
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_formatter(NullFormatter())
        if row == 0:
            axis.set_title(answer, fontsize=7)
        else:
            axis.set_xlabel("trained epochs")
        if column == 0:
            axis.set_ylabel(f"regret on {split}\n({METRICS[metric].title})")
    figure.suptitle(title, fontsize=7)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=4, loc="outside lower center", frameon=False)
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=300)
    plt.close(figure)


def main() -> None:
    """Complete the searches of a table, and write their rows, the figure and the decisions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--metric", default="nll")
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--budgets", type=int, nargs="+", default=list(BUDGETS))
    parser.add_argument("--rules", nargs="+", default=list(RULES))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or options.table.parent
    stem = out / f"{options.table.stem}-replay-{options.metric}"
    path = Path(f"{stem}.parquet")
    truth = Truth(options.table, options.metric)
    rows: list[Any] = pd.read_parquet(path).to_dict("records") if path.exists() else []
    finished = {tuple(row[name] for name in KEY) for row in rows}
    # Repetitions are the outermost loop, so that a report that was interrupted is balanced.
    for repetition in range(options.repetitions):
        for answer, rule in itertools.product(ANSWERS, options.rules):
            most = max(options.budgets)
            if answer == "nearest":  # which answers with each point once
                most = len(truth.table.points) - (BRACKET - 1 if rule == "halving" else 0)
            budgets = [budget for budget in options.budgets if budget <= most]
            keys = {(answer, budget, rule, repetition) for budget in budgets}
            if not keys <= finished:
                cell = (answer, rule, repetition)
                new_rows = list(replay_search(truth, options.metric, *cell, budgets))
                rows = [row for row in rows if tuple(row[name] for name in KEY) not in keys]
                rows.extend(new_rows)
        frame = pd.DataFrame(rows).sort_values(KEY, ignore_index=True)
        frame.to_parquet(path, compression="zstd", index=False)
        print(f"{repetition + 1} repetitions", flush=True)
    frame = pd.DataFrame(rows)
    decisions = decide(frame)
    decisions.to_csv(f"{stem}.csv", index=False)
    print(decisions.to_string(float_format="{:.4g}".format))
    draw(frame, options.metric, options.table.stem, Path(f"{stem}.pdf"))
    draw(frame, options.metric, options.table.stem, Path(f"{stem}.png"))


if __name__ == "__main__":
    main()
