"""Tables of a reproduction: our numbers next to the paper's, and the verdicts on its claims."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.compare.claims import Verdict, gain_of
from analysis.ladder.means import ladder_table
from analysis.load import Run
from analysis.published import printed_name, published, titled
from analysis.reproduction.quantities import QUANTITIES, RANK, printed_of
from analysis.shifts import FOREIGN_MEAN, OOD, foreign_sets
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import Cell, Record
from analysis.tidy import parted
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS, Metric, column
from tune_calib.spec.reproduction import Claim, Comparison, Reproduction
from tune_calib.text import format_count

Key = tuple[str, str]
_PRINTED_AS = {FOREIGN_MEAN: "ood/average"}
PAPERS_SETS = ("cifar10", "cifar100", "svhn")  # over which papers print means, without their own
COLUMNS = (
    "run", "dataset", "backbone", "row", "rung", "split", "metric", "n", "mean", "sd",
    "paper_dataset", "paper_backbone", "paper", "difference",
)  # fmt: skip

# Columns of the verdicts in CSV, with attributes of ``VerdictRow``.
NUMBERS = {
    "folder": "folder", "claim": "verdict.claim.text", "kind": "verdict.comparison.kind",
    "metric": "verdict.comparison.metric", "rung": "verdict.comparison.rung",
    "than": "verdict.than", "number": "verdict.comparison.number",
    "least": "verdict.comparison.least", "verdict": "verdict.outcome",
    "difference": "verdict.difference", "low": "verdict.low", "high": "verdict.high",
    "seeds": "verdict.pairs", "seeds_to_decide": "verdict.seeds", "why": "reasons",
    "is_ours": "verdict.claim.is_ours", "is_part": "is_part",
    "is_elsewhere": "is_elsewhere", "paper": "printed",
}  # fmt: skip

DECIDED = ("held", "not held")  # outcomes
SEEDS_ONLY = "over seeds only"
MISFIT = "†"
"""Mark of a verdict on heads whose views the networks do not fit."""
RULE = (
    "A claim is held, or not held, if the 95 % interval of its paired difference is entirely on "
    "one side of the claimed value. The interval is over seeds and test samples (over seeds only "
    "for quantities that are not metrics). A claim with several parts is held if each part is. It "
    "is not held if a part is not held with Bonferroni's correction for the number of parts, whose "
    "interval is wider than the printed one: a claim may be undecided although that interval is "
    "entirely on the other side. The numbers are those of the part that decides. For frozen "
    "networks, the pairs are the networks, averaged over the seeds of their heads. The seeds to "
    "decide are those needed if difference and spread stayed the same; a dash: no number is known. "
    "There is no verdict if the "
    "base network is not over-confident, if the only rung that a claim compares with is more "
    "under-confident than the base network is over-confident, or if no trial has a value of a "
    f"quantity that is not a metric. {MISFIT}: heads on networks that do not fit the views of "
    "train that heads see, unlike the papers'"
)


def compare_with_print(table: Reproduction, entry: str, run: Run) -> pd.DataFrame:
    """Return our numbers of a run and the printed ones, one row per (rung, metric, column).

    The printed columns are those of the run's data set, or of its backbone alone if there is one.
    Shift sets that were not evaluated have none. Values are fractions, NaN if missing.
    """
    rows: list[tuple[object, ...]] = []
    backbone = "/".join(map(str, run.trials["backbone"].dropna().unique()))
    dataset = run.manifest.dataset
    papers_sets = [f"{OOD}/{name}" for name in PAPERS_SETS if name != dataset]
    is_papers_mean = foreign_sets(run.splits) == papers_sets
    names = {rung.index: _name(table, entry, rung) for rung in run.rungs}
    for name in table.metrics:
        metric, shift_set = parted(name)
        split = shift_set or "test"
        if shift_set is not None and column(split, metric) not in run.trials:
            continue
        printed = _printed(table, metric, split)
        of_dataset = [key for key in printed if key[0] == dataset]
        of_network = [key for key in of_dataset if key[1] == backbone]
        keys = of_network or of_dataset or list(printed) or [("", "")]
        # Seconds on different machines are not comparable.
        is_of_machine = metric in QUANTITIES and not QUANTITIES[metric].over
        is_same = (split != FOREIGN_MEAN or is_papers_mean) and not is_of_machine
        ours = ladder_table(run, [metric], split).set_index("rung")
        for rung in run.rungs:
            statistics: Any = ours.loc[rung.index]
            row = names[rung.index]
            for key in keys:
                paper = printed.get(key, {}).get(row, math.nan)
                difference = math.nan
                if is_same and key[0] in (dataset, "average"):
                    difference = statistics["mean"] - paper
                rows.append((
                    run.out.name, dataset, backbone, row, rung.label, split, metric,
                    statistics["n"], statistics["mean"], statistics["sd"], *key, paper, difference,
                ))  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _name(table: Reproduction, entry: str, rung: RungRecord) -> str:
    """Return the paper's name of a rung, or its label if the paper has none."""
    name = table.entries[entry].printed.get(rung.label, rung.published)
    if not name and table.published:
        name = printed_name(table.published, rung.label)
    return name or rung.label


def _printed(table: Reproduction, metric: str, split: str) -> Mapping[Key, Mapping[str, float]]:
    """Return printed values by data set and backbone, and then by row, in printed order."""
    columns = defaultdict[Key, dict[str, float]](dict)
    if table.published is None:
        return columns
    rows = published(table.published)
    quantity = QUANTITIES.get(metric)
    name = quantity.printed if quantity else metric
    rows = rows[(rows["metric"] == name) & (rows["split"] == _PRINTED_AS.get(split, split))]
    for row in rows.to_dict("records"):
        columns[row["dataset"], row["backbone"]][row["method"]] = float(row["value"])
    if quantity and quantity.over:
        for values in columns.values():
            values.update(pd.Series(values) / values[quantity.over])
    return columns


def describe_print(
    table: Reproduction, entry: str, rungs: Sequence[RungRecord], claim: Claim
) -> str:
    """Describe the printed comparisons of a claim and how many support it; empty if none."""
    names = {rung.label: _name(table, entry, rung) for rung in rungs}
    texts = []
    for comparison in claim.comparisons:
        metric, split = parted(comparison.metric)
        values = []
        for values_by_row in _printed(table, metric, split or "test").values():
            rows = pd.Series(values_by_row)
            if comparison.kind == "rank":
                rows = rows.rank(ascending=METRICS[metric].is_less_better)
            for than in comparison.others:
                weights = comparison.weigh(than)
                if {names.get(label) for label in weights} <= set(rows.index):
                    value = sum(weight * rows[names[label]] for label, weight in weights.items())
                    if len(weights) == 1:
                        value -= comparison.number
                    values.append(value)
        if values:
            record = _format_of(comparison)
            ends = (record.format(value, signed=True) for value in (min(values), max(values)))
            span = " to ".join(dict.fromkeys(ends))
            least = -1e-12 if comparison.kind in ("size", "close", "ratio") else 1e-12
            count = sum(gain_of(comparison, value) > least for value in values)
            texts.append(f"{span}; {count} of {len(values)} printed comparisons support it")
    return "; ".join(texts)


def printed_table(frame: pd.DataFrame) -> Table:
    """Return the table of ``compare_with_print``; heads name the printed column if several."""
    has_several = len(_printed_columns(frame)) > 1
    records = []
    for _, rows in frame.groupby("rung", sort=False):
        cells: Record = {"row": Cell(str(rows["row"].iloc[0]))}
        for row in rows.to_dict("records"):
            record = printed_of(str(row["metric"]))
            title = f"{row['split']}: {record.head}".removeprefix("test: ")
            cells[title] = Cell.number(record, row["mean"], row["sd"])
            if row["paper_dataset"]:
                where = ""
                if has_several:
                    names = dict.fromkeys([str(row["paper_dataset"]), str(row["paper_backbone"])])
                    where = f" ({titled(names)})"
                cells[f"{title}, paper{where}"] = Cell.number(record, row["paper"])
                cells[f"{title}, Δ{where}"] = Cell.number(record, row["difference"], signed=True)
        records.append(cells)
    return Table("", "", records).without_blank()


def paper_of(frame: pd.DataFrame) -> str:
    columns = _printed_columns(frame)
    return f"Paper: {titled(dict.fromkeys(columns[0]))}" if len(columns) == 1 else ""


def _printed_columns(frame: pd.DataFrame) -> list[Key]:
    names = frame.loc[frame["paper_dataset"] != "", ["paper_dataset", "paper_backbone"]]
    return list(names.drop_duplicates().itertuples(index=False, name=None))


@dataclass(frozen=True)
class VerdictRow:
    """A verdict with the folder and setting of its results."""

    folder: str
    where: str
    verdict: Verdict
    is_reduced: bool = False  # to networks trained on a part of the training images
    is_part: bool = False  # of the mean in the claim; for information, not counted
    is_elsewhere: bool = False  # on another network than the claim names; not counted either
    printed: str = ""  # printed values, and the number of them that support the claim
    late: int = 0  # seeds added after the first verdict
    misfits_views: bool = False  # whether it is on heads whose views the networks do not fit

    @property
    def is_counted(self) -> bool:
        """Whether the verdict counts among those on what the paper claims."""
        return not (self.is_part or self.is_elsewhere or self.verdict.claim.is_ours)

    @property
    def outcome(self) -> str:
        """Return the outcome with its marks: parentheses for information, and ``MISFIT``."""
        outcome: str = self.verdict.outcome
        if self.is_elsewhere:
            outcome = f"({outcome} elsewhere)"
        elif self.is_part:
            outcome = f"({outcome})"
        return f"{outcome} {MISFIT}" if self.misfits_views else outcome

    @property
    def reasons(self) -> str:
        """Explain an interval over seeds only, and the lack of a decision."""
        reasons = [self.verdict.why]
        if self.verdict.comparison.metric in QUANTITIES and self.verdict.pairs:
            reasons.insert(0, SEEDS_ONLY)
        return "; ".join(filter(None, reasons))


def describe_plan(lock: Mapping[str, Any]) -> str:
    """Describe the plan of the claims of a table; empty for a table without a lock file."""
    if not lock:
        return ""
    if not lock.get("plan"):
        return "No plan was written before the first trial. "
    seeds = dict.fromkeys(map(str, lock["plan"]["seeds"].values()))
    count = format_count(len(lock["plan"]["claims"]), "claim")
    return (
        f"Planned before the first trial: {count}, with these tests and margins, over "
        f"{' or '.join(seeds)} seeds. "
    )


def claims_table(folder: str, rows: Sequence[VerdictRow], plan: str = "") -> Table:
    records: list[Record] = []
    for row in rows:
        verdict, metric = row.verdict, _format_of(row.verdict.comparison)
        is_decided, late = verdict.outcome in DECIDED, f" ({row.late} added after a look)"
        seeds = f"{verdict.pairs}{late if row.late else ''}"
        records.append(
            {
                "claim": Cell(title_of(verdict.claim)),
                "results": Cell(row.where),
                "verdict": Cell(row.outcome),
                "compared": Cell(_describe_compared(verdict)),
                "difference": Cell.number(metric, verdict.difference, signed=True),
                "95 %": Cell.span(metric, verdict.low, verdict.high, signed=True),
                "seeds": Cell(seeds, float(verdict.pairs)),
                "seeds to decide": Cell("decided") if is_decided else Cell.of(verdict.seeds),
                "paper": Cell(row.printed),
                "why": Cell(row.reasons),
            }
        )
    first = ["verdict", "results", "difference", "seeds to decide"]
    label = label_of(folder, "claims")
    caption = f"{plan}{RULE}."
    if any(row.late for row in rows):
        caption += " Adding seeds until a verdict is as wanted makes a false one likelier than 5 %."
    return Table("claims", caption, records, first=first, label=label, is_main=True)


def _format_of(comparison: Comparison) -> Metric:
    if comparison.kind == "rank":
        return RANK
    return printed_of(parted(comparison.metric)[0])


def _describe_compared(verdict: Verdict) -> str:
    """Describe the weighted sum of rungs that a verdict is about, e.g. ``ECE: gate - base``."""
    comparison = verdict.comparison
    metric = printed_of(parted(comparison.metric)[0])
    if comparison.kind == "trend":
        return f"{metric.title}: slope from {comparison.rung} to {comparison.than[-1]}"
    # The comparison is with a rung or with a number.
    other = verdict.than or Cell.number(metric, comparison.number).text
    if comparison.kind == "ratio":
        other = f"{comparison.least:g} x {other}"
    text = f"{metric.title}: {comparison.rung} - {other}"
    if comparison.less:
        text += f" - ({' - '.join(comparison.less)})"
    if comparison.kind == "rank":
        text = f"rank by {text}"
    return text


def title_of(claim: Claim) -> str:
    """Return the text of a claim, marked if the paper does not state it."""
    return f"Not in the paper: {claim.text}" if claim.is_ours else claim.text
