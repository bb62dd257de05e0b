"""A ladder's table: its rows as cells, and the same rows in Markdown, LaTeX and plain text."""

import math
from typing import Any

from tabulate import tabulate

from analysis.compare.regime import known_networks, regime_of
from analysis.ladder import intervals
from analysis.ladder.means import ladder_table, mean_over, published_columns, table_metrics
from analysis.latex import Table, label_of, latex_cell, render
from analysis.load import Sweep
from analysis.published import published_titles
from analysis.text import NOTHING, Cell, Record, best_two, number_cell, rounded, title
from tune_calib import console
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.names import is_chance, legend

_PAPER = "paper: "  # before the head of a column of printed numbers
_FIRST = ("ece", "accuracy", "nll")  # metrics that matter most, where the screen is narrow


def caption(sweep: Sweep) -> str:
    """What the numbers are of, over what they vary, and what is missing."""
    manifest = sweep.manifest
    parts = [manifest.title, manifest.setting, f"test split, {mean_over(sweep)}"]
    ended = [f"{n} {status}" for status, n in sweep.counts().items() if status != "missing"]
    parts.append(f"Trials of all rungs: {', '.join(ended)}; only done ones enter")
    parts.append("Δ: difference of means, to the rung before and to the base")
    if sweep.shows_intervals:
        parts.append(intervals.note(sweep))
    parts.append(regime_of(sweep).sentence)
    if sweep.vanished:
        parts.append(sweep.vanished)
    if sweep.missing:
        parts.append(f"INCOMPLETE: {sweep.missing} of {len(manifest.planned)} trials missing")
    return ". ".join([*parts, *legend(sweep.flags())]) + "."


def records(sweep: Sweep) -> list[Record]:
    """One row a rung; one with a trial at chance is never best or second."""
    table = ladder_table(sweep, (*table_metrics(sweep), "ece"))
    printed, papers = published_columns(sweep), _paper_heads(sweep)
    at_chance = {rung.index for rung in sweep.rungs if is_chance(sweep.flags(rung.index))}
    ranks = {}
    for metric in table_metrics(sweep):
        means = table[(table["metric"] == metric) & ~table["rung"].isin(at_chance)]["mean"]
        values = (rounded(metric, mean) for mean in means)
        ranks[metric] = best_two(values, METRICS[metric].direction)
    rows = []
    for rung in sweep.rungs:
        rows_of = table[table["rung"] == rung.index].drop_duplicates("metric")
        of_rung: Any = rows_of.set_index("metric")
        absent = Cell(failures) if (failures := sweep.failures(rung.index)) else NOTHING
        cells = {"rung": Cell(sweep.label(rung))}
        for metric in ranks:
            known = {} if rung.index in at_chance else ranks[metric]
            row = of_rung.loc[metric]
            cells[title(metric)] = _mean(sweep, metric, row, known) if row["n"] else absent
        ece = of_rung.loc["ece"]
        if sweep.shows_regime:
            cells |= _regime_cells(sweep, rung.index)
        cells["ΔECE before"] = number_cell("ece", ece["change_before"], signed=True)
        cells["ΔECE base"] = number_cell("ece", ece["change_base"], signed=True)
        cells["trials"] = Cell(ece["statuses"])
        for head, key in papers.items():
            cells[head] = number_cell("ece", printed[key].get(rung.label, math.nan))
        rows.append(cells)
    return rows


def _regime_cells(sweep: Sweep, rung: int) -> dict[str, Cell]:
    """How the networks beneath a rung fit, and how confident the rung itself is."""
    trials = sweep.of_rung(rung)
    train = known_networks(trials)["train"].mean()
    gaps = trials.reindex(columns=["test/confidence_gap"])["test/confidence_gap"].astype(float)
    sd = gaps.std(ddof=1) if len(gaps) > 1 else math.nan
    return {
        "Network on train (%)": number_cell("accuracy", train),
        title("confidence_gap"): number_cell("confidence_gap", gaps.mean(), sd, signed=True),
    }


def _mean(sweep: Sweep, metric: str, row: Any, ranks: dict[float, int]) -> Cell:
    rank = ranks.get(rounded(metric, row["mean"]), 0)
    if sweep.shows_intervals:
        return intervals.cell(sweep, row["rung"], metric, row["mean"], rank)
    return number_cell(metric, row["mean"], row["sd"], rank=rank)


def _paper_heads(sweep: Sweep) -> dict[str, Any]:
    """Heads of the columns of printed numbers, and which of ``published_columns`` each shows."""
    titles = published_titles()
    keys: list[Any] = published_columns(sweep).columns.to_list()
    return {_PAPER + " ".join(titles.get(name, name) for name in key): key for key in keys}


def starts_block(sweep: Sweep, index: int) -> bool:
    """Whether a rule stands before a rung: before the controls, and before variants of steps."""
    if index == 0:
        return False
    before, kind = (sweep.rungs[i].kind for i in (index - 1, index))
    return (kind == "control" and before != "control") or (kind == "variant" and before == "step")


def markdown(sweep: Sweep) -> str:
    """The table in Markdown, best bold, second underlined."""
    rows = records(sweep)
    heads, blank = list(rows[0]), [""] * (len(rows[0]) - 1)
    lines = []
    for index, row in enumerate(rows):
        if starts_block(sweep, index):
            lines.append([f"*{sweep.rungs[index].kind}s*", *blank])
        lines.append([cell.marked("markdown") for cell in row.values()])
    # tabulate would read the cells as numbers and print 4.50 as 4.5.
    body = tabulate(lines, heads, tablefmt="github", disable_numparse=True)
    return f"{body}\n\n{caption(sweep)} Best bold, second underlined.{paper_note(sweep)}\n"


def printed(sweep: Sweep) -> list[console.Part]:
    """The table for a terminal; ``*`` is the best, ``'`` the second."""
    rows = records(sweep)
    table = console.Table(
        heads=list(rows[0]),
        rows=[[cell.marked("plain") for cell in row.values()] for row in rows],
        first=[*map(title, sweep.shown or _FIRST), "ΔECE base", "trials"],
        rules=[index for index in range(len(rows)) if starts_block(sweep, index)],
        is_main=True,
    )
    return [table, console.Prose(f"{caption(sweep)} * best, ' second.{paper_note(sweep)}")]


def console_table(sweep: Sweep) -> str:
    """The table as ``printed``."""
    return console.Text(printed(sweep))


def latex(sweep: Sweep) -> str:
    """The table in LaTeX (booktabs), the paper's columns under a head of their own."""
    rows, papers = records(sweep), _paper_heads(sweep)
    names = list(rows[0])
    groups = ["published ECE (%)" if name in papers else "this run" for name in names]
    manifest = sweep.manifest
    table = Table(
        heads=[name.removeprefix(_PAPER) if name in papers else name for name in names],
        rows=[[latex_cell(cell) for cell in row.values()] for row in rows],
        caption=f"{caption(sweep)} Best bold, second underlined.{paper_note(sweep)}",
        label=label_of(manifest.ladder.split()[0], manifest.dataset),
        groups=["", *groups[1:]] if papers else (),
        rules=frozenset(index for index in range(len(rows)) if starts_block(sweep, index)),
    )
    return f"{render(table)}\n"


def paper_note(sweep: Sweep) -> str:
    """Where the columns of printed numbers are from; empty if there are none."""
    if not sweep.manifest.published:
        return ""
    return f" Columns 'paper' are the ECE (%) printed in {sweep.manifest.published}."
