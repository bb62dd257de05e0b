"""Tables of shifted images: foreign ones (MaC-Cal, table 2; FeDLaS, table 3) and corruptions."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.ladder.means import mean_over
from analysis.load import Sweep
from analysis.published import published_titles
from analysis.shifts import FAMILIES, MEAN, OOD, SEVERITIES, foreign_sets, kind_title
from analysis.tables.latex import label_of
from analysis.tables.table import BEST, Table
from analysis.text import Cell, capital, number_cell, ranked, records_of
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import NOT_GENERATED, is_chance, legend

OOD_SHOWN = ("auroc", "aupr_in", "aupr_out", "fpr95", "auroc_entropy", "fpr95_entropy")
CORRUPTION_SHOWN = ("accuracy", "ece")


@dataclass(frozen=True)
class Column:
    """A column of such a table.

    Attributes:
        group: head over it.
        head: its own.
        split: whose metric it shows.
        metric: which.
    """

    group: str
    head: str
    split: str
    metric: str

    @property
    def name(self) -> str:
        """Of the trials."""
        return column(self.split, self.metric)


@dataclass(frozen=True)
class ShiftTable:
    """A table a rung a row.

    Attributes:
        key: of its files and its id in the page.
        about: what its numbers are of, in sentences.
        columns: those that some trial has.
    """

    key: str
    about: str
    columns: tuple[Column, ...]


def shift_tables(sweep: Sweep) -> list[ShiftTable]:
    """The tables of what the trials of a sweep were looked at on; none if on nothing."""
    found = [_foreign(sweep)]
    for family in FAMILIES:
        found += [_by_severity(sweep, family), *_by_kind(sweep, family)]
    return [table for table in found if table.columns]


def _foreign(sweep: Sweep) -> ShiftTable:
    sets = (name.rpartition("/")[0] for name in _columns(sweep))
    names = [*(each.split("/")[1] for each in foreign_sets(sets)), MEAN]
    own = {"noise": "Gaussian noise", MEAN: "mean over the sets"}
    titles = {**published_titles(), **sweep.manifest.titles, **own}
    shown = [
        Column(titles.get(name, name), METRICS[metric].head, f"{OOD}/{name}", metric)
        for name in names
        for metric in OOD_SHOWN
    ]
    about = (
        "Foreign images told from the test split, whose images are positive, by the largest "
        "probability (or, where it is said, the entropy). AUPR depends on how many images either "
        "has."
    )
    return ShiftTable("ood", about, _there(sweep, shown))


def _by_severity(sweep: Sweep, family: str) -> ShiftTable:
    shown = [
        Column(METRICS[metric].head, head, f"{family}/{MEAN}{part}", metric)
        for metric in CORRUPTION_SHOWN
        for head, part in [*((f"severity {n}", f"/{n}") for n in SEVERITIES), ("mean", "")]
    ]
    about = f"{_of_family(family)} Means over {len(FAMILIES[family])} kinds{_left_out(family)}."
    return ShiftTable(f"{family}-severity", about, _there(sweep, shown))


def _by_kind(sweep: Sweep, family: str) -> list[ShiftTable]:
    found = {name.split("/")[1] for name in _columns(sweep) if name.startswith(f"{family}/")}
    kinds = [kind for kind in FAMILIES[family] if kind in found]
    kinds += sorted(found - {MEAN, *kinds})
    tables = []
    for metric in CORRUPTION_SHOWN:
        columns = [
            Column(METRICS[metric].head, kind_title(kind), f"{family}/{kind}/{MEAN}", metric)
            for kind in kinds
        ]
        there = _there(sweep, columns)
        about = (
            f"{_of_family(family)} {METRICS[metric].title}, means over five "
            f"severities{_left_out(family)}.{_not_looked_at(family, there)}"
        )
        tables.append(ShiftTable(f"{family}-kinds-{metric}", about, there))
    return tables


def _not_looked_at(family: str, there: Sequence[Column]) -> str:
    """A sentence on kinds of the benchmark that a table of kinds lacks, if it lacks some."""
    heads = {each.head for each in there}
    lacking = [head for kind in FAMILIES[family] if (head := kind_title(kind)) not in heads]
    if not lacking:
        return ""
    return f" Not looked at: {', '.join(lacking)}; so there is no mean over kinds."


def _of_family(family: str) -> str:
    if family == "generated":
        return (
            "Corruptions that were generated here from the test split: kinds and strengths of the "
            "benchmark, other noise than that of CIFAR-10-C and CIFAR-100-C."
        )
    return "Published corruptions (CIFAR-10-C, CIFAR-100-C), as far as of the test split."


def _left_out(family: str) -> str:
    return f" ({', '.join(NOT_GENERATED)} is not generated)" if family == "generated" else ""


def _columns(sweep: Sweep) -> list[str]:
    return list(map(str, sweep.trials))


def _there(sweep: Sweep, columns: Sequence[Column]) -> tuple[Column, ...]:
    known = sweep.trials.notna().any() if len(sweep.trials) else pd.Series(dtype=bool)
    return tuple(each for each in columns if known.get(each.name, False))


def means(sweep: Sweep, table: ShiftTable) -> pd.DataFrame:
    """Mean and spread of each rung in each column.

    Returns:
        One row a (rung, column): rung, label, set, metric, n, of (trials that are done), mean, sd
        (with n - 1); fractions.
    """
    rows = []
    for rung in sweep.rungs:
        trials = sweep.of_rung(rung.index)
        for each in table.columns:
            values = trials[each.name].dropna().astype(float)
            named = {"rung": rung.index, "label": rung.label, "set": each.split}
            counts = {"metric": each.metric, "n": len(values), "of": len(trials)}
            numbers = {"mean": values.mean(), "sd": values.std(ddof=1)}
            rows.append({**named, **counts, **numbers})
    return pd.DataFrame(rows)


def table(sweep: Sweep, shift: ShiftTable) -> Table:
    """One row a rung; one with a trial at chance is never best or second."""
    found = means(sweep, shift)
    may_win = [not is_chance(sweep.flags(rung.index)) for rung in sweep.rungs]
    columns = {"rung": [Cell(sweep.label(rung)) for rung in sweep.rungs]}
    groups = {}
    for each in shift.columns:
        own: Any = found[(found["set"] == each.split) & (found["metric"] == each.metric)]
        head = f"{each.group}: {each.head}"
        groups[head] = (each.group, each.head)
        cells = [number_cell(each.metric, row.mean, row.sd) for row in own.itertuples()]
        marked = ranked(cells, METRICS[each.metric].direction, may_win)
        columns[head] = [
            # A mean over some of the trials stands beside means over all: it must say so.
            replace(cell, text=f"{cell.text} (n = {row.n})") if 0 < row.n < row.of else cell
            for cell, row in zip(marked, own.itertuples(), strict=True)
        ]
    parts = [f"{sweep.manifest.title}. {shift.about} {capital(mean_over(sweep))}"]
    caption = f"{'. '.join([*parts, *legend(sweep.flags())])}. {BEST}"
    label = label_of(shift.key, sweep.manifest.dataset)
    return Table(shift.key, caption, records_of(columns), groups=groups, label=label)
