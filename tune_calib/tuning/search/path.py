"""Plan the path from the published to the chosen settings of a search (Fawcett and Hoos, 2016).

The order of its steps is found on ``select`` with seeds of its own. Test is read once, for the
points of the path and for the chosen point without each factor.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from analysis.search.load import load_search as read_results
from tune_calib.errors import UserError
from tune_calib.files.paths import parse_path
from tune_calib.results.manifests import ReadRecord, SearchEvaluated
from tune_calib.results.selection import BASELINE, PATH, Row
from tune_calib.results.tables import read_table
from tune_calib.spec.design import fit_design
from tune_calib.spec.ladder import Cell, Design, Factor, Kind, Ladder, Rung
from tune_calib.spec.names import SEARCH_EVALUATED
from tune_calib.spec.request import AblateRequest
from tune_calib.spec.resolved import Seeds
from tune_calib.spec.space import Point
from tune_calib.text import format_setting
from tune_calib.tuning.folder import Result
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.plan import Plan, Stage, check_run
from tune_calib.tuning.search.evaluate import add_read, find_choice
from tune_calib.tuning.search.run import SearchRun, load_search, open_state
from tune_calib.tuning.search.state import COLUMNS
from tune_calib.tuning.search.storage import lost_database

MOST_FACTORS = 8
SEEDS = 5
_STEP_SEEDS = Seeds((2000, 2001), (2000, 2001), is_paired=True)
"""Seeds that find the order; those of searches begin at 0 or 1000, and test has further ones."""


@dataclass(frozen=True)
class SearchPath:
    search: SearchRun
    published: Point
    choice: SearchEvaluated
    shares: Mapping[str, float]  # importance of settings; empty if it is not known
    request: AblateRequest
    command: str

    @cached_property
    def factors(self) -> dict[str, list[str]]:
        """Return the settings of each factor by its name, the most important factor first.

        A setting that only one of the points has comes with the setting that it depends on.
        """
        chosen, names = self.choice.settings, []
        for name, value in self.published.items():
            if chosen.get(name, value) != value:
                names.append(name)
        if not names:
            raise UserError(
                f"{self.search.out}: the chosen settings are the published ones, so there is no "
                "path between them"
            )
        names.sort(key=lambda name: -self.shares.get(name, 0.0))  # stable without importance
        alone = names if len(names) <= MOST_FACTORS else names[: MOST_FACTORS - 1]
        factors = {name: [name] for name in alone}
        if others := names[len(alone) :]:
            factors[f"{len(others)} others"] = others
        return factors

    def build_run(
        self, order: Sequence[str], cells: Mapping[str, Cell], seeds: Seeds, folder: str = ""
    ) -> LadderRun:
        """Build the run of the published settings with some chosen ones, after the baseline."""
        search, chosen = self.search, self.choice.settings
        candidates = search.definition.candidates
        rungs = [Rung(BASELINE, "cross entropy", kind="base")]
        for label, cell in cells.items():
            values = {**chosen, **self.published}
            for factor in cell:
                values |= {name: chosen[name] for name in self.factors[factor]}
            changes = []  # e.g. head.lr 0.1 to 0.02
            for name in self.factors.get(label.removeprefix("+ "), ()):
                ends = map(format_setting, (self.published[name], chosen[name]))
                changes.append(f"{name} {' to '.join(ends)}")
            kind: Kind = "variant" if label.startswith("all but ") else "step"
            rung = candidates.rung(candidates.space.active(values), label)
            rungs.append(replace(rung, kind=kind, ingredient=", ".join(changes)))
        cells_by_label = {label: (cell,) for label, cell in cells.items()}
        ladder = Ladder(
            f"path {candidates.method} to trial {self.choice.trial}",
            f"From the published to the chosen settings of {candidates.method}",
            tuple(rungs),
            design=Design(PATH, tuple(map(Factor, order)), cells=cells_by_label),
        )
        resolved = replace(search.resolved, seeds=seeds)
        out = parse_path(self.request.out) if self.request.out else search.out / PATH
        out = out / folder if folder else out
        location = replace(search.location, out=out, command=self.command)
        return LadderRun(fit_design(ladder, resolved), resolved, location)

    def build_step(self, order: Sequence[str]) -> LadderRun:
        """Build the run that changes each remaining factor after those of an order."""
        left = [factor for factor in self.factors if factor not in order]
        cells = {f"+ {factor}": frozenset([*order, factor]) for factor in left}
        folder = f"step-{len(order) + 1}"
        return replace(self.build_run([*order, *left], cells, _STEP_SEEDS, folder), is_search=True)

    def choose(self, run: LadderRun, order: Sequence[str]) -> str:
        """Choose the factor of a finished step that gains most on select, within the guard."""
        objective, out = self.search.definition.objective, run.location.out
        table = read_table(out, "trials", columns=COLUMNS).to_pylist()
        rows = {row["spec_hash"]: row for row in table}
        rows_of = defaultdict[str, list[Row]](list)
        for trial in run.planned_trials:
            if trial.spec.hash not in rows:
                raise UserError(f"{out}: trials crashed; run the same command again")
            rows_of[trial.label].append(rows[trial.spec.hash])
        baseline = {}  # without an accuracy if it diverged
        for row in rows_of.pop(BASELINE):
            baseline[row["network_seed"]] = row["select/accuracy"] or 0.0
        factors, results = list(self.factors), {}
        for label, of_point in rows_of.items():
            number = factors.index(label.removeprefix("+ "))
            results[number] = objective.summarise(of_point, baseline)
        choice = objective.choose(results)
        if choice is None:  # the one that exceeds the guard least; of invalid ones any
            keys = {n: (v.status != "done", objective.excess(v)) for n, v in results.items()}
            left = next(n for n, factor in enumerate(factors) if factor not in order)
            choice = min(keys, key=keys.__getitem__, default=left)
        return factors[choice]

    def build_points(self, order: Sequence[str]) -> LadderRun:
        """Build the run of the points of the path, and of the chosen one without each factor."""
        cells = {"published": frozenset[str]()}
        for place, factor in enumerate(order, start=1):
            cells[f"+ {factor}"] = frozenset(order[:place])
        for factor in order[:-1]:  # without the last one, it is the point before
            cells[f"all but {factor}"] = frozenset(order) - {factor}
        search, request = self.search, self.request
        counts = request.seeds, request.network_seeds, request.head_seeds
        seeds = Seeds.count(*(counts if any(counts) else (SEEDS, None, None)))
        first = 1 + max([*search.resolved.seeds.network, *search.resolved.seeds.head])
        networks, heads = (tuple(first + n for n in part) for part in (seeds.network, seeds.head))
        run = self.build_run(order, cells, Seeds(networks, heads, seeds.is_paired))
        count = len(run.resolved.seeds.pairs())
        read = ReadRecord(seeds=count, command=self.command, points=len(run.ladder.rungs))
        return replace(
            run,
            options=request,
            parts=tuple(f"step-{place}" for place in range(1, len(order))),
            records=((add_read(self.choice, search.out, read), search.out),),
        )

    def build(self, results: Sequence[Result]) -> LadderRun:
        order: list[str] = []
        for _ in results:
            order.append(self.choose(self.build_step(order), order))
        left = [factor for factor in self.factors if factor not in order]
        return self.build_step(order) if len(left) > 1 else self.build_points([*order, *left])


def plan_path(request: AblateRequest, command: str) -> Plan:
    search = load_search(parse_path(str(request.path)), None, request.address)
    space, metrics = search.definition.candidates.space, search.definition.objective.metrics
    if (search.out / SEARCH_EVALUATED).exists():  # the choice is on record, also without the study
        choice = SearchEvaluated.read(search.out)
    else:
        with lost_database(search.location.study_storage):
            choice = find_choice(open_state(search, is_read_only=True))
    shares = read_results(search.out).outcome.importance.shares.get(metrics[0], {})
    published = space.active(search.definition.candidates.defaults)
    path = SearchPath(search, published, choice, shares, request, command)
    order, stages = list[str](), list[Stage]()
    for _ in list(path.factors)[1:]:
        step = path.build_step(order)
        stages.append(Stage(step, step.plan(), path.build))
        # Another factor stands for the one that an unfinished step will choose.
        guess = next(factor for factor in path.factors if factor not in order)
        order.append(path.choose(step, order) if stages[-1].work.is_over else guess)
    points = path.build_points([*order, *(name for name in path.factors if name not in order)])
    check_run(points)
    stages.append(Stage(points, points.plan(), path.build))
    return Plan(tuple(stages), measured=search.out)
