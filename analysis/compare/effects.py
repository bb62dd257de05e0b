"""What each step of a ladder contributes: effects over the cells of a design.

An effect is a weighted sum of cells (``Comparison.weigh``), which is decided like every difference.
``v`` is the metric of a cell and ``i`` a step; only cells with all that their steps need exist.

- Shapley value: the mean of ``v(S + i) - v(S)`` over all orders in which the steps can be added
  (Shapley 1953; with needs, Faigle and Kern, International Journal of Game Theory 1992). The values
  of all steps sum to the full method minus the base.
- Main effect: the mean of ``v(S + i) - v(S)`` over all pairs of cells (Box, Hunter and Hunter,
  Statistics for Experimenters, 2005, chapter 5).
- Interaction of two steps: half of the mean of ``v(S + ij) - v(S + i) - v(S + j) + v(S)``.
- On the path: ``v(S + i) - v(S)`` in the order in which a greedy search on select added the
  settings (Fawcett and Hoos, Journal of Heuristics, 2016).
- Removed last, added first: ``v`` of the full method minus that without ``i`` and what needs it;
  ``v`` of ``i`` with what it needs minus that without ``i``.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, groupby
from operator import attrgetter
from typing import Any

import pandas as pd

from analysis.compare.decision import Decision, decide_sums, describe_rules
from analysis.compare.gather import over_seeds
from analysis.compare.hypotheses import UNITS, format_change
from analysis.compare.network_check import compute_network_check
from analysis.load import Run, cached_per_run
from analysis.tables.latex import label_of
from analysis.tables.render import View, json_records
from analysis.tables.table import Table
from analysis.text import Cell, Record, full_stops
from tune_calib.errors import UserError
from tune_calib.results.manifests import DesignRecord
from tune_calib.results.selection import PATH
from tune_calib.spec.design import MOST_FACTORS, list_combinations
from tune_calib.spec.ladder import Cell as Steps
from tune_calib.spec.metrics import METRICS
from tune_calib.spec.reproduction import Comparison

METRICS_OF_EFFECTS = ("ece", "nll", "accuracy")
KINDS = {
    "shapley": "Shapley values: the mean contribution of a step over all orders of the steps",
    "path": "On the path: the change by each setting in the order found on select",
    "main": "Main effects: the mean change by a step over all combinations of the others",
    "interaction": "Interactions of two steps: 0 if their effects add up",
    "removed": "Removed last: the full method minus that without the step and what needs it",
    "added": "Added first: the step with what it needs minus that without the step",
}
CARRIED = 0.9
"""Share of the gain that the named settings of a path carry at least."""
Weights = dict[str, float]


@dataclass(frozen=True)
class Lattice:
    """The cells of a design that were run, and the orders in which its steps can be added."""

    steps: tuple[str, ...]  # in the order of the ladder
    needs: Mapping[str, frozenset[str]]
    labels: Mapping[Steps, str]  # of the rung of each cell

    @classmethod
    def of(cls, design: DesignRecord, run: Run, has_posthoc: bool = False) -> "Lattice":
        """Return the cells of a run, or those behind which its post-hoc method was fitted."""
        labels: dict[Steps, str] = {}
        for label, equal in design.cells.items():
            name = f"{label}, {design.posthoc}" if has_posthoc else label
            if name in run.labels.values():
                labels |= dict.fromkeys(map(frozenset, equal), name)
        needs = {factor.name: frozenset(factor.needs) for factor in design.factors}
        return cls(tuple(needs), needs, labels)

    def in_order(self, step: str) -> tuple[Steps, Steps]:
        """Return the cells before and after a step in the order of the ladder."""
        smaller = frozenset(self.steps[: self.steps.index(step)])
        return smaller, smaller | {step}

    def weigh(self, terms: Iterable[tuple[Steps, float]]) -> Weights:
        """Return the weights of rungs; those of cells with one trial add up."""
        weights = defaultdict[str, float](float)
        for cell, weight in terms:
            weights[self.labels[cell]] += weight
        return {label: weight for label, weight in weights.items() if abs(weight) > 1e-12}


def list_effects(lattice: Lattice, design: str) -> dict[str, dict[str, Weights]]:
    """Return the weights of each effect by kind and name, as far as its cells were run."""
    effects: dict[str, dict[str, Weights]] = {}
    if design == PATH:
        effects["path"] = _differences(lattice, "path")
    elif len(lattice.steps) <= MOST_FACTORS:
        effects["shapley"] = _shapley(lattice)
    if design in ("factorial", "pairs"):
        for size, kind in enumerate(("main", "interaction"), start=1):
            effects[kind] = _contrasts(lattice, size, is_fraction=design == "pairs")
    else:
        kind = "added" if design == "add-one" else "removed"
        effects[kind] = _differences(lattice, kind)
    return {kind: named for kind, named in effects.items() if named}


def _shapley(lattice: Lattice) -> dict[str, Weights]:
    """Weigh each change by the share of the orders of all steps that pass from cell to cell."""
    cells = list_combinations(lattice.needs)
    if not lattice.labels.keys() >= set(cells):
        return {}
    orders_to = {cells[0]: 1}  # from the base to a cell
    for cell in cells[1:]:
        orders_to[cell] = sum(orders_to.get(cell - {step}, 0) for step in cell)
    orders_from = {cells[-1]: 1}  # from a cell to the full method
    for cell in cells[-2::-1]:
        following = cells[-1] - cell
        orders_from[cell] = sum(orders_from.get(cell | {step}, 0) for step in following)
    effects = {}
    for step in lattice.steps:
        terms: list[tuple[Steps, float]] = []
        for cell in cells:
            if step not in cell and (larger := cell | {step}) in orders_to:
                share = orders_to[cell] * orders_from[larger] / orders_to[cells[-1]]
                terms += [(cell, -share), (larger, share)]
        effects[step] = lattice.weigh(terms)
    return effects


def _contrasts(lattice: Lattice, size: int, is_fraction: bool) -> dict[str, Weights]:
    """Weigh cells by their signs: all of a two-level fraction, else those with all combinations."""
    effects = {}
    for steps in combinations(lattice.steps, size):
        cells = list(lattice.labels) if is_fraction else []
        for cell in lattice.labels:
            corners = [cell | part for part in list_combinations(dict.fromkeys(steps, ()))]
            if cell.isdisjoint(steps) and not is_fraction and lattice.labels.keys() >= set(corners):
                cells += corners
        terms = [(cell, 2 / len(cells) * (-1) ** len(set(steps) - cell)) for cell in cells]
        if terms:
            effects[" x ".join(steps)] = lattice.weigh(terms)
    return effects


def _differences(lattice: Lattice, kind: str) -> dict[str, Weights]:
    effects = {}
    for step, needed in lattice.needs.items():
        smaller, larger = needed, needed | {step}
        if kind == "removed":
            larger = frozenset(lattice.steps)
            smaller = larger - {step} - {name for name in larger if step in lattice.needs[name]}
        elif kind == "path":
            smaller, larger = lattice.in_order(step)
        if {smaller, larger} <= lattice.labels.keys():
            effects[step] = lattice.weigh([(smaller, -1.0), (larger, 1.0)])
    return effects


@dataclass(frozen=True)
class Effect:
    """A decided effect; ``least`` to ``most`` are its contributions over all orders."""

    kind: str
    name: str
    is_behind: bool  # behind the post-hoc method of the design
    decision: Decision
    least: float
    most: float
    in_order: float  # contribution in the order of the ladder
    gain: float  # of the NLL: the effect as a share of what calibration can achieve on the base


@cached_per_run
def compute_effects(run: Run, metric: str = "ece", margin: float | None = None) -> list[Effect]:
    """Decide all effects over the cells of a design, and then those behind its post-hoc method."""
    design = design_of(run)
    base = run.bases[run.rungs[0].index].label
    part = float(over_seeds(run, "nll_calibration").values[base].astype(float).mean())
    effects = []
    layers = [False, True] if design.posthoc else [False]
    for is_behind in layers:
        lattice = Lattice.of(design, run, is_behind)
        # Without controls, which may lack seeds.
        labels = list(dict.fromkeys(lattice.labels.values()))
        means = over_seeds(run, metric).values[labels].astype(float).dropna().mean()
        for kind, weights in list_effects(lattice, design.name).items():
            sums = [Comparison(name, metric=metric, weights=of) for name, of in weights.items()]
            has_orders = kind in ("shapley", "path")
            for decision in decide_sums(run, sums, margin):
                step, changes = decision.method, dict[Steps, float]()
                for cell, label in lattice.labels.items():
                    if has_orders and step not in cell and cell | {step} in lattice.labels:
                        changes[cell] = float(means[lattice.labels[cell | {step}]] - means[label])
                in_order = gain = math.nan
                if kind == "shapley":
                    in_order = changes[lattice.in_order(step)[0]]
                if metric == "nll" and part > 0:
                    gain = -decision.difference / part
                least = min(changes.values(), default=math.nan)
                most = max(changes.values(), default=math.nan)
                effects.append(Effect(kind, step, is_behind, decision, least, most, in_order, gain))
    return effects


def design_of(run: Run) -> DesignRecord:
    if run.manifest.design is None:
        raise UserError(
            f"{run.out} has no design: run the ladder with `design` factorial, for example"
        )
    return run.manifest.design


def tables(run: Run, metric: str, margin: float | None = None) -> list[Table]:
    built: list[Table] = []
    effects = compute_effects(run, metric, margin)
    for _, alike in groupby(effects, key=attrgetter("is_behind", "kind")):
        built.append(_table(run, list(alike), is_first=not built))
    if not built:
        raise UserError(f"{run.out} has no finished cells to compare")
    return built


def tables_of_page(run: Run) -> list[Table]:
    if run.manifest.design is None:
        return []
    return list(chain.from_iterable(tables(run, metric) for metric in METRICS_OF_EFFECTS))


def _table(run: Run, effects: Sequence[Effect], is_first: bool) -> Table:
    kind, is_behind, posthoc = effects[0].kind, effects[0].is_behind, design_of(run).posthoc
    metric, level = effects[0].decision.metric, effects[0].decision.level
    changes = {rung.label.removeprefix("+ "): rung.ingredient for rung in run.manifest.rungs}
    records, notes = list[Record](), list[str]()
    if kind == "path":
        notes.append(describe_carriers(effects))
    for effect in effects:
        decision = effect.decision
        record = {
            "steps" if kind == "interaction" else "step": Cell(effect.name),
            "change": Cell(changes.get(effect.name, "") if kind == "path" else ""),
            "decision": Cell(decision.outcome),
            f"{METRICS[metric].head} effect": Cell.number(metric, decision.difference, signed=True),
            f"{100 * level:.4g} % interval": Cell.span(
                metric, decision.low, decision.high, signed=True
            ),
            "p (Holm)": Cell.p(decision.p),
            "smallest": Cell.number(metric, effect.least, signed=True),
            "largest": Cell.number(metric, effect.most, signed=True),
            "in the ladder's order": Cell.number(metric, effect.in_order, signed=True),
            "NLL gain": Cell.formatted(effect.gain, "+.2f"),
            "why": Cell(decision.why),
        }
        records.append(record)
        if effect.least < 0 < effect.most:
            low, high = (format_change(metric, end) for end in (effect.least, effect.most))
            notes.append(
                f"The sign of {effect.name} depends on the order: from {low} to {high}"
                f"{UNITS[METRICS[metric].unit]}."
            )
    key, sentences = f"{kind}-{metric}", [KINDS[kind]]
    if is_behind:
        key += f"-{posthoc}"
        sentences[0] += f", with {posthoc} behind each combination"
    if is_first:
        sentences += describe_rules([effect.decision for effect in effects])
    else:
        sentences.append(f"Decided as above, over {len(effects)} comparisons")
    return Table(
        key, "\n".join(full_stops(sentences)), records, first=list(records[0])[2:5],
        label=label_of("effects", key), notes=notes,
        is_main=kind in ("shapley", "path", "removed", "added"),
    ).without_blank()  # fmt: skip


def describe_carriers(effects: Sequence[Effect]) -> str:
    metric = effects[0].decision.metric
    sign = 1 if METRICS[metric].is_less_better else -1
    gains = {effect.name: -sign * effect.decision.difference for effect in effects}
    total = math.fsum(gains.values())
    change = f"{format_change(metric, -sign * total)}{UNITS[METRICS[metric].unit]}"
    if not total > 0:
        return f"The chosen settings gain nothing over the published ones: {change}."
    carriers: list[str] = []
    carried = 0.0
    for name in sorted(gains, key=lambda name: -gains[name]):
        if carried < CARRIED * total:
            carriers.append(name)
            carried += gains[name]
    return (
        f"The gain from published to chosen settings, {change}, is carried by {len(carriers)} of "
        f"{len(gains)} factors: {', '.join(carriers)} ({format_change(metric, -sign * carried)})."
    )


def view(run: Run, metric: str, margin: float | None = None) -> View:
    rows: list[dict[str, Any]] = []
    for effect in compute_effects(run, metric, margin):
        rows.append({**vars(effect), **vars(effect.decision), "effect": effect.name})
    frame = pd.DataFrame(rows).drop(columns=["decision", "name", "method", "reference"])
    notes = [f"{compute_network_check(run).sentence}."]
    for label, reason in design_of(run).invalid.items():
        notes.append(f"Not run: {label}, since {reason}.")
    for label, equal in design_of(run).cells.items():
        if len(equal) > 1:
            notes.append(f"{label} is the trial of {len(equal)} combinations.")
    built = tables(run, metric, margin)
    built[-1] = replace(built[-1], notes=[*built[-1].notes, *notes])
    return View(built, json_records(frame), frame, notes)
