"""Renderers of a verdict: plain text, Markdown, LaTeX, CSV and JSON; and its diagram."""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import scikit_posthocs
from matplotlib.figure import Figure
from tabulate import tabulate

from analysis import style
from analysis.compare.intervals import ALPHA
from analysis.compare.significance import MIN_PAIRS, Friedman, Verdict
from analysis.ladder.tables import number, title
from analysis.latex import label_of, of_records, render

_TESTS = {"wilcoxon": "Wilcoxon's signed rank test", "t": "paired t test"}
_INTERVALS = {
    test: f"Intervals of a difference: {name}, 95 % each; of p, not adjusted as p (Holm) is."
    for test, name in (("wilcoxon", "exact signed rank"), ("t", "Student's"))
}
_ESTIMATES = {"wilcoxon": "difference (Hodges-Lehmann)", "t": "mean difference"}


def described_rows(verdict: Verdict) -> list[dict[str, str]]:
    """Mean and spread of each method as text."""
    metric = verdict.matched.metric
    return [
        {
            "method": verdict.matched.label(row.method),
            "n": str(row.n),
            title(metric): number(metric, row.mean),
            "sd": number(metric, row.sd),
            "95 % interval of the mean (t)": _interval(metric, row.low, row.high),
        }
        for row in _records(verdict.described)
    ]


def compared_rows(verdict: Verdict) -> list[dict[str, str]]:
    """Each comparison as text; a statement stands where a p-value would be."""
    metric = verdict.matched.metric
    assert verdict.comparisons is not None  # only called for a paired test
    return [
        {
            f"against {verdict.baseline}": verdict.matched.label(row.method),
            "pairs": str(row.pairs),
            "better in": str(row.better),
            _ESTIMATES[verdict.test]: number(metric, row.difference, signed=True),
            "95 % interval": _interval(metric, row.low, row.high, signed=True),
            "p": row.statement or _p(row.p),
            "p (Holm)": _p(row.p_holm),
        }
        for row in _records(verdict.comparisons)
    ]


def ranked_rows(result: Friedman) -> list[dict[str, str]]:
    """Mean rank of each method, best first, and which methods differ from it, as text."""
    rows = []
    for method, rank in result.ranks.sort_values(kind="stable").items():
        cells = {"method": str(method), "mean rank": f"{rank:.2f}"}
        if result.nemenyi is not None:
            p: Any = result.nemenyi.loc[str(method)]
            others = [str(other) for other in p.index[p < ALPHA]]
            cells["differs from (Nemenyi)"] = ", ".join(others) or "-"
        rows.append(cells)
    return rows


def _records(frame: pd.DataFrame) -> Any:
    return frame.itertuples(index=False)


def _interval(metric: str, low: float, high: float, signed: bool = False) -> str:
    if math.isnan(low):
        return "-"
    return f"{number(metric, low, signed)} to {number(metric, high, signed)}"


def _p(p: float) -> str:
    if math.isnan(p):
        return "-"
    return f"{p:.2g}" if p >= 0.0001 else "< 0.0001"


def sentences(verdict: Verdict) -> list[str]:
    """What was declared, what a block is, and what is missing."""
    matched = verdict.matched
    lines = [
        f"A block is a {matched.unit}.",
        f"Intervals of a mean: Student's, over blocks, from {MIN_PAIRS} of them on.",
    ]
    lines += matched.legend()
    if verdict.friedman is not None:
        return [*lines, _friedman_sentence(verdict.friedman), *verdict.friedman.notes]
    table = verdict.comparisons
    assert table is not None
    tested = table["p"].notna()
    lines.append(f"Declared: {_TESTS[verdict.test]} against {verdict.baseline}, two-sided.")
    if tested.any():
        lines.append(f"Holm over {tested.sum()} comparisons.")
        lines.append(_INTERVALS[verdict.test])
        if table.loc[tested, "low"].isna().any():
            lines.append("None where differences are 0 or tie: the signed ranks are not exact.")
        least = tested.sum() * 2.0 ** (1 - table.loc[tested, "pairs"].max())
        if verdict.test == "wilcoxon" and least > ALPHA:
            lines.append(f"With so few pairs the smallest possible p after Holm is {least:.2g}.")
    return [*lines, *matched.notes]


def _friedman_sentence(result: Friedman) -> str:
    if result.statement:
        return f"No p-value: {result.statement}."
    text = f"Friedman over {result.blocks} blocks: chi-square {result.statistic:.2f}, "
    text += f"p {_p(result.p) if result.p < 0.0001 else '= ' + _p(result.p)}"
    if result.nemenyi is None:
        return f"{text}: no difference at {ALPHA:.0%}, so no pair is told apart."
    difference = f"{result.critical_difference:.2f}"
    return f"{text}. Nemenyi: mean ranks more than {difference} apart differ at {ALPHA:.0%}."


def _text(verdict: Verdict, tablefmt: str) -> str:
    """Tables and sentences; ``tablefmt`` is one of tabulate's."""
    second = ranked_rows(verdict.friedman) if verdict.friedman else compared_rows(verdict)
    tables = [
        tabulate(rows, headers="keys", tablefmt=tablefmt, disable_numparse=True)
        for rows in (described_rows(verdict), second)
    ]
    lines = sentences(verdict)
    notes = [" ".join(lines)] if tablefmt == "github" else lines
    return "\n".join([tables[0], "", tables[1], "", *notes])


def csv(verdict: Verdict) -> str:
    """One row a method: spread, then the comparison or the mean rank; fractions."""
    if verdict.friedman is not None:
        ranks = verdict.friedman.ranks.rename("mean_rank").rename_axis("method").reset_index()
        table = verdict.described.merge(ranks, on="method", how="left")
    else:
        assert verdict.comparisons is not None
        named = verdict.comparisons.rename(columns={"low": "low_diff", "high": "high_diff"})
        table = verdict.described.merge(named, on="method", how="left")
    return table.to_csv(index=False, lineterminator="\n").rstrip("\n")


def json_object(verdict: Verdict) -> str:
    """One object: what was declared, ``methods``, then ``comparisons`` or ``friedman``."""
    content: dict[str, Any] = {
        "metric": verdict.matched.metric,
        "block": verdict.matched.unit,
        "test": verdict.test,
        "baseline": verdict.baseline,
        "methods": json.loads(verdict.described.to_json(orient="records")),
    }
    if verdict.comparisons is not None:
        content["comparisons"] = json.loads(verdict.comparisons.to_json(orient="records"))
    if verdict.friedman is not None:
        result = verdict.friedman
        content["friedman"] = {
            "blocks": result.blocks,
            "statistic": None if result.statement else result.statistic,
            "p": None if result.statement else result.p,
            "critical_difference": None if result.statement else result.critical_difference,
            "statement": result.statement,
            "mean_ranks": result.ranks.to_dict(),
            "nemenyi": None if result.nemenyi is None else result.nemenyi.to_dict(),
        }
    content["notes"] = sentences(verdict)
    return json.dumps(content, indent=1)


def plain(verdict: Verdict) -> str:
    """The tables and sentences for a terminal."""
    return _text(verdict, "simple")


def markdown(verdict: Verdict) -> str:
    """The tables and sentences in Markdown."""
    return _text(verdict, "github")


def latex(verdict: Verdict, caption: str | None = None, label: str | None = None) -> str:
    """Two tables in LaTeX (booktabs): the spread, then what is declared, under the caption."""
    metric = verdict.matched.metric
    label = label or label_of("significance", metric)
    spread = f"{title(metric)}: mean and spread of each method over the blocks."
    second = ranked_rows(verdict.friedman) if verdict.friedman else compared_rows(verdict)
    told = caption or f"{title(metric)}. {' '.join(full_stops(sentences(verdict)))}"
    tables = [
        render(of_records(described_rows(verdict), spread, f"{label}-spread")),
        render(of_records(second, told, label), needs=False),
    ]
    return "\n\n".join(tables)


def full_stops(lines: Sequence[str]) -> list[str]:
    """The lines as sentences."""
    return [line if line.endswith(".") else f"{line}." for line in lines]


RENDERERS: dict[str, Callable[[Verdict], str]] = {
    "plain": plain,
    "markdown": markdown,
    "latex": latex,
    "csv": csv,
    "json": json_object,
}


def draw_critical_difference(result: Friedman | None) -> Figure | None:
    """Mean ranks on a line, best at the left; bars join methods that Nemenyi does not tell apart.

    Returns:
        None if Friedman's test was not declared or has no p-value; its statement says why.
    """
    if result is None or result.statement:
        return None
    methods = list(result.ranks.index)
    same = pd.DataFrame(1.0, index=methods, columns=methods)
    colors = {method: style.color(place) for place, method in enumerate(methods)}
    figure, axis = plt.subplots(figsize=(style.TEXT_IN, 1.3 + 0.1 * len(methods)))
    drawn = scikit_posthocs.critical_difference_diagram(
        result.ranks,
        same if result.nemenyi is None else result.nemenyi,
        ax=axis,
        alpha=ALPHA,
        label_fmt_left="{label} ({rank:.2f})",
        label_fmt_right="({rank:.2f}) {label}",
        label_props={"fontsize": 7},
        marker_props={"s": 0},
        elbow_props={"linewidth": 1},
        crossbar_props={"linewidth": 2.5},
        color_palette=colors,
        text_h_margin=0.01 * (result.ranks.max() - result.ranks.min()),
    )
    for label in drawn["labels"]:
        label.set_color("0.1")  # the palest colours are not legible as text
    for place, (method, rank) in enumerate(result.ranks.items()):
        axis.scatter(rank, 0, s=24, color=colors[method], marker=style.marker(place), zorder=10)
    axis.set_xlabel("mean rank, 1 is best", fontsize=8)
    axis.xaxis.set_label_position("top")
    reading = f"{_friedman_sentence(result)}\nBars join methods that are not told apart."
    figure.suptitle(f"{title(result.metric)}: {reading}", fontsize=7)
    return figure
