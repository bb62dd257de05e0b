"""Renderers of a ladder's table: Markdown, LaTeX, CSV and plain text. Percent appears only here."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd
from tabulate import SEPARATING_LINE, tabulate

from analysis.ladder.ladder import (
    TABLE_METRICS,
    ladder_table,
    published_columns,
    summary,
)
from analysis.latex import Table, label_of, render
from analysis.latex_text import escape
from analysis.load import Sweep
from tune_calib.names import METRICS, is_chance, legend

Mark = Callable[[str, int], str]

MARKS = {
    "plain": {0: "{}", 1: "{} *", 2: "{} '"},
    "markdown": {0: "{}", 1: "**{}**", 2: "<u>{}</u>"},
    "latex": {0: "{}", 1: r"\textbf{{{}}}", 2: r"\underline{{{}}}"},
    "html": {0: "{}", 1: "<b>{}</b>", 2: "<u>{}</u>"},
}
TITLES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "tiny_imagenet": "Tiny-ImageNet",
    "cub200": "CUB-200",
    "fgvc_aircraft": "FGVC-Aircraft",
    "svhn": "SVHN",
    "densenet121": "DenseNet-121",
    "resnet50": "ResNet-50",
    "resnet101": "ResNet-101",
    "resnet110": "ResNet-110",
    "wrn26_10": "WRN-26-10",
    "vit_base_patch16_384": "ViT-B/16",
}


def number(metric: str, value: float, signed: bool = False) -> str:
    """A value as printed: fractions in percent with two digits, others with three."""
    if math.isnan(value):
        return "-"
    # "z" prints a change that rounds to nothing as 0.00, not as -0.00.
    sign = "+z" if signed else "z"
    if METRICS[metric].unit == "fraction":
        return f"{printed_scale(metric) * value:{sign}.2f}"
    return f"{value:{sign}.3f}"


def printed_scale(metric: str) -> int:
    """What a value is multiplied by where it is printed: 100 for a fraction, else 1."""
    return 100 if METRICS[metric].unit == "fraction" else 1


def title(metric: str) -> str:
    """Head of a metric's column, with unit and direction."""
    record = METRICS[metric]
    unit = {"fraction": " (%)", "nats": " (nats)", "score": ""}[record.unit]
    return f"{record.title}{unit} {'↓' if record.direction == 'min' else '↑'}"


def caption(sweep: Sweep) -> str:
    """What the numbers are of, over what they vary, and what is missing."""
    manifest = sweep.manifest
    parts = [manifest.title, manifest.setting, f"test split, {summary(sweep)}"]
    ended = [f"{n} {status}" for status, n in sweep.counts().items() if status != "missing"]
    parts.append(f"Trials of all rungs: {', '.join(ended)}; only done ones enter")
    parts.append("Δ: difference of means, to the rung before and to the base")
    if sweep.vanished:
        parts.append(sweep.vanished)
    if sweep.missing:
        parts.append(f"INCOMPLETE: {sweep.missing} of {len(manifest.planned)} trials missing")
    return ". ".join([*parts, *legend(sweep.flags())]) + "."


def wide_rows(sweep: Sweep, mark: Mark) -> list[dict[str, str]]:
    """One row a rung, cells as text; a rung with a trial at chance is never best or second.

    Args:
        sweep: the sweep.
        mark: turns (text, place) into the cell of the best (1), the second (2) or another (0).
    """
    tidy = ladder_table(sweep)
    printed = published_columns(sweep)
    at_chance = [r.index for r in sweep.rungs if is_chance(sweep.flags(r.index))]
    rows = []
    for rung in sweep.rungs:
        of_rung: Any = tidy[tidy["rung"] == rung.index].set_index("metric")
        cells = {"rung": sweep.label(rung)}
        for metric in TABLE_METRICS:
            means = tidy[(tidy["metric"] == metric) & ~tidy["rung"].isin(at_chance)]["mean"]
            best = places((number(metric, mean) for mean in means), METRICS[metric].direction)
            best = {} if rung.index in at_chance else best
            row = of_rung.loc[metric]
            failures = sweep.failures(rung.index)
            cells[title(metric)] = _cell(metric, row, best, mark) if row["n"] else failures or "-"
        ece = of_rung.loc["ece"]
        cells["ΔECE before"] = number("ece", ece["change_before"], signed=True)
        cells["ΔECE base"] = number("ece", ece["change_base"], signed=True)
        cells["trials"] = str(ece["statuses"])
        for key in printed.columns:
            value = printed[key].get(rung.label, math.nan)
            cells[f"paper: {TITLES.get(key[0], key[0])} {TITLES.get(key[1], key[1])}"] = number(
                "ece", value
            )
        rows.append(cells)
    return rows


def places(texts: Iterable[str], direction: str) -> dict[str, int]:
    """The best (1) and the second (2) of printed numbers; what prints alike shares a place."""
    numbers = {text: float(text) for text in texts if text != "-"}
    ordered = sorted(set(numbers.values()), reverse=direction == "max")[:2]
    return {text: ordered.index(n) + 1 for text, n in numbers.items() if n in ordered}


def _cell(metric: str, row: "pd.Series[Any]", best: dict[str, int], mark: Mark) -> str:
    text = number(metric, row["mean"])
    place = best.get(text, 0)
    if not math.isnan(row["sd"]):
        text += f" ± {number(metric, row['sd'])}"
    return mark(text, place)


def starts_block(sweep: Sweep, place: int) -> bool:
    """Whether a rule stands before a rung: before the controls, and before variants of steps."""
    if place == 0:
        return False
    before, kind = (str(sweep.rungs[i].kind) for i in (place - 1, place))
    return (kind == "control" and before != "control") or (kind == "variant" and before == "step")


def markdown(sweep: Sweep) -> str:
    """The table in Markdown, best bold, second underlined."""
    marks = MARKS["markdown"]
    rows = wide_rows(sweep, lambda text, place: marks[place].format(text))
    heads, blank = list(rows[0]), [""] * (len(rows[0]) - 1)
    lines = []
    for place, row in enumerate(rows):
        if starts_block(sweep, place):
            lines.append([f"*{sweep.rungs[place].kind}s*", *blank])
        lines.append(list(row.values()))
    body = tabulate(lines, heads, tablefmt="github", disable_numparse=True)
    return f"{body}\n\n{caption(sweep)} Best bold, second underlined.{paper_note(sweep)}\n"


def console_table(sweep: Sweep) -> str:
    """The table for a terminal; ``*`` is the best, ``'`` the second."""
    marks = MARKS["plain"]
    rows = wide_rows(sweep, lambda text, place: marks[place].format(text))
    heads = [name.replace(" ", "\n", 1) for name in rows[0]]
    lines: list[Any] = []
    for place, row in enumerate(rows):
        lines += [SEPARATING_LINE] if starts_block(sweep, place) else []
        lines.append(list(row.values()))
    body = tabulate(lines, heads, disable_numparse=True)
    return f"{body}\n{caption(sweep)} * best, ' second.{paper_note(sweep)}"


def latex(sweep: Sweep) -> str:
    """The table in LaTeX (booktabs), the paper's columns under a head of their own."""
    marks = MARKS["latex"]
    rows = wide_rows(sweep, lambda text, place: marks[place].format(escape(text)))
    names, marked = list(rows[0]), {title(metric) for metric in TABLE_METRICS}
    groups = ["published ECE (%)" if name.startswith("paper: ") else "this run" for name in names]
    has_groups = len(set(groups)) > 1
    manifest = sweep.manifest
    table = Table(
        heads=[name.removeprefix("paper: ") for name in names],
        rows=[[row[n] if n in marked else escape(row[n]) for n in names] for row in rows],
        caption=f"{caption(sweep)} Best bold, second underlined.{paper_note(sweep)}",
        label=label_of(manifest.ladder.split()[0], manifest.dataset),
        groups=["", *groups[1:]] if has_groups else (),
        rules=frozenset(place for place in range(len(rows)) if starts_block(sweep, place)),
    )
    return f"{render(table)}\n"


def paper_note(sweep: Sweep) -> str:
    """Where the columns of printed numbers are from; empty if there are none."""
    if not sweep.manifest.published:
        return ""
    return f" Columns 'paper' are the ECE (%) printed in {sweep.manifest.published}."
