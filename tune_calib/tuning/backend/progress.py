"""One live display in a terminal, one line a minute elsewhere."""

import sys
import time
from collections import Counter
from typing import Any, Self

from ray import tune
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tune_calib.names import METRICS
from tune_calib.remarks import shown as told

LINE_EVERY_S = 60.0


class Display:
    """Counts of some Ray trials, the last report of each that runs, and a note.

    Args:
        title: what they do, e.g. ``"networks and heads"``.
        total: how many there are, at most.
    """

    def __init__(self, title: str, total: int) -> None:
        self.title = title
        self.total = total
        self.note = ""
        self.counts: Counter[str] = Counter()
        self.running: dict[str, str] = {}
        self.started = time.monotonic()
        self.last_line = self.started
        # Ray hands the progress of a notebook or a log file no terminal to draw on.
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, transient=True) if sys.stderr.isatty() else None

    def __enter__(self) -> Self:
        """Begin to show."""
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Show how they ended."""
        if self.live is not None:
            self.live.stop()
        self.console.print(self._line(), highlight=False)

    def ended(self, state: str, name: str = "") -> None:
        """Count what ended."""
        self.counts[state] += 1
        self.running.pop(name, None)
        self.show()

    def _line(self) -> str:
        elapsed = time.monotonic() - self.started
        ended = sum(self.counts.values())
        states = ", ".join(f"{n} {state}" for state, n in sorted(self.counts.items()))
        line = f"{self.title}: {ended}/{self.total} ended ({states or 'none yet'}), {elapsed:.0f} s"
        return f"{line}; {self.note}" if self.note else line

    def _table(self) -> Table:
        table = Table(title=self._line(), show_header=False, title_justify="left")
        for name, report in self.running.items():
            table.add_row(name, report)
        return table

    def show(self) -> None:
        """Draw again, or print a line if the last one is old."""
        if self.live is not None:
            self.live.update(self._table())
        elif time.monotonic() - self.last_line >= LINE_EVERY_S:
            self.last_line = time.monotonic()
            running = "; ".join(f"{name} {report}" for name, report in self.running.items())
            line = f"{self._line()}; running: {running}" if running else self._line()
            self.console.print(line, highlight=False, soft_wrap=True)


class Progress(Display, tune.Callback):
    """A display that Ray Tune keeps up to date."""

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Ray pickles its callbacks for a restore, which is not used."""
        return {}

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any
    ) -> None:
        """Note the epoch that a trial has reached; a closer look has none."""
        shown = {"epoch": result["epoch"]} if "epoch" in result else {}
        for name in ("train/loss", "select/accuracy", "select/ece"):
            if name in result:
                shown[name] = _value(name, result[name])
        self.running[_name(trial)] = " ".join(f"{key} {value}" for key, value in shown.items())
        self.show()

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """Count an ended trial under the status that it reported."""
        self.ended(trial.last_result.get("status", "stopped"), _name(trial))

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        """Count a crashed trial."""
        self.ended("crashed", _name(trial))


def _value(name: str, value: float) -> str:
    metric = name.rpartition("/")[2]
    return told(metric, value) if metric in METRICS else f"{value:.4f}"


def _name(trial: Any) -> str:
    return str(trial.config["work"]["name"])
