"""Values of one metric in matched blocks, which paired tests and Friedman's compare.

A block is what the compared values share: a seed, or a (data set, backbone) column.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from analysis.compare.gather import column_name
from analysis.compare.ranks import RankTable
from analysis.compare.regime import regime_of
from analysis.load import Sweep
from analysis.tidy import flags_of_methods, incomplete, tidy
from tune_calib.spec.names import legend, signed


@dataclass(frozen=True, eq=False)
class Matched:
    """Values of one metric in matched blocks; NaN where a method has no number."""

    metric: str
    unit: str  # what a block is, in words
    values: pd.DataFrame  # index block, columns method in the order of the sweep
    fixed: tuple[str, ...] = ()  # methods of one trial, whose value stands in every block
    notes: tuple[str, ...] = ()  # what is missing, and the network check
    flags: Mapping[str, list[str]] = field(default_factory=dict)  # of the trials of each method

    def label(self, method: str) -> str:
        """Return the name of a method with the signs of its flags, as a table prints it."""
        return signed(method, self.flags.get(method, []))

    def legend(self) -> list[str]:
        """Explain the signs."""
        return [f"{line}." for line in legend(c for own in self.flags.values() for c in own)]


def over_seeds(sweep: Sweep, metric: str, split: str = "test") -> Matched:
    """Match the trials of a sweep by their seeds.

    Heads on one network are no independent repetitions of it, so with several networks a block is
    a network, its head seeds averaged. With one network a block is a head seed, and the number of
    the network's own head is the same in all of them.
    """
    rows = tidy(sweep, [metric], split)
    labels = [rung.label for rung in sweep.rungs]
    is_paired, networks = sweep.manifest.paired_seeds, len(sweep.manifest.network_seeds)
    is_by_network = is_paired or networks > 1 or rows["head_seed"].isna().all()
    block = "network_seed" if is_by_network else "head_seed"
    # The network's own head has no head seed: its number is put into every block below.
    matching = rows.dropna(subset=block)
    values = matching.pivot_table(index=block, columns="method", values="value", dropna=False)
    # A pivot sorts the methods by name, and lacks those without any row.
    values = values.reindex(columns=labels)
    checked = (f"{regime_of(sweep).sentence}.", *incomplete(sweep, metric))
    flags = flags_of_methods(rows)
    if is_by_network:
        unit = "network seed" if is_paired else "network seed, head seeds averaged"
        return Matched(metric, unit, values, (), checked, flags)
    own = rows[rows["head_seed"].isna()].dropna(subset="value").groupby("method")["value"].mean()
    notes = [f"{method} has one trial, which stands in every block" for method in own.index]
    return Matched(
        metric,
        "head seed on one network, which tells nothing of other networks",
        values.assign(**{str(method): value for method, value in own.items()}),
        fixed=tuple(map(str, own.index)),
        notes=(*notes, *checked),
        flags=flags,
    )


def over_columns(table: RankTable) -> Matched:
    """Match the methods of a rank table by its columns, seeds averaged."""
    values = table.values.T.set_axis([column_name(key) for key in table.values.columns.to_list()])
    unit = "(data set, backbone) column"
    return Matched(table.metric, unit, values, (), table.notes, table.flags)
