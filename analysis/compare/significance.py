"""Tables of the spread of methods, of a declared test, and of how two methods interact."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.decision import Decision, decide_sums, decisions_table
from analysis.compare.gather import Matched, over_seeds
from analysis.compare.hypotheses import MIN_PAIRS, PAIRED_TESTS, Friedman, compare, friedman
from analysis.compare.intervals import ALPHA, t_interval
from analysis.compare.network_check import compute_network_check
from analysis.load import Run
from analysis.tables.latex import label_of
from analysis.tables.render import View, json_records
from analysis.tables.table import Table
from analysis.text import LEAST_P, NOTHING, Cell, Record, full_stops, records_of
from analysis.tidy import pooled_seeds
from tune_calib.errors import UserError
from tune_calib.spec.methods import METHODS
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.reproduction import Comparison

# Name, interval and estimate of each test.
_TESTS = {
    "wilcoxon": ("Wilcoxon's signed rank test", "exact signed rank", "difference (Hodges-Lehmann)"),
    "t": ("paired t test", "Student's", "mean difference"),
}


@dataclass(frozen=True, eq=False)
class DeclaredTest:
    """A declared test and its result: comparisons with a baseline, or Friedman's test."""

    matched: Matched
    test: str
    baseline: str | None
    comparisons: pd.DataFrame = field(default_factory=pd.DataFrame)  # empty for Friedman's test
    friedman: Friedman | None = None
    decisions: Sequence[Decision] = ()  # of methods against the baseline, in one run


def judge(matched: Matched, test: str, baseline: str | None = None) -> DeclaredTest:
    if test not in (*PAIRED_TESTS, "friedman"):
        raise UserError(f"unknown `test` {test!r}; known: {', '.join(PAIRED_TESTS)}, friedman")
    if matched.values.isna().all(axis=None):
        raise UserError(f"no method has {METRICS[matched.metric].title} in these results")
    if test == "friedman":
        return DeclaredTest(matched, test, None, friedman=friedman(matched))
    if baseline is None:
        methods = ", ".join(map(str, matched.values))
        raise UserError(f"`test` {test} needs a `baseline`, one of {methods}")
    return DeclaredTest(matched, test, baseline, compare(matched, baseline, test))


def are_rivals(run: Run) -> bool:
    kinds = {rung.kind for rung in run.rungs}
    return run.manifest.design is None and kinds <= {"base", "variant"}


def for_report(run: Run, test: str) -> list[DeclaredTest]:
    if len(run.rungs) < 2 or not are_rivals(run):
        return []
    matched = over_seeds(run, "ece")
    # A pool covers several blocks; decisions on pools have a table of their own.
    matched = replace(matched, values=matched.values.drop(columns=list(pooled_seeds(run))))
    if matched.values.notna().any().sum() < 2:
        return []
    if run.base_note:
        matched = replace(matched, notes=(f"Baseline: {run.base_note}", *matched.notes))
    verdict = judge(matched, test, run.bases[run.rungs[0].index].label)
    return [add_decisions(run, verdict), judge(matched, "friedman")]


def add_decisions(
    run: Run, verdict: DeclaredTest, margin: float | None = None, split: str = "test"
) -> DeclaredTest:
    if verdict.baseline is None:
        return verdict
    name = column(split, verdict.matched.metric)
    methods = verdict.comparisons["method"]
    comparisons = [Comparison(method, (verdict.baseline,), name) for method in methods]
    return replace(verdict, decisions=decide_sums(run, comparisons, margin))


def spreads_of(matched: Matched) -> pd.DataFrame:
    """Return n, mean, sd and Student's interval (from ``MIN_PAIRS`` blocks on) of each method."""
    bounds = METRICS[matched.metric].lower, METRICS[matched.metric].upper
    rows = []
    for method, cells in matched.values.items():
        values = cells.dropna()
        if method in matched.fixed:
            values = values[:1]  # one trial is repeated in every block: its copies have no spread
        low = high = np.nan
        if len(values) >= MIN_PAIRS:
            low, high = np.clip(t_interval(values.to_numpy()), *bounds)
        # Of the array, whose last bits differ from those of pandas.
        mean = values.to_numpy().mean() if len(values) else np.nan
        sd = values.to_numpy().std(ddof=1) if len(values) > 1 else np.nan
        rows.append((method, len(values), mean, sd, low, high))
    return pd.DataFrame(rows, columns=["method", "n", "mean", "sd", "low", "high"])


def view(verdict: DeclaredTest) -> View:
    metric, result, matched = verdict.matched.metric, verdict.friedman, verdict.matched
    label, head = label_of("significance", metric), METRICS[metric].head
    cell, span = partial(Cell.number, metric), partial(Cell.span, metric)
    spreads = spreads_of(matched)
    columns = {
        "method": map(Cell, map(matched.label, spreads["method"])),
        "n": map(Cell.of, spreads["n"]),
        head: map(cell, spreads["mean"]),
        "sd": map(cell, spreads["sd"]),
        "95 % interval of the mean (t)": map(span, spreads["low"], spreads["high"]),
    }
    caption = (
        f"{head}: mean and spread of each method over blocks, for the same test samples. Neither "
        "spread nor interval is that of a difference, of other test samples or of other networks."
    )
    spread = Table("spread", caption, records_of(columns), label=f"{label}-spread")
    if result is None:
        key, first, table = "comparisons", _TESTS[verdict.test][2], verdict.comparisons
        columns = {
            f"against {verdict.baseline}": map(Cell, map(matched.label, table["method"])),
            "pairs": map(Cell.of, table["pairs"]),
            "better in": map(Cell.of, table["better"]),
            first: map(partial(cell, signed=True), table["difference"]),
            "95 % interval": map(partial(span, signed=True), table["low"], table["high"]),
            # A statement says why there is no p.
            "p": map(Cell.p, table["p"], table["statement"]),
            "p (Holm)": map(Cell.p, table["p_holm"]),
        }
        records = records_of(columns)
        # Both frames have low and high, here of the difference.
        numbers = table.rename(columns={"low": "low_diff", "high": "high_diff"})
    else:
        key, first, records = "friedman", "", _ranks(result)
        numbers = result.ranks.rename("mean_rank").rename_axis("method").reset_index()
    caption = f"{head}. " + "\n".join(full_stops(_sentences(verdict)))
    heads = ["p", "p (Holm)", first, "95 % interval", "pairs"]
    tables = [spread, Table(key, caption, records, first=heads, label=label, is_main=True)]
    if verdict.decisions:
        decided = decisions_table(verdict.decisions, f"against {verdict.baseline}")
        sentences = [decision.sentence for decision in verdict.decisions]
        tables.append(replace(decided, notes=sentences))
    if verdict.decisions and matched.why_no_test:
        notes = [*full_stops([f"No other test: {matched.why_no_test}", *matched.notes]), *sentences]
        tables = [spread, replace(tables[-1], is_main=True, notes=notes)]
    frame = spreads.merge(numbers, on="method", how="left")
    return View(tables, _content(verdict, spreads), frame)


def _ranks(result: Friedman) -> list[Record]:
    records = []
    for method, rank in result.ranks.sort_values(kind="stable").items():
        cells = {"method": Cell(str(method)), "mean rank": Cell.formatted(rank, ".2f")}
        if result.nemenyi is not None:
            p: Any = result.nemenyi.loc[str(method)]
            others = ", ".join(map(str, p.index[p < ALPHA]))
            cells["differs from (Nemenyi)"] = Cell(others or NOTHING.text)
        records.append(cells)
    return records


def _sentences(verdict: DeclaredTest) -> list[str]:
    matched = verdict.matched
    lines = [
        f"A block is a {matched.unit}.",
        f"Intervals of a mean: Student's, over {MIN_PAIRS} or more blocks.",
    ]
    lines += full_stops(matched.legend())
    if verdict.friedman is not None:
        return [*lines, friedman_sentence(verdict.friedman), *verdict.friedman.notes]
    table = verdict.comparisons
    tested = table["p"].notna()
    test, interval, _ = _TESTS[verdict.test]
    lines.append(f"Declared: {test} against {verdict.baseline}, two-sided.")
    if tested.any():
        lines.append(f"Holm's correction over {tested.sum()} comparisons.")
        lines.append(
            f"Intervals of a difference: {interval}, 95 % each, without Holm's correction."
        )
        if table.loc[tested, "low"].isna().any():
            lines.append("No interval if differences are 0 or tie: the ranks are not exact.")
        # The p of equal signs, times the number of comparisons, as Holm does with the smallest p.
        least = tested.sum() * 2.0 ** (1 - table.loc[tested, "pairs"].max())
        if verdict.test == "wilcoxon" and least > ALPHA:
            lines.append(f"With so few pairs, the smallest possible p (Holm) is {least:.2g}.")
    return [*lines, *matched.notes]


def friedman_sentence(result: Friedman) -> str:
    if result.statement:
        return f"No p-value: {result.statement}."
    text = f"Friedman over {result.blocks} blocks: chi-square {result.statistic:.2f}, "
    sign = "" if result.p < LEAST_P else "= "
    text += f"p {sign}{Cell.p(result.p).text}"
    if result.nemenyi is None:
        return f"{text}: no significant difference at {ALPHA:.0%}, so pairs are not tested."
    difference = f"{result.critical_difference:.2f}"
    return f"{text}. Nemenyi: mean ranks more than {difference} apart differ at {ALPHA:.0%}."


def _content(verdict: DeclaredTest, spreads: pd.DataFrame) -> dict[str, Any]:
    content: dict[str, Any] = {
        "metric": verdict.matched.metric, "block": verdict.matched.unit, "test": verdict.test,
        "baseline": verdict.baseline, "methods": json_records(spreads),
    }  # fmt: skip
    if (result := verdict.friedman) is None:
        content["comparisons"] = json_records(verdict.comparisons)
        decided = pd.DataFrame(verdict.decisions)
        decided["sentence"] = [decision.sentence for decision in verdict.decisions]
        content["decisions"] = json_records(decided)
    else:
        test: dict[str, Any] = {"blocks": result.blocks}
        for name in ("statistic", "p", "critical_difference"):
            test[name] = None if result.statement else getattr(result, name)
        test |= {"statement": result.statement, "mean_ranks": result.ranks.to_dict()}
        test["nemenyi"] = None if result.nemenyi is None else result.nemenyi.to_dict()
        content["friedman"] = test
    return content | {"notes": _sentences(verdict)}


def interaction(run: Run, of: str, with_: str, metric: str, margin: float | None = None) -> View:
    """Return the effect of each method alone, of both, and their interaction.

    The interaction is the effect of both minus the sum of the effects alone: 0 if they add up.
    """
    first, second, pipeline = (_find_rung(run, names) for names in ((of,), (with_,), (of, with_)))
    base = run.bases[next(iter(run.bases))].label
    labels = (first, second, pipeline)
    effects = decide_sums(run, [Comparison(label, (base,), metric) for label in labels], margin)
    # Apart from the effects, since it answers another question.
    sum_of_rungs = Comparison(pipeline, (second,), metric, less=(first, base))
    (decision,) = decide_sums(run, [sum_of_rungs], margin)
    decision = replace(decision, method="interaction", reference="")
    table = decisions_table([decision], "effect")
    caption = (
        f"({pipeline} - {second}) - ({first} - {base}), 0 if the effects add up; better means that "
        f"both together gain more than the sum of the effects. {table.caption}"
    )
    label, notes = label_of("interaction", metric), [f"{compute_network_check(run).sentence}."]
    tables = [
        replace(decisions_table(effects, f"against {base}"), is_main=True),
        replace(table, key="interaction", caption=caption, label=label, notes=notes),
    ]
    frame = pd.DataFrame([*effects, decision])
    return View(tables, json_records(frame), frame, notes)


def _find_rung(run: Run, names: Sequence[str]) -> str:
    wanted = sorted(map(METHODS.canonical, names))
    for label in run.labels.values():
        # A label begins with the pipeline; settings follow it.
        pipeline = label.split(" ")[0].split("+")
        if sorted(map(METHODS.canonical, pipeline)) == wanted:
            return label
    raise UserError(
        f"{run.out} has no {'+'.join(names)}, only {', '.join(run.labels.values())}; an "
        "interaction needs the base, each method alone and the pipeline of both in one run"
    )
