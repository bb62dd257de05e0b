"""Generate the tables of replayed searches from the rows and decisions of the benchmark."""

from pathlib import Path

import pandas as pd
from scipy.stats import kendalltau

from docs.generate.page import table
from tests.benchmarks.replay import ANSWERS, REFERENCES, RULES
from tune_calib.spec.describe import code
from tune_calib.tuning.work.replay import Table, load_table

FOLDER = Path(__file__).parents[1] / "benchmarks"
_LEAST = 24  # suggestions, from which the rule for the defaults decides
_REPETITIONS = 50  # fewer ones are shown beside a median


def regrets() -> str:
    """Return a table for each tabulated search, and how well its surrogate predicts."""
    parts = []
    for path in sorted(FOLDER.glob("*-replay-nll.parquet")):
        name = path.name.removesuffix("-replay-nll.parquet")
        tabulated = load_table(str(path.with_name(f"{name}.parquet")))
        r2 = tabulated.record.r2["nll"]["final"]
        points = len(tabulated.points)
        text = f"{code(name)}, {points} points, R2 of the surrogate {r2:.2f}{_taus(tabulated)}:"
        parts += [text, _format(path)]
    return "\n\n".join(parts)


def _taus(tabulated: Table) -> str:
    """Describe how short schedules rank the points, if the table has several lengths."""
    *short, longest = tabulated.record.epochs
    if not short:
        return ""
    final = tabulated.curves[..., tabulated.metrics.index("nll"), -1].mean(axis=2)
    taus = [f"{kendalltau(ranks, final[:, -1]).statistic:.2f}" for ranks in final.T[:-1]]
    lengths = ", ".join(map(str, short))
    return f", Kendall's tau of {lengths} epochs with {longest}: {', '.join(taus)}"


def _format(path: Path) -> str:
    rows = pd.read_parquet(path)
    decided = pd.read_csv(path.with_suffix(".csv")).set_index(["answer", "budget", "rule"])
    decisions, epochs = decided["decision"].to_dict(), decided["share_of_epochs"].to_dict()
    budgets = sorted(set(rows.loc[rows["budget"] >= _LEAST, "budget"]))
    groups = rows.groupby(["answer", "budget", "rule"])["test"]
    medians, repetitions = groups.median().to_dict(), groups.size().to_dict()
    lines = []
    for rule in RULES:
        cells, shares = [rule], []
        for budget in budgets:
            for answer in ANSWERS:
                key = (answer, budget, rule)
                cell = "-"
                if key in medians:
                    decision = decisions.get(key, "open")
                    cell = _format_cell(medians[key], repetitions[key], decision)
                cells.append(cell)
            if (key := (ANSWERS[0], budget, rule)) in epochs:
                shares.append(f"{epochs[key]:.2f}")
        if rule in set(rows["rule"]):
            reference = REFERENCES.get(rule, "tpe")
            lines.append((*cells, " / ".join(shares) + f" of {reference}" if shares else "-"))
    titles = [f"{budget}, {answer}" for budget in budgets for answer in ANSWERS]
    return table(("Rule", *titles, "Epochs"), lines)


def _format_cell(median: float, repetitions: int, decision: str) -> str:
    cell = f"{1000 * median:.1f}"
    if repetitions < _REPETITIONS:
        cell += f" ({repetitions})"
    return cell if decision == "open" else f"{cell}, {decision}"
