"""The report of a ladder: tables, figures, and the text that is printed."""

from collections import Counter
from pathlib import Path

import pandas as pd
from tabulate import tabulate

from analysis import latex, style
from analysis.compare import significance_tables
from analysis.compare.resampling import over_samples
from analysis.compare.significance import PAIRED_TESTS, Verdict, are_rivals, for_report
from analysis.ladder import recipes, tables
from analysis.ladder.figures import cost, reliability
from analysis.ladder.figures import tradeoff as figures
from analysis.ladder.figures.corruption import draw_corruption
from analysis.ladder.figures.norm_confidence import draw_norm_confidence, last_records
from analysis.ladder.figures.prototypes import draw_prototypes
from analysis.ladder.figures.samples import (
    caption,
    draw_samples,
    last_epochs,
    records,
    sample_statistics,
)
from analysis.ladder.ladder import ladder_table
from analysis.load import Sweep, load
from analysis.page import page
from analysis.published import beside
from tune_calib.errors import UserError
from tune_calib.folders import LOST
from tune_calib.places import Place, folder_to_fill
from tune_calib.registry import nearest
from tune_calib.results import atomic_write
from tune_calib.wording import counted

_UNDRAWN = {
    "reliability": "no trial that is done has bins",
    "sparsity": "no rung has a keep probability q that moves",
    "tradeoff": "no trial that is done has accuracy and ECE on test",
    "confidence": "no trial that is done has bins",
    "cost": "no trial that is done has its seconds or memory",
}
_UNDRAWN_OF_SAMPLES = {
    "norm_confidence": "these records of single samples are older than that of their confidence",
}


def write_report(out: Place, published: str | None = None, test: str | None = None) -> str:
    """Write ``tables/``, ``figures/`` and ``report.html`` of a sweep.

    Args:
        out: folder of the sweep.
        published: a published table to put beside it, e.g. ``fedlas/table1``; None for the one
            that its ladder follows.
        test: paired test of methods side by side against the first, ``wilcoxon`` (unless given)
            or ``t``; a ladder has none.

    Returns:
        What to print: the table, what is missing or diverged, the files that were written.

    Raises:
        UserError: the folder holds no sweep, or a file of it is damaged, or there is no such
            published table or test.
    """
    sweep = load(out) if published is None else beside(load(out), published)
    if sweep.trials.empty:
        return f"{out}: no result yet, {counted(sweep.missing, 'trial')} planned"
    _check_test(sweep, test)
    verdicts = for_report(sweep, test or PAIRED_TESTS[0])
    options = [] if test is None else ["--test", test]
    if published is not None:
        options = ["--published", published, *options]
    with folder_to_fill(out) as folder:
        written, undrawn = _write_all(sweep, verdicts, folder, options)
        names = [path.relative_to(folder).as_posix() for path in written]
    differ = [recipes.NOTE, told] if (told := recipes.render(sweep, "simple")) else []
    lines = [tables.console_table(sweep), *differ, *_troubles(sweep), *undrawn, "Written:"]
    return "\n".join([*lines, *(f"  {out / name}" for name in names)])


def _check_test(sweep: Sweep, test: str | None) -> None:
    if test is None:
        return
    if test not in PAIRED_TESTS:
        raise UserError(f"unknown --test {test!r}{nearest(test, list(PAIRED_TESTS))}")
    if not are_rivals(sweep):
        raise UserError("--test is of methods side by side; the steps of a ladder are no rivals")


def _write_all(
    sweep: Sweep, verdicts: list[Verdict], out: Path, options: list[str]
) -> tuple[list[Path], list[str]]:
    """Write every file of a report; also gives a line for each figure that there is not."""
    statistics = sample_statistics(sweep.out)
    intervals = over_samples(sweep)
    written = _write_tables(sweep, statistics, intervals, out / "tables")
    written += _write_figures(sweep, statistics, out / "figures")
    written += _write_significance(verdicts, out)
    drawn = {path.stem for path in written}
    reasons = _UNDRAWN | (_UNDRAWN_OF_SAMPLES if len(statistics) else {})
    undrawn = [f"{name}: not drawn, {why}" for name, why in reasons.items() if name not in drawn]
    undrawn += [
        f"critical_difference: not drawn, {verdict.friedman.statement}"
        for verdict in verdicts
        if verdict.friedman is not None and verdict.friedman.statement
    ]
    content = page.Report(sweep, out, written, statistics, intervals, verdicts, undrawn, options)
    atomic_write(out / "report.html", page.render(content).encode())
    return [*written, out / "report.html"], undrawn


def _write_tables(
    sweep: Sweep, statistics: pd.DataFrame, intervals: pd.DataFrame, folder: Path
) -> list[Path]:
    texts = {
        "ladder.md": tables.markdown(sweep),
        "ladder.tex": tables.latex(sweep),
        "ladder.csv": ladder_table(sweep).to_csv(index=False),
    }
    if told := recipes.render(sweep, "github"):
        texts["ladder.md"] += f"\n{recipes.NOTE}\n\n{told}\n"
        texts["recipes.tex"] = recipes.render(sweep, "latex_booktabs") + "\n"
        texts["recipes.csv"] = recipes.differing(sweep).to_csv(index=False)
    if len(intervals):
        texts["intervals.csv"] = intervals.to_csv(index=False)
    if len(statistics):
        last = last_epochs(sweep, statistics)
        rows, told = records(last), caption(sweep, last)
        body = tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True)
        texts["samples.md"] = f"{body}\n\n{told}\n"
        label = latex.label_of("samples", sweep.manifest.dataset)
        texts["samples.tex"] = f"{latex.render(latex.of_records(rows, told, label))}\n"
        texts["samples.csv"] = last.to_csv(index=False)
    for name, text in texts.items():
        atomic_write(folder / name, text.encode())
    return [folder / name for name in texts]


def _write_figures(sweep: Sweep, statistics: pd.DataFrame, folder: Path) -> list[Path]:
    style.apply()
    drawn = {
        "reliability": reliability.draw(sweep),
        "sparsity": figures.draw_sparsity(sweep),
        "tradeoff": figures.draw_tradeoff(sweep),
        "samples": draw_samples(sweep, statistics),
        "confidence": reliability.draw_confidence(sweep),
        "norm_confidence": draw_norm_confidence(sweep, last_records(sweep.out, sweep)),
        "cost": cost.draw_cost(sweep),
        "corruption": draw_corruption(sweep),
        "prototypes": draw_prototypes(sweep),
    }
    return [
        path
        for name, figure in drawn.items()
        if figure is not None
        for path in style.save(figure, folder, name)
    ]


def _write_significance(verdicts: list[Verdict], out: Path) -> list[Path]:
    if not verdicts:
        return []
    paired, friedman = verdicts
    texts = {
        "significance.md": "\n\n".join(significance_tables.markdown(v) for v in verdicts),
        "significance.csv": significance_tables.csv(paired),
    }
    for name, text in texts.items():
        atomic_write(out / "tables" / name, f"{text}\n".encode())
    figure = significance_tables.draw_critical_difference(friedman.friedman)
    paths = style.save(figure, out / "figures", "critical_difference") if figure else []
    return [*(out / "tables" / name for name in texts), *paths]


def _troubles(sweep: Sweep) -> list[str]:
    """One line for each way in which a trial ended badly."""
    bad = sweep.trials[sweep.trials["status"] != "done"]
    messages = bad["message"].fillna("no message")
    told = Counter(zip(bad["rung_label"], bad["status"], messages, strict=True))
    return [f"{n} x {label}: {state}, {message}" for (label, state, message), n in told.items()]


def status(out: Place) -> str:
    """Say what of a sweep is done.

    Raises:
        UserError: the folder holds no sweep, or a file of it is damaged.
    """
    sweep = load(out)
    planned = len(sweep.manifest.planned)
    counts = ", ".join(f"{count} {status}" for status, count in sweep.counts().items())
    lines = [f"{out}: {counted(planned, 'trial')} planned: {counts}"]
    lines += [f"  {rung.label}: {sweep.statuses(rung.index)}" for rung in sweep.rungs]
    if sweep.manifest.is_lost:
        lines.append(LOST)
    return "\n".join([*lines, f"again or go on: {sweep.manifest.command}"])
