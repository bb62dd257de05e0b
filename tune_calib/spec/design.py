"""Build the designs of a ladder: which combinations of its steps are run.

A step is a factor: the settings that it changes. A cell is a set of factors with all that they
need, applied in the order of the ladder.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from itertools import combinations
from operator import xor
from typing import Any, Literal, get_args

from tune_calib.errors import UserError
from tune_calib.spec.datasets import flatten
from tune_calib.spec.ladder import Cell, Design, Factor, Kind, Ladder, Rung, build_spec
from tune_calib.spec.methods import METHODS
from tune_calib.spec.resolved import ResolvedRequest

DesignName = Literal["incremental", "leave-one-out", "add-one", "factorial", "pairs"]
DESIGNS: tuple[DesignName, ...] = get_args(DesignName)
MOST_FACTORS = 10
"""Most factors of a factorial design, which has up to two to this power of cells."""
LEAST_PAIRS = 5
"""Least factors of ``pairs``: with fewer, no fraction of the cells has resolution V."""


def build_design(ladder: Ladder, name: str, posthoc: str | None = None) -> Ladder:
    """Return a ladder of the cells of a design, each also with a post-hoc method if one is named.

    Its controls remain, and the ladder's own variants are left out; ``incremental`` is the ladder.
    """
    if name != "incremental":
        ladder = _build_cells(ladder, name)
    if posthoc is None:
        return ladder
    if METHODS[posthoc].kind != "posthoc":
        raise UserError(f"{posthoc} is a {METHODS[posthoc].kind} method; name another", "posthoc")
    rungs = list(ladder.rungs)
    for rung in ladder.rungs:
        if "posthoc" in rung.slots:
            raise UserError(f"follows {rung.label!r}, which has a method already", "posthoc")
        kind: Kind = "control" if rung.kind == "control" else "variant"
        label, ingredient = f"{rung.label}, {posthoc}", f"{posthoc} after it"
        slots = {**rung.slots, "posthoc": {"method": posthoc}}
        rungs.append(Rung(label, ingredient, slots=slots, kind=kind))
    rungs.sort(key=lambda rung: rung.kind == "control")  # stable: controls last
    ladder = replace(ladder, rungs=tuple(rungs))
    if ladder.design is None:
        return ladder
    return replace(ladder, design=replace(ladder.design, posthoc=posthoc))


def _build_cells(ladder: Ladder, name: str) -> Ladder:
    bases = [rung for rung in ladder.rungs if rung.kind == "base"]
    changes = _list_changes(ladder)
    factors = tuple(changes)
    names = tuple(factor.name for factor in factors)
    is_nested = all(factor.needs == names[:place] for place, factor in enumerate(factors))
    if is_nested or len(bases) > 1:
        raise UserError(
            f"{name} is the ladder itself: each step of {ladder.name} needs the one before it; "
            "leave it out",
            "design",
        )
    labels: dict[Cell, str] = {}
    rungs: list[Rung] = []
    for cell in _list_cells(factors, name):
        settings = flatten(bases[0].slots)
        for factor, change in changes.items():
            if factor.name in cell:
                changed = {**settings, **change}
                settings = {key: changed[key] for key in changed if changed[key] is not ...}
        slots: dict[str, dict[str, Any]] = {}
        for setting, value in settings.items():
            slot, _, key = setting.partition(".")
            slots.setdefault(slot, {})[key] = value
        labels[cell] = _name_cell(cell, names) or bases[0].label
        kind: Kind = "variant" if cell else "base"
        rungs.append(Rung(labels[cell], "", slots=slots, kind=kind))
    rungs += [rung for rung in ladder.rungs if rung.kind == "control"]
    design = Design(name, factors, cells={label: (cell,) for cell, label in labels.items()})
    title = f"{ladder.title.partition(',')[0]}: {name} design"
    return replace(ladder, title=title, rungs=tuple(rungs), published=None, design=design)


def _name_cell(cell: Cell, names: tuple[str, ...]) -> str:
    """Name a cell by its factors, or by those that it lacks if they are fewer."""
    present = [name for name in names if name in cell]
    absent = [name for name in names if name not in cell]
    if not absent:
        return "all steps"
    if len(absent) < len(present):
        return f"all but {' + '.join(absent)}"
    return " + ".join(present)


def _list_changes(ladder: Ladder) -> dict[Factor, dict[str, Any]]:
    """Return the factors, with all that they need, in the order of the ladder.

    Each has the settings by ``slot.key`` that it changes; ``...`` leaves one to its default.
    """
    base, *steps = [rung for rung in ladder.rungs if rung.kind in ("base", "step")]
    settings = flatten(base.slots)
    changes: dict[Factor, dict[str, Any]] = {}
    needs: dict[str, tuple[str, ...]] = {}
    for rung in steps:
        for factor in rung.factors or (Factor(rung.label.removeprefix("+ ")),):
            if absent := [name for name in factor.needs if name not in needs]:
                raise UserError(f"{ladder.name}: {factor.name} needs {absent[0]}, no earlier step")
            needed = set(factor.needs).union(*(needs[name] for name in factor.needs))
            needs[factor.name] = tuple(name for name in needs if name in needed)
            after = flatten(factor.slots or rung.slots)
            changed = {key: after[key] for key in after if settings.get(key, ...) != after[key]}
            changed |= dict.fromkeys(settings.keys() - after.keys(), ...)
            changes[replace(factor, needs=needs[factor.name])] = changed
            settings = after
    if len(changes) < 2:
        raise UserError(
            f"needs at least two steps to combine, which {ladder.name} has not; leave it out",
            "design",
        )
    return changes


def _list_cells(factors: tuple[Factor, ...], name: str) -> list[Cell]:
    """Return the cells of a design, the base first and large ones last."""
    if name == "pairs":
        return _list_fraction(factors)
    needs = {factor.name: factor.needs for factor in factors}
    names = list(needs)
    cells = [frozenset[str](), frozenset(names)]
    if name == "factorial":
        if len(factors) > MOST_FACTORS:
            raise UserError(f"factorial takes at most {MOST_FACTORS} steps; use pairs", "design")
        cells = list_combinations(needs)
    for factor in names:
        if name == "leave-one-out":
            needing = {other for other in names if factor in needs[other]}
            cells.append(cells[1] - needing - {factor})
        elif name == "add-one":
            cells += [frozenset(needs[factor]), frozenset((*needs[factor], factor))]
    if name == "add-one":
        cells = [cell for cell in cells if len(cell) < len(names)]
    return sorted(set(cells), key=lambda cell: (len(cell), sorted(map(names.index, cell))))


def list_combinations(needs: Mapping[str, Iterable[str]]) -> list[Cell]:
    """Return all sets of factors with all that they need, small ones first."""
    cells = []
    for size in range(len(needs) + 1):
        for chosen in combinations(needs, size):
            cell = frozenset(chosen)
            if all(cell.issuperset(needs[name]) for name in chosen):
                cells.append(cell)
    return cells


def _list_fraction(factors: tuple[Factor, ...]) -> list[Cell]:
    """Return a two-level fraction of resolution V (Box, Hunter and Hunter, 2005, chapter 6).

    A factor is in a cell if the bits that a cell and the word of the factor share are odd. With
    words of which no four or fewer cancel, neither main effects nor interactions of two factors are
    confounded with each other.
    """
    if needing := [factor.name for factor in factors if factor.needs]:
        raise UserError(
            f"pairs takes steps that act alone, and {needing[0]} needs another one; use factorial",
            "design",
        )
    if len(factors) < LEAST_PAIRS:
        raise UserError(f"pairs needs {LEAST_PAIRS} steps or more; use factorial", "design")
    words: list[int] = []
    word = 0
    while len(words) < len(factors):
        word += 1
        sums = set[int]()  # bit by bit, without carry
        for size in range(4):
            sums.update(reduce(xor, chosen, 0) for chosen in combinations(words, size))
        if word not in sums:
            words.append(word)
    cells = []
    for number in range(2 ** words[-1].bit_length()):
        chosen = set[str]()
        for factor, word in zip(factors, words, strict=True):
            if (number & word).bit_count() % 2:
                chosen.add(factor.name)
        cells.append(frozenset(chosen))
    return cells


def fit_design(ladder: Ladder, request: ResolvedRequest) -> Ladder:
    """Merge cells with equal trials under the requested settings, and leave out invalid ones."""
    if ladder.design is None:
        return ladder
    rungs: dict[str, Rung] = {}
    cells: dict[str, tuple[Cell, ...]] = {}
    invalid: dict[str, str] = {}
    for rung in ladder.rungs:
        label = rung.label.removesuffix(f", {ladder.design.posthoc}")
        try:
            key = build_spec(rung, request, request.seeds.pairs()[0], request.draws[0]).hash
        except UserError as error:
            if label not in ladder.design.cells:
                raise
            invalid[label] = str(error)
            continue
        first = rungs.setdefault(key, rung)
        if rung.label in ladder.design.cells:
            cells[first.label] = cells.get(first.label, ()) + ladder.design.cells[rung.label]
    design = replace(ladder.design, cells=cells, invalid=invalid)
    return replace(ladder, rungs=tuple(rungs.values()), design=design)
