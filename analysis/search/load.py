"""A search as its folder holds it: what was asked, every suggestion, and what became of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.search.sensitivity import trials_of
from analysis.tidy import check_metric
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.paths import AnyPath
from tune_calib.results.folders import read_search_manifest
from tune_calib.results.manifests import ReadRecord, SearchEvaluated, SearchManifest, SearchOutcome
from tune_calib.results.selection import BASELINE_AT_CHANCE, describe_no_gain
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import SEARCH_EVALUATED, SEARCH_OUTCOME, STATUSES, is_chance
from tune_calib.text import nearest

_MOST_SHOWN = 6  # settings that figures show

Point = dict[str, Any]


@dataclass(frozen=True, eq=False)
class SearchResults:
    """A search.

    Attributes:
        out: its folder.
        manifest: ``search.json``: what was asked.
        outcome: ``outcome.json``: the space, every suggestion that ended, the choice, importance.
        trials: one row a trial; metrics are fractions.
        only_settings: the settings that figures show; the most important ones if empty.
        only_metric: the metric that figures show; those searched for if None.
    """

    out: AnyPath
    manifest: SearchManifest
    outcome: SearchOutcome
    trials: pd.DataFrame
    only_settings: tuple[str, ...] = ()
    only_metric: str | None = None

    @property
    def metrics(self) -> list[str]:
        """Return the metrics searched for, of which the first decides, or the chosen one."""
        return [self.only_metric] if self.only_metric else self.outcome.metrics

    @property
    def method(self) -> str:
        """Whose settings were searched."""
        return self.manifest.question.method

    @property
    def guard(self) -> float:
        """Accuracy on ``select`` that a choice may lose, a fraction."""
        return self.manifest.question.objective.guard

    @property
    def commands(self) -> list[str]:
        """What was run to make the search as long as it is, in its order."""
        told = self.manifest.commands
        if told is None:  # of an earlier version, which kept one: with these trials it may be short
            longer = f"tune-calib resume DIR --trials {self.manifest.trials}"
            return [self.manifest.command, longer]
        return [one.command for one in told]

    @property
    def reads(self) -> list[ReadRecord] | None:
        """Each look at the test split with its number of seeds; versions before told of none.

        None if the file that tells of them is damaged.
        """
        if not (self.out / SEARCH_EVALUATED).exists():
            return []
        try:
            return SearchEvaluated.read(self.out).reads
        except DamagedFileError:
            return None

    def remarks(self) -> list[str]:
        """What must be said of the choice and its baseline, a line each."""
        rows = self.trials.reindex(columns=["rung", "flags"])
        # In the rows of a search the rung is the suggestion; that of the baseline is -1.
        baseline = rows["flags"][rows["rung"] < 0]
        lines = [BASELINE_AT_CHANCE] if is_chance(baseline) else []
        if self.chosen is None:
            return lines
        means = (self.table(metric).set_index("number")["mean"] for metric in self.metrics)
        choice = {m: mean[self.chosen] for m, mean in zip(self.metrics, means, strict=True)}
        return [*lines, *describe_no_gain(self.metrics, self.outcome.baseline, choice)]

    @property
    def settings(self) -> list[str]:
        """Return the searched settings (``slot.key``), the most important ones first."""
        ranked = self.outcome.importance.shares.get(self.outcome.metrics[0], {})
        return [*ranked, *(name for name in self.outcome.settings if name not in ranked)]

    @property
    def defaults(self) -> Point:
        """The method's own settings on this data set, as values of ``table``."""
        return _plain(self.outcome.defaults)

    @property
    def published(self) -> list[Point]:
        """Further published settings, as values of ``table``."""
        return [_plain(point) for point in self.outcome.published]

    @property
    def chosen(self) -> int | None:
        """Number of the suggestion that the declared rule chooses, if one is within the guard."""
        return self.outcome.chosen

    def shown_settings(self) -> list[str]:
        """Return the chosen settings, else the most important ones with two values tried."""
        if self.only_settings:
            return list(self.only_settings)
        rows = self.table().dropna(subset="mean")
        return [name for name in self.settings if rows[name].nunique() > 1][:_MOST_SHOWN]

    def focus(self, settings: Sequence[str] = (), metric: str | None = None) -> "SearchResults":
        """Return the search with the settings and the metric that figures shall show.

        Args:
            settings: searched settings, as ``head.gamma`` or, where one slot has it, ``gamma``.
            metric: a metric recorded on ``select``.

        Raises:
            UserError: a setting was not searched or has one value; or no suggestion has the metric.
        """
        rows = self.table(metric).dropna(subset="mean")
        names = tuple(dict.fromkeys(map(self._find_setting, settings)))
        for name in names:
            if rows[name].nunique() < 2:
                raise UserError(
                    f"setting {name} has fewer than two values among the finished suggestions"
                )
        return replace(self, only_settings=names, only_metric=metric)

    def _find_setting(self, text: str) -> str:
        names = [name for name in self.settings if text in (name, name.partition(".")[2])]
        if not names:
            raise UserError(
                f"setting {text!r} was not searched{nearest(text, self.settings)}; "
                f"searched: {', '.join(self.settings)}"
            )
        if len(names) > 1:
            raise UserError(f"setting {text!r} is ambiguous; name {' or '.join(names)}")
        return names[0]

    def is_log(self, setting: str) -> bool:
        """Whether a setting is searched on a logarithmic scale."""
        return bool(self.outcome.settings[setting].get("log"))

    def are_defaults(self, table: pd.DataFrame) -> "pd.Series[bool]":
        """Which rows of ``table`` have the method's own settings."""
        are = pd.Series(True, index=table.index)
        for name in self.settings:
            # A setting that does not matter under the defaults must be absent: NaN equals nothing.
            value = self.defaults.get(name)
            are &= table[name].isna() if value is None else table[name] == value
        return are

    def counts(self) -> dict[str, int]:
        """Suggestions by status, ``missing`` (planned and not ended) last, none that is 0."""
        ended = Counter(entry.status for entry in self.outcome.suggestions)
        counts = {status: ended[status] for status in STATUSES}
        counts["missing"] = self.outcome.planned - sum(ended.values())
        return {status: count for status, count in counts.items() if count > 0}

    def ended(self) -> str:
        """``n = 80`` if every planned suggestion is done, else how many ended how."""
        counts = self.counts()
        if set(counts) == {"done"}:
            return f"n = {counts['done']}"
        return ", ".join(f"{count} {status}" for status, count in counts.items())

    def note(self) -> str:
        """How many suggestions stand behind a figure, as a sentence."""
        return f"{self.ended()} suggestions."

    def seeds(self) -> str:
        """What a value is the mean over, in words."""
        seeds = self.manifest.question.seeds
        networks, heads = len(seeds.network), len(seeds.head)
        if networks == heads == 1:
            return "one seed"
        if seeds.is_paired:
            return f"mean over {networks} seeds"
        return f"mean over {networks} network x {heads} head seeds"

    @cached_property
    def _values(self) -> pd.DataFrame:
        return self.trials.set_index("spec_hash")

    def table(self, metric: str | None = None) -> pd.DataFrame:
        """Every suggestion that ended, in the order in which they were made.

        Args:
            metric: a name of ``names.METRICS`` on ``select``; the first one searched for if None.

        Returns:
            One row a suggestion, of the form of ``sensitivity.fillings``: number, status, drop
            (accuracy lost against the baseline), is_within (done, and the drop is within the
            guard), flags (of all its trials, joined by commas), every setting as ``slot.key`` (NaN
            where it does not matter beside the others, ``null`` for None), mean, sd (with n - 1)
            and n over the seeds, bad (seeds without a number). Fractions where the metric is one;
            mean is NaN unless the suggestion is done.

        Raises:
            UserError: there is no such metric, or no suggestion has it.
        """
        metric = metric or self.metrics[0]
        check_metric(metric, of_search=True)
        name = column("select", metric)
        is_known = metric in (*self.metrics, "accuracy")  # there even if no suggestion is done
        if name not in self._values and not is_known:
            raise UserError(f"no {METRICS[metric].title} on select in these results")
        recorded = self._values.reindex(columns=[name])[name]
        rows = []
        for entry in self.outcome.suggestions:
            values = recorded.reindex(entry.specs)
            is_done = entry.status == "done"
            told = entry.model_dump(include={"number", "status", "drop", "is_within"})
            told["flags"] = ",".join(
                f for f in self._values["flags"].reindex(entry.specs).dropna() if f
            )
            # One diverged seed makes a suggestion no candidate: its other seeds are no mean of it.
            n = int(values.notna().sum()) if is_done else 0
            numbers = {"mean": values.mean(), "sd": values.std(ddof=1)} if is_done else {}
            rows.append({**told, **_plain(entry.point), **numbers, "n": n,
                         "bad": len(values) - n})  # fmt: skip
        names = ["number", "status", "drop", "is_within", "flags", *self.outcome.settings]
        frame = pd.DataFrame(rows, columns=[*names, "mean", "sd", "n", "bad"])
        numeric = dict.fromkeys(("drop", "mean", "sd"), float)
        return frame.astype({**numeric, "is_within": bool})

    def within_guard(self) -> pd.DataFrame:
        """``table`` without the values of suggestions that lose more accuracy than the guard.

        A low ECE at a low accuracy is no best to be near.
        """
        table = self.table()
        return table.assign(mean=table["mean"].where(table["is_within"]))


def _plain(point: Point) -> Point:
    """None as a text, so that it is told from a setting that does not matter."""
    return {name: "null" if value is None else value for name, value in point.items()}


def is_complete(out: AnyPath) -> bool:
    """Whether what a search found is stored, of all the suggestions that it plans.

    Raises:
        UserError: the folder holds no search, or its manifest is damaged.
    """
    asked = read_search_manifest(out).trials
    try:
        outcome = SearchOutcome.read(out)
    except (FileNotFoundError, DamagedFileError):
        return False
    # The manifest is told first that a search is to be longer, the outcome when it ended.
    return asked == outcome.asked and outcome.planned == len(outcome.suggestions)


def load_search(out: AnyPath) -> SearchResults:
    """Read a search.

    Args:
        out: its folder.

    Raises:
        UserError: the folder holds no search or no result, or a file of it is damaged.
    """
    manifest = read_search_manifest(out)
    if not (out / SEARCH_OUTCOME).exists():
        raise UserError(f"{out} holds no {SEARCH_OUTCOME}; first: tune-calib report {out}")
    try:
        outcome = SearchOutcome.read(out)
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; make it again: tune-calib report {out}") from None
    return SearchResults(out, manifest, outcome, trials_of(out))
