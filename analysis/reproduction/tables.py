"""Tables of a reproduction: our numbers next to the paper's, and the verdicts on its claims."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import pandas as pd

from analysis.compare.claims import Verdict, gain_of
from analysis.ladder.means import ladder_table
from analysis.load import Sweep
from analysis.published import printed_name, published, titled
from analysis.reproduction.quantities import QUANTITIES, RANK, printed_of
from analysis.shifts import FOREIGN_MEAN, OOD, foreign_sets
from analysis.tables.latex import label_of
from analysis.tables.table import Table
from analysis.text import Cell, Record
from analysis.tidy import parted
from tune_calib.results.manifests import RungRecord
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.reproduction import Claim, Comparison, Reproduction

Key = tuple[str, str]
_PRINTED_AS = {FOREIGN_MEAN: "ood/average"}
COLUMNS = (
    "run", "dataset", "backbone", "row", "rung", "split", "metric", "n", "mean", "sd",
    "paper_dataset", "paper_backbone", "paper", "difference",
)  # fmt: skip

# Columns of the verdicts in CSV, with attributes of ``Judged``.
_NUMBERS = {
    "folder": "folder", "claim": "verdict.claim.text", "kind": "verdict.comparison.kind",
    "metric": "verdict.comparison.metric", "rung": "verdict.comparison.rung",
    "than": "verdict.than", "number": "verdict.comparison.number",
    "least": "verdict.comparison.least", "verdict": "verdict.outcome",
    "difference": "verdict.difference", "low": "verdict.low", "high": "verdict.high",
    "seeds": "verdict.pairs", "seeds_to_decide": "verdict.seeds", "why": "verdict.why",
    "is_ours": "verdict.claim.is_ours", "is_part": "is_part", "paper": "printed",
}  # fmt: skip

SEEDS_ONLY = "over seeds only"
RULE = (
    "A claim is held, or not held, if the 95 % interval of its paired difference is entirely on "
    "one side of the claimed value. The interval is over seeds and test samples (over seeds only "
    "for quantities that are not metrics). A claim with several parts is held if each part is. It "
    "is not held if a part is not held with Bonferroni's correction for the number of parts, whose "
    "interval is wider than the printed one: a claim may be undecided although that interval is "
    "entirely on the other side. The numbers are those of the part that decides. For frozen "
    "networks, the pairs are the networks, averaged over the seeds of their heads. The seeds to "
    "decide are those needed if difference and spread stayed the same. There is no verdict if the "
    "base network is not over-confident, or if no trial has a value of a quantity that is not a "
    "metric"
)


def compare_with_print(table: Reproduction, run: str, sweep: Sweep) -> pd.DataFrame:
    """Return our numbers of a run and the printed ones, one row per (rung, metric, column).

    The printed columns are those of the run's data set, or of its backbone alone if there is one.
    Shift sets that were not evaluated have none. Values are fractions, NaN if missing.
    """
    rows: list[tuple[object, ...]] = []
    backbone = "/".join(map(str, sweep.trials["backbone"].dropna().unique()))
    dataset = sweep.manifest.dataset
    sets = foreign_sets(str(name).rpartition("/")[0] for name in sweep.trials)
    others = {"svhn", "cifar10", "cifar100"} - {dataset}
    is_papers_mean = sets == sorted(f"{OOD}/{name}" for name in others)
    names = {rung.index: _name(table, run, rung) for rung in sweep.rungs}
    for name in table.metrics:
        metric, own_split = parted(name)
        split = own_split or "test"
        if own_split is not None and column(split, metric) not in sweep.trials:
            continue
        printed = _printed(table, metric, split)
        every: list[Key] = list(dict.fromkeys((data, name) for data, name, _ in printed))
        same = [key for key in every if key[0] == dataset]
        keys = [key for key in same if key[1] == backbone] or same or every
        # Seconds on different machines are not comparable.
        is_of_machine = metric in QUANTITIES and not QUANTITIES[metric].over
        is_same = (split != FOREIGN_MEAN or is_papers_mean) and not is_of_machine
        ours = ladder_table(sweep, [metric], split).set_index("rung")
        for rung in sweep.rungs:
            own = ours.loc[rung.index]
            for key in keys or [("", "")]:
                row = names[rung.index]
                paper = printed.get((*key, row), math.nan)
                is_comparable = key[0] in (dataset, "average") and is_same
                difference = own["mean"] - paper if is_comparable else math.nan
                rows.append((
                    sweep.out.name, dataset, backbone, row, rung.label, split, metric,
                    own["n"], own["mean"], own["sd"], *key, paper, difference,
                ))  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _name(table: Reproduction, run: str, rung: RungRecord) -> str:
    if name := table.entries[run].printed.get(rung.label, rung.published):
        return name
    named = printed_name(table.published, rung.label) if table.published else None
    return named or rung.label


def _printed(table: Reproduction, metric: str, split: str) -> dict[tuple[str, str, str], float]:
    """Return printed values by data set, backbone and row, in printed order."""
    if table.published is None:
        return {}
    rows = published(table.published)
    own = QUANTITIES.get(metric)
    name = own.printed if own else metric
    rows = rows[(rows["metric"] == name) & (rows["split"] == _PRINTED_AS.get(split, split))]
    keys = zip(rows["dataset"], rows["backbone"], rows["method"], strict=True)
    found = dict(zip(keys, rows["value"].astype(float), strict=True))
    if own and own.over:
        return {key: value / found[(*key[:2], own.over)] for key, value in found.items()}
    return found


def describe_print(table: Reproduction, run: str, rungs: Sequence[RungRecord], claim: Claim) -> str:
    """Describe the printed comparisons of a claim and how many support it; empty if none."""
    names = {rung.label: _name(table, run, rung) for rung in rungs}
    parts = [_print_of(table, names, one) for one in claim.comparisons]
    return "; ".join(part for part in parts if part)


def _print_of(table: Reproduction, names: Mapping[str, str], comparison: Comparison) -> str:
    metric, split = parted(comparison.metric)
    printed = _printed(table, metric, split or "test")
    gains, values = [], []
    for where in dict.fromkeys(key[:2] for key in printed):
        rows = pd.Series({key[2]: value for key, value in printed.items() if key[:2] == where})
        if comparison.kind == "rank":
            rows = rows.rank(ascending=METRICS[metric].is_less_better)
        for than in comparison.others:
            weights = comparison.weigh(than)
            if {names.get(label) for label in weights} <= set(rows.index):
                value = sum(weight * rows[names[label]] for label, weight in weights.items())
                values.append(value - (0.0 if len(weights) > 1 else comparison.number))
                gains.append(gain_of(comparison, values[-1]))
    if not values:
        return ""
    record = RANK if comparison.kind == "rank" else printed_of(metric)
    low, high = (record.format(value, signed=True) for value in (min(values), max(values)))
    span = low if low == high else f"{low} to {high}"
    least = -1e-12 if comparison.kind in ("size", "close", "ratio") else 1e-12
    held = sum(gain > least for gain in gains)
    return f"{span}; {held} of {len(gains)} printed comparisons support it"


def printed_table(key: str, caption: str, frame: pd.DataFrame, label: str = "") -> Table:
    """Return the table of ``compare_with_print``; heads name the printed column if several."""
    several = len(_printed_columns(frame)) > 1
    found = []
    for _, own in frame.groupby("rung", sort=False):
        cells: Record = {"row": Cell(str(own["row"].iloc[0]))}
        for row in own.to_dict("records"):
            metric = str(row["metric"])
            of = "" if row["split"] == "test" else f"{row['split']}: "
            record = printed_of(metric)
            title = f"{of}{record.head}"
            cells[title] = Cell.number(record, row["mean"], row["sd"])
            if row["paper_dataset"]:
                column = (str(row["paper_dataset"]), str(row["paper_backbone"]))
                where = f" ({titled(dict.fromkeys(column))})" if several else ""
                cells[f"{title}, paper{where}"] = Cell.number(record, row["paper"])
                change = Cell.number(record, row["difference"], signed=True)
                cells[f"{title}, Δ{where}"] = change
        found.append(cells)
    return Table(key, caption, found, label=label).without_blank()


def paper_of(frame: pd.DataFrame) -> str:
    """Return the source of the printed numbers; empty if there are several."""
    keys = _printed_columns(frame)
    return f"Paper: {titled(dict.fromkeys(keys[0]))}" if len(keys) == 1 else ""


def _printed_columns(frame: pd.DataFrame) -> list[Key]:
    keys = zip(frame["paper_dataset"], frame["paper_backbone"], strict=True)
    return [key for key in dict.fromkeys(keys) if key[0]]


@dataclass(frozen=True)
class Judged:
    """A verdict with the folder and setting of its results."""

    folder: str
    where: str
    verdict: Verdict
    is_reduced: bool = False  # to networks trained on a part of the training images
    is_part: bool = False  # of the mean in the claim; for information, not counted
    printed: str = ""  # printed values, and the number of them that support the claim


def claims_table(folder: str, judged: Sequence[Judged]) -> Table:
    """Return the table of verdicts, a row per claim and base network."""
    rows: list[Record] = []
    for one in judged:
        verdict, comparison = one.verdict, one.verdict.comparison
        metric = printed_of(parted(comparison.metric)[0])
        # The comparison is with a rung or with a number.
        other = verdict.than or Cell.number(metric, comparison.number).text
        factor = f"{comparison.least:g} x " if comparison.kind == "ratio" else ""
        less = f" - ({' - '.join(comparison.less)})" if comparison.less else ""
        compared = f"{metric.title}: {comparison.rung} - {factor}{other}{less}"
        if comparison.kind == "trend":
            compared = f"{metric.title}: slope from {comparison.rung} to {comparison.than[-1]}"
        if comparison.kind == "rank":
            metric, compared = RANK, f"rank by {compared}"
        rows.append(
            {
                "claim": Cell(title_of(verdict.claim)),
                "results": Cell(one.where),
                "verdict": Cell(f"({verdict.outcome})" if one.is_part else verdict.outcome),
                "compared": Cell(compared),
                "difference": Cell.number(metric, verdict.difference, signed=True),
                "95 %": Cell.span(metric, verdict.low, verdict.high, signed=True),
                "seeds": Cell.of(verdict.pairs),
                "seeds to decide": Cell.of(verdict.seeds),
                "paper": Cell(one.printed),
                "why": Cell(_reasons(verdict)),
            }
        )
    first = ["verdict", "results", "difference", "seeds to decide"]
    label = label_of(folder, "claims")
    return Table("claims", f"{RULE}.", rows, first=first, label=label, is_main=True)


def title_of(claim: Claim) -> str:
    """Return the text of a claim, marked if the paper does not state it."""
    return f"Not in the paper: {claim.text}" if claim.is_ours else claim.text


def _reasons(verdict: Verdict) -> str:
    """Explain an interval over seeds only, and the lack of a decision."""
    is_alone = verdict.comparison.metric in QUANTITIES and verdict.pairs
    return "; ".join(filter(None, [SEEDS_ONLY if is_alone else "", verdict.why]))


def claim_numbers(judged: Sequence[Judged]) -> pd.DataFrame:
    """Return the verdicts as a frame, with fractions."""
    rows = [attrgetter(*_NUMBERS.values())(one) for one in judged]
    why = [_reasons(one.verdict) for one in judged]
    return pd.DataFrame(rows, columns=list(_NUMBERS)).assign(why=why)
