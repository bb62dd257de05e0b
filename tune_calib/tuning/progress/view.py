"""How the work of a driver looks: as a live view, and as a line."""

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tune_calib.console import printable
from tune_calib.progress import Activity
from tune_calib.spec.metrics import METRICS, column, format_value
from tune_calib.tuning.progress.progress import Progress

BAR = 30
"""Columns of the bar."""

_IN_LINE = 4
"""Running Ray trials that a line names."""

_WIDEST = 24
"""Columns of what a Ray trial does."""

_SHOWN = ("accuracy", "ece")
"""Metrics on ``select`` of a Ray trial."""

_SPINNER = Spinner("dots")


class View:
    """What is drawn again and again in a terminal.

    Args:
        record: what the driver does.
    """

    def __init__(self, record: Progress) -> None:
        self.record = record

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> list[RenderableType]:
        """Title, bar, what is done now, notes, and a row a running Ray trial."""
        record = self.record
        parts: list[RenderableType] = [_title(record)]
        if record.total:
            parts.append(_bar(record))
        parts.append(_now(record))
        parts += [_text(f"  {note}") for note in record.notes]
        parts.append(_rows(record, (options.height or console.height) - len(parts) - 1))
        return [Group(*parts)]


def _text(words: str, style: str = "") -> Text:
    return Text(printable(words), style, no_wrap=True, overflow="ellipsis")


def _title(record: Progress) -> Text:
    title = _text(record.title, "bold")
    return title.append(f" · {printable(record.entry)}" if record.entry else "", "not bold")


def _bar(record: Progress) -> Table:
    line = Table.grid(padding=(0, 2))
    ended = min(record.total, sum(record.ended.values()))
    bar = ProgressBar(record.total, ended, width=BAR)
    line.add_row(bar, _text(", ".join(part for part in (_counts(record), _left(record)) if part)))
    return line


def _now(record: Progress) -> Table:
    line = Table.grid(padding=(0, 1))
    line.add_row(_SPINNER, _text(f"{clock(record.seconds)}  {_doing(record)}"))
    return line


def _rows(record: Progress, room: int) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    # Of a long name the end is left out first.
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=_WIDEST)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True, justify="right")
    running = list(record.running.values())
    fits = len(running) if len(running) <= room else max(0, room - 1)
    for row in running[:fits]:
        metrics, seconds = ", ".join(_metrics(row.activity)), clock(record.written - row.began)
        words = map(_text, (f"  {row.told}", _step(row.activity), metrics, seconds))
        table.add_row(*words, style="dim")
    if fits < len(running):
        table.add_row(f"  and {len(running) - fits} more")
    return table


def line(record: Progress) -> str:
    """What a pipe is told."""
    parts = [record.entry, f"{clock(record.seconds)} {_doing(record)}"]
    if record.total:
        parts += [_counts(record), _left(record)]
    parts += record.notes
    running = record.running.values()
    rows = [", ".join([r.told, _step(r.activity), *_metrics(r.activity)]) for r in running]
    more = [f"and {len(rows) - _IN_LINE} more"] if len(rows) > _IN_LINE else []
    parts += [f"running {row}" for row in rows[:_IN_LINE]] + more
    return "; ".join(part for part in parts if part)


def summary(record: Progress, seconds: float) -> str:
    """How a phase ended, after so many seconds."""
    return f"{record.phase}: {_counts(record)} in {clock(seconds)}"


def _counts(record: Progress) -> str:
    states = ", ".join(f"{n} {state}" for state, n in sorted(record.ended.items()) if n)
    ended = sum(record.ended.values())
    return f"{ended} of {record.total} {record.unit} ended" + (f" ({states})" if states else "")


def _left(record: Progress) -> str:
    if record.left_s is None:
        return ""
    return f"{'at least' if record.is_least else 'about'} {_duration(record.left_s)} left"


def _doing(record: Progress) -> str:
    if not record.running:
        return _step(record.activity)
    kinds = [f"{name} {k.ended} of {k.total}" for name, k in record.kinds.items() if k.total]
    # Of one kind alone the bar tells.
    told = [*(kinds if len(kinds) > 1 else []), f"{len(record.running)} running"]
    return f"{record.phase}: {', '.join(told)}"


def _step(activity: Activity) -> str:
    return activity.doing + (f" {activity.at}/{activity.of}" if activity.of else "")


def _metrics(activity: Activity) -> list[str]:
    """A name and a value each, those on ``select`` as tables print them."""
    values = {name: activity.metrics.get(column("select", name)) for name in _SHOWN}
    return [f"{METRICS[n].title} {format_value(n, v)}" for n, v in values.items() if v is not None]


def clock(seconds: float) -> str:
    """Hours where there are any, minutes and seconds: ``3:07``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
