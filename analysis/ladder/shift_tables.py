"""Tables of shifted images: foreign ones (MaC-Cal, table 2; FeDLaS, table 3) and corruptions."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from analysis.ladder.means import mean_over
from analysis.load import Sweep
from analysis.published import published_titles
from analysis.shifts import FAMILIES, MEAN, OOD, SEVERITIES, foreign_sets, kind_title
from analysis.tables.latex import label_of
from analysis.tables.table import BEST, Table
from analysis.text import Cell, capital, full_stops, ranked, records_of
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import NOT_GENERATED, is_chance, legend

OOD_SHOWN = ("auroc", "aupr_in", "aupr_out", "fpr95", "auroc_entropy", "fpr95_entropy")
CORRUPTION_SHOWN = ("accuracy", "ece")

_ABOUT = {
    "ood": (
        "Detection of foreign images against the test split (positive) by the largest probability, "
        "or by the entropy where the column says so. AUPR depends on the numbers of images."
    ),
    "corrupt": "Published corruptions (CIFAR-10-C, CIFAR-100-C) of the images of the test split.",
    "generated": (
        "Corruptions generated from the test split, with the kinds and strengths of CIFAR-10-C and "
        "CIFAR-100-C but other random noise."
    ),
}
_LEFT_OUT = {"corrupt": "", "generated": f" ({', '.join(NOT_GENERATED)} is not generated)"}


@dataclass(frozen=True)
class Column:
    """A column of a shift table: a metric on a split, with its head and the head of its group."""

    group: str
    metric: str
    head: str
    split: str

    @property
    def name(self) -> str:
        """Return the column of the trials."""
        return column(self.split, self.metric)


@dataclass(frozen=True)
class ShiftTable:
    """A shift table with a row per rung: its key, caption and columns."""

    key: str
    about: str
    columns: tuple[Column, ...]


def shift_tables(sweep: Sweep) -> list[ShiftTable]:
    """Return the tables of the shift sets that trials were evaluated on."""
    known = sweep.trials.notna().any() if len(sweep.trials) else pd.Series(dtype=bool)
    sets = foreign_sets(str(name).rpartition("/")[0] for name in sweep.trials)
    own = {"noise": "Gaussian noise", MEAN: "mean over the sets"}
    titles = {**published_titles(), **sweep.manifest.titles, **own}
    foreign = [
        Column(titles.get(name, name), metric, METRICS[metric].head, f"{OOD}/{name}")
        for name in [*(each.split("/")[1] for each in sets), MEAN]
        for metric in OOD_SHOWN
    ]
    tables = [ShiftTable(OOD, _ABOUT[OOD], tuple(foreign))]
    for family, kinds in FAMILIES.items():
        about = f"{_ABOUT[family]} Means over {len(kinds)} kinds{_LEFT_OUT[family]}."
        parts = {f"severity {n}": f"/{n}" for n in SEVERITIES} | {"mean": ""}
        columns = [
            Column(METRICS[metric].head, metric, head, f"{family}/{MEAN}{part}")
            for metric in CORRUPTION_SHOWN
            for head, part in parts.items()
        ]
        tables.append(ShiftTable(f"{family}-severity", about, tuple(columns)))
        tables += [_by_kind(sweep, family, metric, known) for metric in CORRUPTION_SHOWN]
    present = [tuple(c for c in each.columns if known.get(c.name, False)) for each in tables]
    pairs = zip(tables, present, strict=True)
    return [replace(table, columns=columns) for table, columns in pairs if columns]


def _by_kind(sweep: Sweep, family: str, metric: str, known: "pd.Series[bool]") -> ShiftTable:
    evaluated = {n.split("/")[1] for n in map(str, sweep.trials) if n.startswith(f"{family}/")}
    kinds = dict.fromkeys([*FAMILIES[family], *sorted(evaluated - {MEAN})])
    columns = [
        Column(METRICS[metric].head, metric, kind_title(kind), f"{family}/{kind}/{MEAN}")
        for kind in kinds
    ]
    of_benchmark = columns[: len(FAMILIES[family])]
    lacking = [each.head for each in of_benchmark if not known.get(each.name, False)]
    about = f"{_ABOUT[family]} {METRICS[metric].title}, means over five severities"
    about += f"{_LEFT_OUT[family]}."
    if lacking:
        about += f" Not evaluated: {', '.join(lacking)}; there is therefore no mean over kinds."
    return ShiftTable(f"{family}-kinds-{metric}", about, tuple(columns))


def means(sweep: Sweep, table: ShiftTable) -> pd.DataFrame:
    """Compute the mean and spread of each rung in each column over its ``n`` evaluated trials."""
    rows = []
    for rung, each in product(sweep.rungs, table.columns):
        values = sweep.of_rung(rung.index)[each.name].astype(float)
        key = {"rung": rung.index, "label": rung.label, "set": each.split, "metric": each.metric}
        spread = {"mean": values.mean(), "sd": values.std()}
        rows.append(key | {"n": values.count(), "of": len(values)} | spread)
    return pd.DataFrame(rows)


def table(sweep: Sweep, shift: ShiftTable) -> Table:
    """Build the table; a rung with a trial at chance is never best or second."""
    every = means(sweep, shift)
    may_win = [not is_chance(sweep.flags(rung.index)) for rung in sweep.rungs]
    columns = {sweep.row_name: [Cell(sweep.label(rung)) for rung in sweep.rungs]}
    groups = {}
    for each in shift.columns:
        own: Any = every[(every["set"] == each.split) & (every["metric"] == each.metric)]
        rows = list(own.itertuples())
        cells = [Cell.number(each.metric, row.mean, row.sd) for row in rows]
        head = f"{each.group}: {each.head}"
        groups[head] = (each.group, each.head)
        columns[head] = [
            # A mean over some of the trials must not look like one over all.
            replace(cell, text=f"{cell.text} (n = {row.n})") if 0 < row.n < row.of else cell
            for cell, row in zip(
                ranked(cells, METRICS[each.metric].direction, may_win), rows, strict=True
            )
        ]
    return Table(
        shift.key,
        f"{sweep.manifest.title}. {shift.about} {capital(mean_over(sweep))}. {BEST}",
        records_of(columns),
        groups=groups,
        label=label_of(shift.key, sweep.manifest.dataset),
        notes=full_stops(legend(sweep.flags())),
    )
