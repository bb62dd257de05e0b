"""The report of a ladder: tables, figures, a page, and the text that is printed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tabulate import tabulate

from analysis import latex
from analysis.compare import significance_tables
from analysis.compare.paired import PAIRED_TESTS
from analysis.compare.significance import are_rivals
from analysis.ladder import recipes, shift_tables, tables
from analysis.ladder.means import ladder_table
from analysis.ladder.results import LadderResults
from analysis.ladder.samples import caption, last_epochs, records
from analysis.ladder.sections import page
from analysis.load import Sweep, load
from analysis.page.figures import draw_all, in_order
from analysis.published import beside
from analysis.text import texts
from tune_calib.console import Text
from tune_calib.errors import UserError
from tune_calib.folders import LOST
from tune_calib.names import METRICS, column, metrics_of_trials
from tune_calib.places import Place, folder_to_fill
from tune_calib.registry import LADDER_FIGURES, nearest
from tune_calib.results import atomic_write
from tune_calib.wording import counted


def write_report(
    out: Place,
    published: str | None = None,
    test: str | None = None,
    regime: bool = False,
    metrics: Sequence[str] = (),
    intervals: bool = False,
) -> str:
    """Write ``tables/``, ``figures/`` and ``report.html`` of a sweep.

    Args:
        out: folder of the sweep.
        published: a published table to put beside it, e.g. ``fedlas/table1``; None for the one
            that its ladder follows.
        test: paired test of methods side by side against the first, ``wilcoxon`` (unless given)
            or ``t``; a ladder has none.
        regime: columns of the regime in the table.
        metrics: of the table, of ``names.METRICS``; the usual ones if there are none.
        intervals: of the means over the test samples instead of the spread over seeds.

    Returns:
        What to print: the table, what is missing or diverged, the files that were written.

    Raises:
        UserError: the folder holds no sweep, or a file of it is damaged, or there is no such
            published table or test, or no result has a metric or an interval that is asked for.
    """
    shown = tuple(dict.fromkeys(metrics))
    sweep = replace(load(out), shows_regime=regime, shown=shown, shows_intervals=intervals)
    if published is not None:
        sweep = beside(sweep, published)
    if sweep.trials.empty:
        return f"{out}: no result yet, {counted(sweep.missing, 'trial')} planned"
    _check_test(sweep, test)
    _check_shown(sweep)
    results = LadderResults(sweep, test or PAIRED_TESTS[0])
    options = [] if test is None else ["--test", test]
    if published is not None:
        options = ["--published", published, *options]
    options += ["--regime"] * regime
    options += [word for name in shown for word in ("--metric", name)]
    options += ["--intervals"] * intervals
    with folder_to_fill(out) as folder:
        names, remarks = _write_all(results, folder, options)
    told = [*tables.printed(sweep), *recipes.printed(sweep), *_troubles(sweep), *remarks]
    return Text([*told, "Written:", *(f"  {out / name}" for name in names)])


def _check_test(sweep: Sweep, test: str | None) -> None:
    if test is None:
        return
    if test not in PAIRED_TESTS:
        raise UserError(f"unknown --test {test!r}{nearest(test, list(PAIRED_TESTS))}")
    if not are_rivals(sweep):
        raise UserError("--test is of methods side by side; the steps of a ladder are no rivals")


def _check_shown(sweep: Sweep) -> None:
    for metric in sweep.shown:
        if metric not in METRICS:
            raise UserError(f"unknown metric {metric!r}{nearest(metric, metrics_of_trials())}")
        if not METRICS[metric].is_of_trials:
            raise UserError(
                f"{METRICS[metric].title} is not of the test split alone: of foreign images it is "
                "in the table of what the sweep was looked at on by --shift"
            )
        name = column("test", metric)
        if name not in sweep.trials or sweep.trials[name].isna().all():
            raise UserError(
                f"no result here has {METRICS[metric].title} on test; those of before it was "
                "recorded have it not"
            )
    if sweep.shows_intervals and sweep.intervals.empty:
        raise UserError(
            "no result here has intervals; run the sweep's command again with --bootstrap 1000"
        )


def _write_all(
    results: LadderResults, out: Path, options: list[str]
) -> tuple[list[str], list[str]]:
    """Write every file of a report.

    Returns:
        Paths of the files in the folder, and a line for each figure that there is not.
    """
    contents = _ladder_texts(results.sweep)
    if len(results.intervals):
        contents["intervals.csv"] = results.intervals.to_csv(index=False)
    contents |= shift_tables.texts(results.sweep)
    contents |= {**_sample_texts(results), **_test_texts(results)}
    for name, text in contents.items():
        atomic_write(out / "tables" / name, text.encode())
    # After the tables: a figure that fails hard must not cost them.
    gallery = draw_all(in_order(LADDER_FIGURES), results, out / "figures")
    files = [f"tables/{name}" for name in contents]
    files += [path.relative_to(out).as_posix() for path in gallery.paths]
    # Last, since it embeds the figures and links to every other file.
    atomic_write(out / "report.html", page(results, gallery, files, options).encode())
    return [*files, "report.html"], gallery.remarks


def _ladder_texts(sweep: Sweep) -> dict[str, str]:
    """The table of the ladder, and how its rungs were trained, by names of files."""
    found = {
        "ladder.md": tables.markdown(sweep),
        "ladder.tex": tables.latex(sweep),
        "ladder.csv": ladder_table(sweep).to_csv(index=False),
    }
    if told := recipes.render(sweep, "github"):
        found["ladder.md"] += f"\n{recipes.NOTE}\n\n{told}\n"
        found["recipes.tex"] = recipes.render(sweep, "latex_booktabs") + "\n"
        found["recipes.csv"] = recipes.differing(sweep).to_csv(index=False)
    return found


def _sample_texts(results: LadderResults) -> dict[str, str]:
    """The table of single samples by names of files; none if no method judges them."""
    sweep = results.sweep
    if results.statistics.empty:
        return {}
    last = last_epochs(sweep, results.statistics)
    if last.empty:
        return {}
    rows, told = records(last), caption(sweep, last)
    body = tabulate(texts(rows), headers="keys", tablefmt="github", disable_numparse=True)
    label = latex.label_of("samples", sweep.manifest.dataset)
    return {
        "samples.md": f"{body}\n\n{told}\n",
        "samples.tex": f"{latex.render(latex.of_records(rows, told, label))}\n",
        "samples.csv": last.to_csv(index=False),
    }


def _test_texts(results: LadderResults) -> dict[str, str]:
    """The verdicts on methods side by side by names of files; none of a ladder."""
    if not results.verdicts:
        return {}
    told = "\n\n".join(significance_tables.markdown(verdict) for verdict in results.verdicts)
    return {
        "significance.md": f"{told}\n",
        "significance.csv": f"{significance_tables.csv(results.verdicts[0])}\n",
    }


def _troubles(sweep: Sweep) -> list[str]:
    """One line for each way in which a trial ended badly."""
    bad = sweep.trials[sweep.trials["status"] != "done"]
    messages = bad["message"].fillna("no message")
    told = Counter(zip(bad["rung_label"], bad["status"], messages, strict=True))
    return [f"{n} x {label}: {state}, {message}" for (label, state, message), n in told.items()]


def sweep_status(out: Place) -> str:
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
