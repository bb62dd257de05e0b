"""Read the manifest, outcome and trials of a search, and tabulate its suggestions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import pandas as pd

from analysis.load import read_trials
from analysis.text import Cell, by_status, format_ended
from analysis.tidy import check_metric
from tune_calib.errors import DamagedFileError, UserError
from tune_calib.files.paths import AnyPath
from tune_calib.results.folders import read_search_manifest
from tune_calib.results.manifests import ReadRecord, SearchEvaluated, SearchManifest, SearchOutcome
from tune_calib.results.selection import BASELINE_AT_CHANCE, describe_no_gain, find_lost
from tune_calib.results.tables import read_table
from tune_calib.spec.metrics import METRICS, column
from tune_calib.spec.names import ENDED_EARLY, SEARCH_EVALUATED, SEARCH_OUTCOME, is_chance
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.text import format_points, nearest

AT_CHANCE = "at chance"
_FIELDS = ("number", "status", "drop", "is_within")  # of a suggestion, as columns
_MOST_SHOWN = 6  # settings that figures show

Point = dict[str, Any]


@dataclass(frozen=True, eq=False)
class SearchResults:
    """The results of a search."""

    out: AnyPath
    manifest: SearchManifest
    outcome: SearchOutcome
    trials: pd.DataFrame  # one row per trial; metrics are fractions
    only_settings: tuple[str, ...] = ()  # for figures; if empty, the most important ones
    only_metric: str | None = None  # for figures; if None, the metrics searched for

    @property
    def metrics(self) -> list[str]:
        """Return the metrics searched for, the first of which decides, or ``only_metric``."""
        return [self.only_metric] if self.only_metric else self.outcome.metrics

    @property
    def metrics_and_accuracy(self) -> list[str]:
        return list(dict.fromkeys([*self.metrics, "accuracy"]))

    @property
    def reads(self) -> list[ReadRecord] | None:
        """Return the recorded test reads; None if the record is damaged."""
        if not (self.out / SEARCH_EVALUATED).exists():
            return []
        try:
            return SearchEvaluated.read(self.out).reads
        except DamagedFileError:
            return None

    @property
    def fixed(self) -> Point:
        return ResolvedRequest(self.manifest.question.given).fixed

    @property
    def chosen(self) -> Point:
        chosen = self.outcome.chosen
        return next((s.point for s in self.outcome.suggestions if s.number == chosen), {})

    def warnings(self) -> list[str]:
        # In a search, the column ``rung`` has the number of the suggestion, -1 for the baseline.
        baseline = self.trials.loc[self.trials["rung"] < 0, "flags"]
        lines = [BASELINE_AT_CHANCE] if is_chance(baseline) else []
        if self.outcome.chosen is not None:
            choice = {}
            for metric in self.metrics:
                means = self.table(metric).set_index("number")["mean"]
                choice[metric] = means[self.outcome.chosen]
            lines += describe_no_gain(self.metrics, self.outcome.baseline, choice)
        return lines

    @property
    def settings(self) -> list[str]:
        """Return the searched settings (``slot.key``), the most important ones first."""
        ranked = self.outcome.importance.shares.get(self.outcome.metrics[0], {})
        return list(dict.fromkeys([*ranked, *self.outcome.settings]))

    @property
    def defaults(self) -> Point:
        """Return the method's own settings on this data set, as values of ``table``."""
        return _plain(self.outcome.defaults)

    def others_of(self, setting: str) -> list[Any]:
        """Return the published values of a setting that are not the method's own."""
        points = list(map(_plain, self.outcome.published))
        values = dict.fromkeys(point[setting] for point in points if setting in point)
        return [value for value in values if value != self.defaults.get(setting)]

    def shown_settings(self) -> list[str]:
        """Return ``only_settings``, else the most important settings with more than one value."""
        if self.only_settings:
            return list(self.only_settings)
        rows = self.figure_table().dropna(subset="mean")
        return [name for name in self.settings if rows[name].nunique() > 1][:_MOST_SHOWN]

    def focus(self, settings: Sequence[str] = (), metric: str | None = None) -> "SearchResults":
        """Select the settings (``head.gamma`` or ``gamma``) and the metric of figures."""
        rows = self.figure_table(metric).dropna(subset="mean")
        chosen = []
        for text in settings:
            names = [name for name in self.settings if text in (name, name.partition(".")[2])]
            if not names:
                raise UserError(
                    f"setting {text!r} was not searched{nearest(text, self.settings)}; "
                    f"searched: {', '.join(self.settings)}"
                )
            if len(names) > 1:
                raise UserError(f"setting {text!r} is ambiguous; name {' or '.join(names)}")
            if rows[names[0]].nunique() < 2:
                raise UserError(
                    f"setting {names[0]} has fewer than two values among the finished suggestions"
                )
            chosen += names
        return replace(self, only_settings=tuple(dict.fromkeys(chosen)), only_metric=metric)

    def are_defaults(self, table: pd.DataFrame) -> "pd.Series[bool]":
        """Return which rows of ``table`` have the method's own settings."""
        are = pd.Series(True, index=table.index)
        for name in self.settings:
            # Without a default the setting does not apply and must be absent, as NaN.
            value = self.defaults.get(name)
            are &= table[name].isna() if value is None else table[name] == value
        return are

    def specs_of(self, number: int | None) -> list[str]:
        """Return the spec hashes of a suggestion; none if there is no such suggestion."""
        return next((s.specs for s in self.outcome.suggestions if s.number == number), [])

    def counts(self) -> dict[str, int]:
        """Count suggestions by status, with ``missing`` (planned but not ended) last."""
        counts = Counter(map(attrgetter("status"), self.outcome.suggestions))
        counts["missing"] = self.outcome.planned - counts.total()
        return by_status(counts)

    def ended(self) -> str:
        """Return ``n = 80`` if every planned suggestion is done, else the counts by status."""
        return format_ended(self.counts())

    def note(self) -> str:
        at_chance = int(self.figure_table()["status"].eq(AT_CHANCE).sum())
        rest = f"; {at_chance} at chance have no value here" if at_chance else ""
        return f"{self.ended()} suggestions{rest}."

    def long_note(self) -> str:
        lost = f"at most {format_points(self.manifest.question.objective.guard)} of accuracy lost"
        return f"Each suggestion: {self.seeds()}; {self.note()[:-1]}; guard: {lost}."

    def seeds(self) -> str:
        """Describe the seeds of a suggestion, e.g. ``mean over 3 seeds``."""
        seeds = self.manifest.question.seeds
        networks, heads = len(seeds.network), len(seeds.head)
        if networks == heads == 1:
            return "one seed"
        if seeds.is_paired:
            return f"mean over {networks} seeds"
        return f"mean over {networks} network x {heads} head seeds"

    def table(self, metric: str | None = None) -> pd.DataFrame:
        """Return one row per suggestion that ended, in the order in which they were made.

        Columns: number, status, drop (accuracy lost against the baseline), is_within (done, and the
        drop is within the guard), flags (of all its trials, joined by commas), every setting as
        ``slot.key`` (NaN if it does not apply, ``null`` for None), mean, sd (ddof 1) and n over the
        seeds, bad (seeds without a value). Values are fractions; mean is NaN unless it is done.
        """
        metric = metric or self.metrics[0]
        check_metric(metric, of_search=True)
        name = column("select", metric)
        is_known = metric in (*self.metrics, "accuracy")  # also if no suggestion is done
        if name not in self.trials and not is_known:
            raise UserError(f"no {METRICS[metric].title} on select in these results")
        trials = self.trials.reindex(columns=["spec_hash", name, "flags"]).set_index("spec_hash")
        values, flags = trials[name].to_dict(), trials["flags"].dropna().to_dict()
        rows, values_by_row = [], []
        for entry in self.outcome.suggestions:
            row = {
                **{field: getattr(entry, field) for field in _FIELDS},
                "flags": ",".join(filter(None, (flags.get(spec) for spec in entry.specs))),
                **_plain(entry.point),
                "bad": 0 if entry.status in ENDED_EARLY else len(entry.specs),
            }
            rows.append(row)
            values_by_row.append([values.get(spec) for spec in entry.specs])
        names = [*_FIELDS, "flags", *self.outcome.settings, "mean", "sd", "n", "bad"]
        frame = pd.DataFrame(rows, columns=names)
        # A suggestion that ended early or with a diverged seed has no mean: it is no candidate.
        is_done, by_seed = frame["status"] == "done", pd.DataFrame(values_by_row, dtype=float)
        frame["mean"] = by_seed.mean(axis="columns").where(is_done)
        frame["sd"] = by_seed.std(axis="columns").where(is_done)
        frame["n"] = by_seed.count(axis="columns").where(is_done, 0)
        frame["bad"] -= frame["n"]
        return frame.astype({"drop": float, "is_within": bool})

    def figure_table(self, metric: str | None = None) -> pd.DataFrame:
        """Return ``table`` for figures; suggestions at chance have that status and no mean."""
        table = self.table(metric)
        # The ECE of a network at chance is near 0 and would stretch the scale.
        at_chance = table["flags"].map(lambda flags: is_chance([flags]))
        status = table["status"].mask(at_chance, AT_CHANCE)
        return table.assign(status=status, mean=table["mean"].mask(at_chance))

    def within_guard(self) -> pd.DataFrame:
        table = self.table()
        return table.assign(mean=table["mean"].where(table["is_within"]))


def setting_cell(value: Any) -> Cell:
    """Return the cell of a setting's value; ``-`` if the setting does not apply."""
    if isinstance(value, float):
        return Cell.formatted(value, ".3g")
    return Cell.of(value)


def _plain(point: Point) -> Point:
    """Return a point with ``null`` for None; a setting that does not apply is absent."""
    return {name: "null" if value is None else value for name, value in point.items()}


def is_complete(out: AnyPath) -> bool:
    """Return whether the stored outcome of a search covers all planned suggestions."""
    trials = read_search_manifest(out).trials
    try:
        outcome = SearchOutcome.read(out)
    except (FileNotFoundError, DamagedFileError):
        return False
    rows = read_table(out, "trials", columns=["spec_hash"])
    if find_lost(outcome, rows["spec_hash"].to_pylist()):
        return False
    # The manifest is written when a search is extended, and the outcome when it ends.
    return trials == outcome.asked and outcome.planned == len(outcome.suggestions)


def load_search(out: AnyPath) -> SearchResults:
    manifest = read_search_manifest(out)
    if not (out / SEARCH_OUTCOME).exists():
        raise UserError(f"{out} contains no {SEARCH_OUTCOME}; run: tune-calib report {out}")
    try:
        outcome = SearchOutcome.read(out)
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; write it again: tune-calib report {out}") from None
    trials = read_trials(out)
    if trials.empty:
        raise UserError(f"{out} contains no results of trials")
    # Without baselines of fewer epochs.
    return SearchResults(out, manifest, outcome, trials[trials["rung"] >= -1])
