"""The report of a ladder: tables, figures, and the text that is printed."""

from collections import Counter
from pathlib import Path

import pandas as pd

from analysis import figures, reliability, style, tables
from analysis.ladder import ladder_table
from analysis.load import Sweep, load
from analysis.samples import caption, draw_samples, last_epochs, render, sample_statistics
from tune_calib.results import atomic_write


def write_report(out: Path) -> str:
    """Write ``tables/`` and ``figures/`` of a sweep.

    Args:
        out: folder of the sweep.

    Returns:
        What to print: the table, what is missing or diverged, the files that were written.

    Raises:
        UserError: the folder holds no sweep, or a file of it is damaged.
    """
    sweep = load(out)
    if sweep.trials.empty:
        return f"{out}: no result yet, {sweep.missing} trials planned"
    statistics = sample_statistics(out)
    written = _write_tables(sweep, statistics, out / "tables")
    written += _write_figures(sweep, statistics, out / "figures")
    lines = [tables.plain(sweep), *_troubles(sweep)]
    return "\n".join([*lines, "Written: " + ", ".join(str(path) for path in written)])


def _write_tables(sweep: Sweep, statistics: pd.DataFrame, folder: Path) -> list[Path]:
    texts = {
        "ladder.md": tables.markdown(sweep),
        "ladder.tex": tables.latex(sweep),
        "ladder.csv": ladder_table(sweep).to_csv(index=False),
    }
    if len(statistics):
        last = last_epochs(sweep, statistics)
        texts["samples.md"] = render(last, "github") + f"\n\n{caption(sweep)}\n"
        texts["samples.tex"] = render(last, "latex_booktabs") + "\n"
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
    }
    return [
        style.save(figure, folder, name)[0] for name, figure in drawn.items() if figure is not None
    ]


def _troubles(sweep: Sweep) -> list[str]:
    """One line for each way in which a trial ended badly."""
    bad = sweep.trials[sweep.trials["status"] != "done"]
    told = Counter(zip(bad["rung_label"], bad["status"], bad["message"], strict=True))
    return [f"{n} x {label}: {state}, {message}" for (label, state, message), n in told.items()]


def status(out: Path) -> str:
    """Say what of a sweep is done.

    Raises:
        UserError: the folder holds no sweep, or a file of it is damaged.
    """
    sweep = load(out)
    planned = len(sweep.manifest["planned"])
    lines = [f"{out}: {planned - sweep.missing} of {planned} trials have a result"]
    lines += [f"  {rung['label']}: {sweep.statuses(rung['index'])}" for rung in sweep.rungs]
    return "\n".join([*lines, f"again or go on: {sweep.manifest['command']}"])
