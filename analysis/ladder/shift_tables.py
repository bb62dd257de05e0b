"""Tables of shifted images: foreign ones (MaC-Cal, table 2; FeDLaS, table 3) and corruptions."""

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from analysis.ladder.means import mean_over
from analysis.load import Sweep
from analysis.published import published_titles
from analysis.shifts import FAMILIES, MEAN, OOD, SEVERITIES, foreign_sets, kind_title
from analysis.tables.latex import label_of
from analysis.tables.table import BEST, Table
from analysis.text import Cell, number_cell, ranked, records_of
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import NOT_GENERATED, is_chance, legend

OOD_SHOWN = ("auroc", "aupr_in", "aupr_out", "fpr95", "auroc_entropy", "fpr95_entropy")
CORRUPTION_SHOWN = ("accuracy", "ece")

_ABOUT_OOD = (
    "Detection of foreign images against the test split, whose images are positive, by the largest "
    "probability (or the entropy, where the column says so). AUPR depends on how many images there "
    "are of each."
)
_ABOUT = {
    "corrupt": "Published corruptions (CIFAR-10-C, CIFAR-100-C) of the images of the test split.",
    "generated": (
        "Corruptions generated here from the test split: kinds and strengths of the benchmark, "
        "with other noise than that of CIFAR-10-C and CIFAR-100-C."
    ),
}
_LEFT_OUT = {"corrupt": "", "generated": f" ({', '.join(NOT_GENERATED)} is not generated)"}


@dataclass(frozen=True)
class Column:
    """A column of a shift table: a metric on a split, under its own head and that of a group."""

    group: str
    metric: str
    head: str
    split: str

    @property
    def name(self) -> str:
        """Column of the trials."""
        return column(self.split, self.metric)


@dataclass(frozen=True)
class ShiftTable:
    """A shift table with a row per rung.

    Attributes:
        key: name of its files and its id in the page.
        about: what its numbers are, in sentences.
        columns: those that some trial has.
    """

    key: str
    about: str
    columns: tuple[Column, ...]


def shift_tables(sweep: Sweep) -> list[ShiftTable]:
    """Return the tables of the shift sets that trials were evaluated on."""
    tables = [ShiftTable("ood", _ABOUT_OOD, _ood_columns(sweep))]
    for family in FAMILIES:
        about = f"{_ABOUT[family]} Means over {len(FAMILIES[family])} kinds{_LEFT_OUT[family]}."
        parts = [*((f"severity {n}", f"/{n}") for n in SEVERITIES), ("mean", "")]
        columns = [
            Column(METRICS[metric].head, metric, head, f"{family}/{MEAN}{part}")
            for metric in CORRUPTION_SHOWN
            for head, part in parts
        ]
        tables.append(ShiftTable(f"{family}-severity", about, _present(sweep, columns)))
        tables += [_by_kind(sweep, family, metric) for metric in CORRUPTION_SHOWN]
    return [table for table in tables if table.columns]


def _ood_columns(sweep: Sweep) -> tuple[Column, ...]:
    sets = foreign_sets(str(name).rpartition("/")[0] for name in sweep.trials)
    own = {"noise": "Gaussian noise", MEAN: "mean over the sets"}
    titles = {**published_titles(), **sweep.manifest.titles, **own}
    columns = [
        Column(titles.get(name, name), metric, METRICS[metric].head, f"{OOD}/{name}")
        for name in [*(each.split("/")[1] for each in sets), MEAN]
        for metric in OOD_SHOWN
    ]
    return _present(sweep, columns)


def _by_kind(sweep: Sweep, family: str, metric: str) -> ShiftTable:
    evaluated = {n.split("/")[1] for n in map(str, sweep.trials) if n.startswith(f"{family}/")}
    kinds = [kind for kind in FAMILIES[family] if kind in evaluated]
    kinds += sorted(evaluated - {MEAN, *kinds})
    head = METRICS[metric].head
    columns = [Column(head, metric, kind_title(k), f"{family}/{k}/{MEAN}") for k in kinds]
    present = _present(sweep, columns)
    lacking = {kind_title(kind): None for kind in FAMILIES[family]}
    for each in present:
        lacking.pop(each.head, None)
    about = f"{_ABOUT[family]} {METRICS[metric].title}, means over five severities"
    about += f"{_LEFT_OUT[family]}."
    if lacking:
        about += f" Not evaluated: {', '.join(lacking)}; so there is no mean over kinds."
    return ShiftTable(f"{family}-kinds-{metric}", about, present)


def _present(sweep: Sweep, columns: list[Column]) -> tuple[Column, ...]:
    known = sweep.trials.notna().any() if len(sweep.trials) else pd.Series(dtype=bool)
    return tuple(each for each in columns if known.get(each.name, False))


def means(sweep: Sweep, table: ShiftTable) -> pd.DataFrame:
    """Compute mean and spread of each rung in each column, over ``n`` of its finished trials."""
    rows = []
    for rung in sweep.rungs:
        trials = sweep.of_rung(rung.index)
        for each in table.columns:
            values = trials[each.name].dropna().astype(float)
            rows.append(
                {
                    "rung": rung.index,
                    "label": rung.label,
                    "set": each.split,
                    "metric": each.metric,
                    "n": len(values),
                    "of": len(trials),
                    "mean": values.mean(),
                    "sd": values.std(ddof=1),
                }
            )
    return pd.DataFrame(rows)


def table(sweep: Sweep, shift: ShiftTable) -> Table:
    """Build the table; a rung with a trial at chance is never best or second."""
    every = means(sweep, shift)
    may_win = [not is_chance(sweep.flags(rung.index)) for rung in sweep.rungs]
    columns = {"rung": [Cell(sweep.label(rung)) for rung in sweep.rungs]}
    groups = {}
    for each in shift.columns:
        own: Any = every[(every["set"] == each.split) & (every["metric"] == each.metric)]
        head = f"{each.group}: {each.head}"
        groups[head] = (each.group, each.head)
        cells = [number_cell(each.metric, row.mean, row.sd) for row in own.itertuples()]
        columns[head] = [
            # A mean over some of the trials must not pass for one over all.
            replace(cell, text=f"{cell.text} (n = {row.n})") if 0 < row.n < row.of else cell
            for cell, row in zip(
                ranked(cells, METRICS[each.metric].direction, may_win),
                own.itertuples(),
                strict=True,
            )
        ]
    over = mean_over(sweep)
    return Table(
        shift.key,
        f"{sweep.manifest.title}. {shift.about} {over[0].upper()}{over[1:]}. {BEST}",
        records_of(columns),
        groups=groups,
        label=label_of(shift.key, sweep.manifest.dataset),
        notes=[f"{line}." for line in legend(sweep.flags())],
    )
