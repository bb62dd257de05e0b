"""Plan the path from the published to the chosen settings of a search (Fawcett and Hoos, 2016).

The order of its steps is found on ``select`` with seeds of its own. Test is read once, for the
points of the path and for the chosen point without each factor.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from analysis.search.load import is_complete
from tune_calib.errors import UserError
from tune_calib.files.paths import AnyPath, parse_path
from tune_calib.results.folders import read_search_manifest
from tune_calib.results.manifests import VERSION, ReadRecord, SearchEvaluated, SearchOutcome
from tune_calib.results.selection import BASELINE, PATH
from tune_calib.results.tables import read_table
from tune_calib.spec.design import fit_design
from tune_calib.spec.ladder import Cell, Design, Factor, Kind, Ladder, Rung
from tune_calib.spec.request import AblateRequest
from tune_calib.spec.resolved import Seeds
from tune_calib.spec.space import Point
from tune_calib.text import format_setting
from tune_calib.tuning.folder import Result
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.plan import Plan, Stage
from tune_calib.tuning.run import check_run
from tune_calib.tuning.search.evaluate import find_evaluated
from tune_calib.tuning.search.run import SearchRun, load_search, refuse_other_specs
from tune_calib.tuning.search.state import COLUMNS

MOST_FACTORS = 8
SEEDS = 5
_STEP_SEEDS = Seeds((2000, 2001), (2000, 2001), is_paired=True)
"""Seeds that find the order; those of searches begin at 0 or 1000, and test has further ones."""


@dataclass(frozen=True)
class SelectRun(LadderRun):
    """A ladder whose trials do not read test."""

    is_search: ClassVar = True


@dataclass(frozen=True)
class FinishedSearch:
    """A finished search and its choice."""

    search: SearchRun
    outcome: SearchOutcome
    number: int
    chosen: Point
    published: Point

    @classmethod
    def read(cls, folder: str, address: str | None) -> "FinishedSearch":
        """Read the choice of a search; refuse an unfinished one, or one without a choice."""
        out = parse_path(folder)
        read_search_manifest(out)
        if not is_complete(out):
            raise UserError(f"the search is not finished; run tune-calib resume {out} first")
        outcome = SearchOutcome.read(out)
        if outcome.chosen is None:
            raise UserError(f"{out}: no trial keeps the accuracy; raise `guard` in a new search")
        search = load_search(out, None, address)
        refuse_other_specs(out, search.definition.candidates)
        points = {suggestion.number: suggestion.point for suggestion in outcome.suggestions}
        return cls(search, outcome, outcome.chosen, points[outcome.chosen], outcome.defaults)

    def build_rung(self, point: Point, label: str, kind: Kind, ingredient: str = "") -> Rung:
        """Build the rung of a point."""
        rung = self.search.definition.candidates.rung(point, label)
        return replace(rung, kind=kind, ingredient=ingredient)

    def rank(self, name: str) -> int:
        """Return the place of a setting by its importance in the search, else by its order."""
        ranked = self.outcome.importance.shares.get(self.outcome.metrics[0], {})
        return list(dict.fromkeys([*ranked, *self.outcome.settings])).index(name)

    def find_factors(self) -> dict[str, tuple[str, ...]]:
        """Return the settings of each factor by its name, the most important one first.

        A setting that matters in one of the points only belongs to the setting that it depends on.
        """
        groups: dict[str, list[str]] = {}
        settings = self.search.definition.candidates.space.settings
        for name, setting in settings.items():
            if self.published.get(name, ...) == self.chosen.get(name, ...):
                continue
            first = name
            if name not in self.published or name not in self.chosen:
                for group, members in groups.items():
                    if not setting.only_if.keys().isdisjoint(members):
                        first = group
            groups.setdefault(first, []).append(name)
        if not groups:
            raise UserError(
                f"{self.search.out}: the chosen settings are the published ones, so there is no "
                "path between them"
            )
        ordered = sorted(groups.values(), key=lambda members: min(map(self.rank, members)))
        factors = {}
        for members in ordered[: MOST_FACTORS - (len(ordered) > MOST_FACTORS)]:
            factors[_shorten(members[0], settings)] = tuple(members)
        if others := ordered[len(factors) :]:
            factors[f"{len(others)} others"] = tuple(name for group in others for name in group)
        return factors


def _shorten(name: str, names: Collection[str]) -> str:
    key = name.partition(".")[2]
    is_unique = [other.partition(".")[2] for other in names].count(key) == 1
    return key if is_unique else name


@dataclass(frozen=True)
class _Path:
    choice: FinishedSearch
    factors: Mapping[str, tuple[str, ...]]  # settings by the name of a factor
    request: AblateRequest
    command: str

    @property
    def out(self) -> AnyPath:
        """Return the folder of the points; those of the steps are in it."""
        return parse_path(self.request.out) if self.request.out else self.choice.search.out / PATH

    def find_point(self, cell: Cell) -> Point:
        """Return the published point with the chosen settings of some factors."""
        values = dict(self.choice.published)
        for factor in cell:
            for name in self.factors[factor]:
                values.pop(name, None)
                if name in self.choice.chosen:
                    values[name] = self.choice.chosen[name]
        return self.choice.search.definition.candidates.space.active(values)

    def describe_factor(self, factor: str) -> str:
        """Describe the changes of a factor, e.g. ``head.lr 0.1 to 0.02``."""
        texts = []
        for name in self.factors[factor]:
            ends = []
            for point in (self.choice.published, self.choice.chosen):
                ends.append(format_setting(point[name]) if name in point else "unset")
            texts.append(f"{name} {' to '.join(ends)}")
        return ", ".join(texts)

    def build_ladder(self, order: Sequence[str], cells: Mapping[str, Cell]) -> Ladder:
        """Build the ladder of some cells, which begins with the baseline."""
        rungs = [Rung(BASELINE, "cross entropy", kind="base")]
        for label, cell in cells.items():
            factor = label.partition(" ")[2]
            kind: Kind = "variant" if label.startswith("all but ") else "step"
            text = self.describe_factor(factor) if factor in self.factors else ""
            rungs.append(self.choice.build_rung(self.find_point(cell), label, kind, text))
        factors = tuple(map(Factor, order))
        design = Design(PATH, factors, cells={label: (cell,) for label, cell in cells.items()})
        method = self.choice.search.definition.method
        name = f"path {method} to trial {self.choice.number}"
        title = f"From the published to the chosen settings of {method}"
        return Ladder(name, title, tuple(rungs), design=design)

    def build_step(self, order: Sequence[str]) -> SelectRun:
        """Build the run that changes each remaining factor after those of an order."""
        left = [factor for factor in self.factors if factor not in order]
        cells = {f"+ {factor}": frozenset([*order, factor]) for factor in left}
        search = self.choice.search
        resolved = replace(search.resolved, seeds=_STEP_SEEDS)
        out = self.out / f"step-{len(order) + 1}"
        location = replace(search.location, out=out, command=self.command)
        ladder = fit_design(self.build_ladder([*order, *left], cells), resolved)
        return SelectRun(ladder, resolved, location)

    def choose(self, run: SelectRun, order: Sequence[str]) -> str:
        """Choose the factor of a finished step that gains most on select, within the guard."""
        objective = self.choice.search.definition.objective
        table = read_table(run.location.out, "trials", columns=COLUMNS).to_pylist()
        rows = {row["spec_hash"]: row for row in table}
        rows_of = {}
        for rung in run.ladder.rungs:
            trials = [trial for trial in run.planned_trials if trial.label == rung.label]
            rows_of[rung.label] = [rows.get(trial.spec.hash) for trial in trials]
        baseline = {}
        for row in rows_of[BASELINE]:
            if row is None or row["status"] != "done":
                raise UserError(f"{run.location.out}: the baseline has no result; run it again")
            baseline[row["network_seed"]] = row["select/accuracy"]
        factors, results = list(self.factors), {}
        assert run.ladder.design is not None
        for label, cells in run.ladder.design.cells.items():
            for cell in cells:
                (factor,) = cell.difference(order)
                result = objective.summarise(rows_of[label], baseline)
                results[factors.index(factor)] = result
        if not results or any(result.status == "crashed" for result in results.values()):
            raise UserError(f"{run.location.out}: trials crashed; run the same command again")
        number = objective.choose(results)
        if number is None:  # the one that exceeds the guard least
            keys = {n: (v.status != "done", objective.excess(v)) for n, v in results.items()}
            number = min(keys, key=keys.__getitem__)
        return factors[number]

    def find_order(self, results: Sequence[Result]) -> list[str]:
        """Return the factors that finished steps have chosen."""
        order: list[str] = []
        for _ in results:
            order.append(self.choose(self.build_step(order), order))
        return order

    def build_next(self, results: Sequence[Result]) -> SelectRun:
        """Build the step that follows finished ones."""
        return self.build_step(self.find_order(results))

    def build_points(self, order: Sequence[str]) -> LadderRun:
        """Build the run of the points of the path, and of the chosen one without each factor."""
        order = [*order, *(factor for factor in self.factors if factor not in order)]
        cells = {"published": frozenset[str]()}
        for place, factor in enumerate(order, start=1):
            cells[f"+ {factor}"] = frozenset(order[:place])
        for factor in order:
            cell = frozenset(order) - {factor}
            if cell not in cells.values():
                cells[f"all but {factor}"] = cell
        search, request = self.choice.search, self.request
        first = 1 + max([*search.resolved.seeds.network, *search.resolved.seeds.head])
        counts = request.seeds, request.network_seeds, request.head_seeds
        seeds = Seeds.count(*(counts if any(counts) else (SEEDS, None, None)))
        networks, heads = (tuple(first + n for n in part) for part in (seeds.network, seeds.head))
        resolved = replace(search.resolved, seeds=Seeds(networks, heads, seeds.is_paired))
        ladder = fit_design(self.build_ladder(order, cells), resolved)
        count = len(resolved.seeds.pairs())
        steps = tuple(f"step-{place}" for place in range(1, len(order)))
        return LadderRun(
            ladder,
            resolved,
            replace(search.location, out=self.out, command=self.command),
            options=request,
            parts=steps,
            records=((self.add_read(len(ladder.rungs), count), search.out),),
        )

    def build_last(self, results: Sequence[Result]) -> LadderRun:
        """Build the run of the points after all steps."""
        return self.build_points(self.find_order(results))

    def add_read(self, points: int, seeds: int) -> SearchEvaluated:
        """Add the read of test to those of the search; refuse another one for the path."""
        search = self.choice.search
        evaluated = SearchEvaluated(
            version=VERSION,
            trial=self.choice.number,
            settings=dict(self.choice.chosen),
            rule=search.definition.objective.describe_rule(),
        )
        evaluated = find_evaluated(search.out, evaluated)
        for read in evaluated.reads:
            if read.points and read.seeds != seeds:
                raise UserError(
                    f"{search.out}: test was read for its path with {read.seeds} seeds, and may be "
                    "read only once; repeat that number"
                )
            if read.points:
                return evaluated
        read = ReadRecord(seeds=seeds, command=self.command, points=points)
        return evaluated.model_copy(update={"reads": [*evaluated.reads, read]})


def plan_path(request: AblateRequest, command: str) -> Plan:
    """Plan the steps of a path, and the run of its points."""
    assert request.path is not None
    choice = FinishedSearch.read(request.path, request.address)
    path = _Path(choice, choice.find_factors(), request, command)
    order: list[str] = []
    stages = []
    for place in range(len(path.factors) - 1):
        step = path.build_step(order)
        work = step.plan()
        if place == 0:
            check_run(step)
        stages.append(Stage(step, work, path.build_next))
        # Another factor stands for the one that an unfinished step will choose.
        guess = next(factor for factor in path.factors if factor not in order)
        order.append(path.choose(step, order) if work.is_over else guess)
    points = path.build_points(order)
    check_run(points)
    last = Stage(points, points.plan(), path.build_last)
    return Plan((*stages, last), measured=choice.search.out)
