"""The trials of a search: which specs a suggestion needs, which have a row, what became of it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from tune_calib.errors import UserError
from tune_calib.paths import AnyPath
from tune_calib.results.selection import BASELINE_AT_CHANCE, describe_no_gain
from tune_calib.results.tables import read_table
from tune_calib.spec.ladder import PlannedTrial
from tune_calib.spec.metrics import METRICS, column, format_value
from tune_calib.spec.names import is_chance
from tune_calib.spec.space import Point
from tune_calib.tuning.progress.screen import current_tracker
from tune_calib.tuning.ray.plan import RayTrial
from tune_calib.tuning.search.candidates import Candidates
from tune_calib.tuning.search.objective import Objective, Row, Standing
from tune_calib.tuning.search.study import OPEN, SearchStudy, Suggestion

# Only these columns of ``trials``: all of them fill gigabytes.
KEPT = ("spec_hash", "status", "epoch", "network_seed", "flags", "select/*")


class MismatchError(UserError):
    """Counts that must agree do not."""


IN_SESSION = "{} Ray trials in this session"


@dataclass
class Ledger:
    """The state of a search as its driver knows it.

    Attributes:
        out: folder of the search.
        candidates: from points to specs.
        objective: what is searched for.
        study: suggestions and how they ended.
        rows: of the table ``trials`` by spec hash, without what the driver does not need.
        crashed: what trials died of, by spec hash.
        standings: of the suggestions that ended, by number.
        ended: Ray trials that ended in this session, by name.
    """

    out: AnyPath
    candidates: Candidates
    objective: Objective
    study: SearchStudy
    rows: dict[str, Row] = field(default_factory=dict)
    crashed: dict[str, str] = field(default_factory=dict)
    standings: dict[int, Standing] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    _hashes: dict[int, list[str]] = field(default_factory=dict)
    _started: set[str] = field(default_factory=set)
    _baseline: dict[int, float] = field(default_factory=dict)

    def read(self, name: str = "*") -> list[str]:
        """Take rows from disk: of one Ray trial, or all; returns their spec hashes."""
        table = read_table(self.out, "trials", name, columns=KEPT)
        hashes: list[str] = table["spec_hash"].to_pylist()
        self.rows |= zip(hashes, table.drop_columns("spec_hash").to_pylist(), strict=True)
        return hashes

    def hashes(self, suggestion: Suggestion) -> list[str]:
        """Return the spec hashes of a suggestion, one for each pair of seeds."""
        if suggestion.number not in self._hashes:
            trials = self.candidates.trials(suggestion.point, suggestion.number)
            self._hashes[suggestion.number] = [trial.spec.hash for trial in trials]
        return self._hashes[suggestion.number]

    def to_start(self, suggestions: Iterable[Suggestion]) -> list[PlannedTrial]:
        """Return the trials of suggestions that have no row and were not started yet."""
        new: dict[str, PlannedTrial] = {}
        for suggestion in suggestions:
            trials = self.candidates.trials(suggestion.point, suggestion.number)
            own = {trial.spec.hash: trial for trial in trials}
            self._hashes[suggestion.number] = list(own)
            new |= {k: t for k, t in own.items() if k not in self.rows and k not in self._started}
        self._started |= new.keys()
        return list(new.values())

    def collect(self, trial: RayTrial, error: str | None) -> None:
        """Note how a Ray trial ended: by its rows on disk, which stand above what Ray says."""
        self.ended.add(trial.name)
        if (self.out / "trials" / f"{trial.name}.parquet").exists():
            self.read(trial.name)
            return
        for planned in trial.trials:
            self.crashed[planned.spec.hash] = error or "no result row was written"

    def is_over(self, suggestion: Suggestion) -> bool:
        """Return whether every trial of a suggestion has a row or crashed."""
        return all(h in self.rows or h in self.crashed for h in self.hashes(suggestion))

    def settle(self, suggestion: Suggestion) -> None:
        """Judge a suggestion that is over, and tell the study unless it knows."""
        rows = [self.rows.get(spec_hash) for spec_hash in self.hashes(suggestion)]
        standing = self.objective.standing(rows, self.baseline)
        self.standings[suggestion.number] = standing
        # A study that knows is not told twice: Optuna would refuse.
        if not suggestion.is_finished:
            self.study.tell(suggestion.number, standing)

    def judge_all(self) -> None:
        """Judge every suggestion of a search that has ended."""
        if not self.judge_ended():
            raise UserError(f"the search is not over; first: tune-calib resume {self.out}")

    def judge_ended(self) -> bool:
        """Judge every suggestion that was told; returns whether none is open."""
        # Before the rows: beside a driver at work, what was told by now has its rows.
        states = self.study.states()
        self.read()
        self.standings.clear()
        ended = [number for number, state in enumerate(states) if state not in OPEN]
        for suggestion in self.study.suggestions(ended):
            self.settle(suggestion)
        return len(ended) == len(states)

    @property
    def baseline(self) -> Mapping[int, float]:
        """Accuracy on ``select`` of the baseline, by network seed."""
        if not self._baseline:
            for trial in self.candidates.baseline():
                row = self.rows.get(trial.spec.hash)
                if row is None or row["status"] != "done":
                    raise UserError(
                        f"the baseline network {_how_it_ended(row)}; the guard needs its accuracy: "
                        "change the network's settings (network.lr, ...) in a new `out`"
                    )
                accuracy = row[column("select", "accuracy")]
                self._baseline[trial.spec.network.seed] = accuracy
        return self._baseline

    def baseline_means(self, metrics: Iterable[str]) -> list[float]:
        """Means of metrics on ``select`` over the baseline's networks."""
        rows = [self.rows[trial.spec.hash] for trial in self.candidates.baseline()]
        return [fmean(row[column("select", name)] for row in rows) for name in metrics]

    def remarks(self) -> list[str]:
        """Return warnings about the choice and its baseline, a line each."""
        metrics = self.objective.metrics
        baseline = [self.rows[trial.spec.hash] for trial in self.candidates.baseline()]
        lines = [BASELINE_AT_CHANCE] if is_chance(r.get("flags") for r in baseline) else []
        number = self.objective.chosen(self.standings)
        if number is None:
            return lines
        values = dict(zip(metrics, self.standings[number].values, strict=True))
        means = dict(zip(metrics, self.baseline_means(metrics), strict=True))
        return [*lines, *describe_no_gain(metrics, means, values)]

    def choice(self) -> Point | None:
        """Return the settings of the choice, or None if no suggestion is within the guard."""
        number = self.objective.chosen(self.standings)
        return None if number is None else self.study.suggestion(number).point

    def best(self) -> str:
        """Describe the choice so far."""
        number = self.objective.chosen(self.standings)
        if number is None:
            return "none within the guard yet"
        metric, value = self.objective.metrics[0], self.standings[number].values[0]
        return f"best {METRICS[metric].title} {format_value(metric, value)} (trial {number})"

    def show(self) -> None:
        """Put on the screen how the suggestions ended, and the best so far."""
        if (shown := current_tracker()) is None:
            return
        ended: Counter[str] = Counter(standing.status for standing in self.standings.values())
        metrics = ("accuracy", *self.objective.metrics)
        means = zip(metrics, self.baseline_means(metrics), strict=True)
        told = ", ".join(
            f"{METRICS[name].title} {format_value(name, value)}" for name, value in means
        )
        guard = f"{100 * self.objective.guard:g} points of accuracy"
        notes = [
            f"so far: {self.best()}",
            f"baseline: {told}; guard: a trial may lose {guard}",
        ]
        shown.set_search(ended, notes)

    def reconcile(self, planned: int) -> str:
        """Compare what was planned with the study, the Ray trials and the rows on disk.

        Returns:
            The counts in one line.

        Raises:
            MismatchError: they disagree.
        """
        states = self.study.states()
        closed = [n for n, state in enumerate(states) if state not in OPEN]
        suggestions = self.study.suggestions(closed)
        expected = {h for suggestion in suggestions for h in self.hashes(suggestion)}
        expected |= {trial.spec.hash for trial in self.candidates.baseline()}
        hashes = read_table(self.out, "trials", columns=["spec_hash"])["spec_hash"].to_pylist()
        absent = sorted(expected - set(hashes) - self._crashed_for_good(suggestions))
        counts = Counter(states)
        line = (
            f"{planned} planned = {len(states)} trials of the study ("
            + ", ".join(f"{n} {state}" for state, n in sorted(counts.items()))
            + f"); {len(expected)} specs, {len(hashes)} result rows, "
            f"{IN_SESSION.format(len(self.ended))}"
        )
        wrong = {
            "the study has another number of trials": len(states) != planned,
            "the study has open trials": len(closed) < len(states),
            f"trials without a row ({', '.join(absent[:3])})": bool(absent),
            "a trial has two rows": len(set(hashes)) < len(hashes),
            "a row belongs to no trial": bool(set(hashes) - expected),
        }
        found = [text for text, is_so in wrong.items() if is_so]
        if found:
            raise MismatchError(f"{self.out}: {line}; {'; '.join(found)}; run it again")
        return line

    def _crashed_for_good(self, suggestions: list[Suggestion]) -> set[str]:
        crashed = [s for s in suggestions if self.standings[s.number].status == "crashed"]
        return {h for suggestion in crashed for h in self.hashes(suggestion)}


def _how_it_ended(row: Row | None) -> str:
    return "crashed" if row is None else str(row["status"])
