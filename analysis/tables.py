"""Renderers of a ladder's table: Markdown, LaTeX, CSV and plain text. Percent appears only here."""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
from tabulate import tabulate

from analysis.ladder import (
    TABLE_METRICS,
    best_first,
    ladder_table,
    published_columns,
    varied,
)
from analysis.load import Sweep
from tune_calib.names import METRICS

Mark = Callable[[str, int], str]

_DATASETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny_imagenet": "Tiny-ImageNet"}
_LATEX_MARKS = {"&": r"\&", "%": r"\%", "_": r"\_", "±": r"$\pm$"}


def number(metric: str, value: float, signed: bool = False) -> str:
    """A value as printed: fractions in percent with two digits, others with three."""
    if math.isnan(value):
        return "-"
    sign = "+" if signed else ""
    if METRICS[metric].unit == "fraction":
        return f"{100 * value:{sign}.2f}"
    return f"{value:{sign}.3f}"


def title(metric: str) -> str:
    """Head of a metric's column, with unit and direction."""
    record = METRICS[metric]
    unit = {"fraction": " (%)", "nats": " (nats)", "score": ""}[record.unit]
    return f"{record.title}{unit} {'↓' if record.direction == 'min' else '↑'}"


def caption(sweep: Sweep) -> str:
    """What the numbers are of, over what they vary, and what is missing."""
    manifest = sweep.manifest
    parts = [manifest["title"], manifest["setting"], f"test split, mean ± sd over {varied(sweep)}"]
    if sweep.missing:
        parts.append(f"INCOMPLETE: {sweep.missing} of {len(manifest['planned'])} trials missing")
    return ". ".join(parts) + "."


def wide_rows(sweep: Sweep, mark: Mark) -> list[dict[str, str]]:
    """One row a rung, cells as text.

    Args:
        sweep: the sweep.
        mark: turns (text, place) into the cell of the best (1), the second (2) or another (0).
    """
    tidy = ladder_table(sweep)
    printed = published_columns(sweep)
    rows = []
    for rung in sweep.rungs:
        of_rung = tidy[tidy["rung"] == rung["index"]].set_index("metric")
        cells = {"rung": rung["label"]}
        for metric in TABLE_METRICS:
            places = best_first(metric, tidy[tidy["metric"] == metric]["mean"])
            cells[title(metric)] = _cell(metric, of_rung.loc[metric], places, mark)
        ece = of_rung.loc["ece"]
        cells["ΔECE before"] = number("ece", ece["change_before"], signed=True)
        cells["ΔECE base"] = number("ece", ece["change_base"], signed=True)
        cells["trials"] = str(ece["statuses"])
        for key in printed.columns:
            value = printed[key].get(rung["label"], math.nan)
            cells[f"paper: {_DATASETS.get(key[0], key[0])} {key[1]}"] = number("ece", value)
        rows.append(cells)
    return rows


def _cell(metric: str, row: "pd.Series[Any]", places: list[float], mark: Mark) -> str:
    if row["n"] == 0:
        return str(row["statuses"])
    text = number(metric, row["mean"])
    if not math.isnan(row["sd"]):
        text += f" ± {number(metric, row['sd'])}"
    return mark(text, places.index(row["mean"]) + 1 if row["mean"] in places else 0)


def markdown(sweep: Sweep) -> str:
    """The table in Markdown, best bold, second underlined."""
    marks = {0: "{}", 1: "**{}**", 2: "<u>{}</u>"}
    rows = wide_rows(sweep, lambda text, place: marks[place].format(text))
    body = tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True)
    return f"{body}\n\n{caption(sweep)} Best bold, second underlined.{_paper_note(sweep)}\n"


def plain(sweep: Sweep) -> str:
    """The table for a terminal; ``*`` is the best, ``'`` the second."""
    marks = {0: "{}", 1: "{} *", 2: "{} '"}
    rows = wide_rows(sweep, lambda text, place: marks[place].format(text))
    heads = [name.replace(" ", "\n", 1) for name in rows[0]]
    body = tabulate([list(row.values()) for row in rows], heads, disable_numparse=True)
    return f"{body}\n{caption(sweep)} * best, ' second.{_paper_note(sweep)}"


def latex(sweep: Sweep) -> str:
    """The table in LaTeX (booktabs), the paper's columns under a head of their own."""
    marks = {0: "{}", 1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"}
    rows = wide_rows(sweep, lambda text, place: marks[place].format(_escape(text)))
    names = [name for name in rows[0] if name != "trials"]
    ours = [name for name in names if not name.startswith("paper: ")]
    theirs = [name for name in names if name.startswith("paper: ")]
    heads = [*ours, *(name.removeprefix("paper: ") for name in theirs)]
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", r"\toprule"]
    if theirs:
        spans = f"& \\multicolumn{{{len(ours) - 1}}}{{c}}{{this run}}"
        spans += f" & \\multicolumn{{{len(theirs)}}}{{c}}{{published ECE (\\%)}} \\\\"
        rule = f"\\cmidrule(lr){{2-{len(ours)}}}\\cmidrule(lr){{{len(ours) + 1}-{len(heads)}}}"
        lines += [spans, rule]
    lines += [" & ".join(_head(head) for head in heads) + r" \\", r"\midrule"]
    was_step = True
    for rung, row in zip(sweep.rungs, rows, strict=True):
        cells = [row[name] for name in names]
        is_step = rung["kind"] in ("base", "step")
        if was_step and not is_step:
            lines.append(r"\midrule")
        was_step = is_step
        cells[0] = _escape(cells[0])
        lines.append(" & ".join(cell.replace("Δ", r"$\Delta$") for cell in cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", f"% {caption(sweep)}", ""]
    return "\n".join(lines)


def _head(text: str) -> str:
    arrows = {"↓": r"$\downarrow$", "↑": r"$\uparrow$", "Δ": r"$\Delta$"}
    for mark, command in {**_LATEX_MARKS, **arrows}.items():
        text = text.replace(mark, command)
    return text


def _escape(text: str) -> str:
    for mark, command in _LATEX_MARKS.items():
        text = text.replace(mark, command)
    return text


def _paper_note(sweep: Sweep) -> str:
    if not sweep.manifest["published"]:
        return ""
    return f" Columns 'paper' are the ECE (%) printed in {sweep.manifest['published']}."
