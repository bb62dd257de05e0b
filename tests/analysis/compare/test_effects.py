"""Effects of a design: checked against independent computations on invented numbers."""

import re
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from analysis.compare.decision import decide_sums
from analysis.compare.effects import Lattice, compute_effects, list_effects, view
from analysis.load import load
from tune_calib.errors import UserError
from tune_calib.results.manifests import (
    DesignRecord,
    FactorRecord,
    PlannedRecord,
    RungRecord,
    RunManifest,
)
from tune_calib.results.tables import write_results
from tune_calib.spec.design import list_combinations
from tune_calib.spec.reproduction import Comparison

FREE = {"one": (), "two": (), "three": ()}
NEEDING = {"one": (), "two": ("one",), "three": ("one",), "four": ("one", "two")}


def write_run(out, needs, values, seeds=5, name="factorial", equal=(), controls=()):
    """Write a run with a design: ``values`` gives the ECE of a cell and a seed.

    Cells of ``equal`` share the rung of the first of them, and ``controls`` lack the first seed.
    """
    cells = {}
    for cell in list_combinations(needs):
        label = " + ".join(part for part in needs if part in cell) or "base"
        cells[label] = [sorted(cell)]
    if equal:
        first, *others = (label for label in cells if label in equal)
        for label in others:
            cells[first] += cells.pop(label)
    labels, planned, rows = [*cells, *controls], [], []
    for index, label in enumerate(labels):
        for seed in range(seeds):
            spec_hash = f"{index}-{seed}"
            planned.append(PlannedRecord(spec_hash, index, seed, seed))
            ece = None if seed == 0 else 0.5
            if label in cells:
                ece = values(frozenset(cells[label][0]), seed)
            rows.append(
                {
                    "spec_hash": spec_hash, "rung": index, "rung_label": label, "status": "done",
                    "network_seed": seed, "head_seed": seed, "dataset": "digits", "flags": "",
                    "backbone": "small_cnn", "network_id": f"network {seed}", "data": "{}",
                    "network_method": "ce", "head_method": None, "posthoc_method": None,
                    "test/ece": ece, "test/accuracy": 0.9, "test/nll": ece and 10 * ece,
                    "test/nll_calibration": 0.2, "test/confidence_gap": 0.05,
                    "test/confidence_gap_se": 0.001, "train/accuracy": 1.0, "test/sharpness": 0.1,
                }
            )  # fmt: skip
    kinds = ["base", *["variant"] * (len(cells) - 1), *["control"] * len(controls)]
    rungs = []
    for index, (label, kind) in enumerate(zip(labels, kinds, strict=True)):
        rungs.append(RungRecord(index=index, label=label, published=None, kind=kind))
    factors = [FactorRecord(name=name, needs=list(of)) for name, of in needs.items()]
    RunManifest(
        version=1, sweep="fake", ladder="fake", title="Invented", command="", dataset="digits",
        setting="", published=None, rungs=rungs, network_seeds=list(range(seeds)),
        head_seeds=list(range(seeds)), paired_seeds=True, planned=planned,
        design=DesignRecord(name=name, factors=factors, cells=cells),
    ).write(out)  # fmt: skip
    bins = []
    for row in rows:
        ends = {"bin": 0, "lower": 0.0, "upper": 1.0, "count": 1000}
        bins.append({"spec_hash": row["spec_hash"], "split": "test", **ends})
    write_results(out, "all", {"trials": rows, "curves": [], "bins": bins})
    return load(out)


def random_values(seed=0):
    """Values of cells with interactions, which differ between seeds."""
    chance = np.random.default_rng(seed)
    drawn = {}

    def value(cell, seed):
        key = (cell, seed)
        if key not in drawn:
            drawn[key] = 0.05 + 0.02 * chance.random()
        return drawn[key]

    return value


def named(effects, kind):
    return {effect.name: effect for effect in effects if effect.kind == kind}


@pytest.mark.parametrize("needs", [FREE, NEEDING])
def test_shapley_values_are_the_mean_over_all_orders_that_needs_allows(needs, tmp_path):
    value = random_values()
    run = write_run(tmp_path, needs, value)
    effects = named(compute_effects(run), "shapley")

    def mean(cell):
        return np.mean([value(frozenset(cell), seed) for seed in range(5)])

    changes = {step: [] for step in needs}
    for order in permutations(needs):
        if any(set(needs[step]) - set(order[:place]) for place, step in enumerate(order)):
            continue
        for place, step in enumerate(order):
            changes[step].append(mean(order[: place + 1]) - mean(order[:place]))
    for step, effect in effects.items():
        assert effect.decision.difference == pytest.approx(np.mean(changes[step]), abs=1e-12)
        assert effect.least == pytest.approx(min(changes[step]), abs=1e-12)
        assert effect.most == pytest.approx(max(changes[step]), abs=1e-12)
        place = list(needs).index(step)
        in_order = mean(list(needs)[: place + 1]) - mean(list(needs)[:place])
        assert effect.in_order == pytest.approx(in_order, abs=1e-12)
    total = sum(effect.decision.difference for effect in effects.values())
    assert total == pytest.approx(mean(needs) - mean(()), abs=1e-12)


def test_main_effects_and_interactions_equal_those_of_least_squares(tmp_path):
    value = random_values(1)
    run = write_run(tmp_path, FREE, value)
    rows = []
    for cell in list_combinations(FREE):
        for seed in range(5):
            signs = {step: 0.5 if step in cell else -0.5 for step in FREE}
            rows.append({**signs, "ece": value(cell, seed)})
    fit = smf.ols("ece ~ one * two * three", pd.DataFrame(rows)).fit()
    effects = compute_effects(run)
    for step, effect in named(effects, "main").items():
        assert effect.decision.difference == pytest.approx(fit.params[step], abs=1e-12)
    for pair, effect in named(effects, "interaction").items():
        # Least squares measures half of the difference of differences by products of halves.
        coefficient = fit.params[pair.replace(" x ", ":")] / 2
        assert effect.decision.difference == pytest.approx(coefficient, abs=1e-12)
    gains = {effect.name: effect.gain for effect in compute_effects(run, "nll")}
    main = named(effects, "main")["one"].decision.difference
    assert gains["one"] == pytest.approx(-10 * main / 0.2, rel=1e-9)


def test_a_fraction_recovers_the_effects_of_a_model_without_higher_interactions():
    steps = tuple("abcde")
    needs = dict.fromkeys(steps, ())
    cells = [cell for cell in list_combinations(needs) if len(cell) % 2]
    lattice = Lattice(steps, {step: frozenset() for step in steps}, {c: str(c) for c in cells})
    effects = list_effects(lattice, "pairs")
    chance = np.random.default_rng(0)
    main = dict(zip(steps, chance.normal(size=5), strict=True))
    pairs = {pair: chance.normal() for pair in combinations(steps, 2)}
    values = {}
    for cell in cells:
        sign = {step: 1 if step in cell else -1 for step in steps}
        values[str(cell)] = sum(sign[s] * main[s] / 2 for s in steps)
        values[str(cell)] += sum(sign[a] * sign[b] * pairs[a, b] / 2 for a, b in pairs)
    assert "shapley" not in effects
    for name, weights in (effects["main"] | effects["interaction"]).items():
        expected = main[name] if name in main else pairs[tuple(name.split(" x "))]
        total = sum(weight * values[label] for label, weight in weights.items())
        assert total == pytest.approx(expected, abs=1e-12)


def test_cells_with_one_trial_add_their_weights(tmp_path):
    value = random_values(2)
    run = write_run(tmp_path, FREE, value, equal=("base", "one"))  # the step changes nothing alone
    effects = named(compute_effects(run), "shapley")
    assert effects["one"].least <= 0 <= effects["one"].most
    total = sum(effect.decision.difference for effect in effects.values())
    means = [np.mean([value(frozenset(cell), s) for s in range(5)]) for cell in (FREE, ())]
    assert total == pytest.approx(means[0] - means[1], abs=1e-12)
    assert any("base is the trial of 2 combinations" in note for note in view(run, "ece").notes)


def test_the_sign_of_a_step_that_depends_on_the_order_is_named(tmp_path):
    def value(cell, seed):
        helps = 0.02 if "one" in cell else -0.02
        return 0.06 - helps * ("two" in cell) + 1e-4 * seed

    text = view(write_run(tmp_path, FREE, value), "ece").render("plain")
    assert re.search("The sign of two depends on the order: from .2.00 to .2.00 points", text)
    assert "The sign of three" not in text


def test_an_unfinished_design_has_no_shapley_values_and_a_plain_run_no_effects(tmp_path):
    run = write_run(tmp_path / "part", FREE, random_values(), name="add-one")
    lattice = Lattice.of(run.manifest.design, run)
    del lattice.labels[frozenset(FREE)]
    del lattice.labels[frozenset({"two"})]
    effects = list_effects(lattice, "add-one")
    assert {kind: set(named) for kind, named in effects.items()} == {"added": {"one", "three"}}
    manifest = run.manifest.model_copy(update={"design": None})
    manifest.write(tmp_path / "part")
    with pytest.raises(UserError, match="has no design"):
        view(load(tmp_path / "part"), "ece")


def test_a_control_without_a_seed_changes_no_effect(tmp_path):
    alone = compute_effects(write_run(tmp_path / "alone", FREE, random_values()))
    beside = write_run(tmp_path / "beside", FREE, random_values(), controls=("control",))
    assert compute_effects(beside) == alone


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_under_no_effect_at_most_one_design_in_twenty_has_a_decided_effect(tmp_path):
    run = write_run(tmp_path, NEEDING, random_values())
    lattice = Lattice.of(run.manifest.design, run)
    comparisons = []
    for name, weights in list_effects(lattice, "factorial")["shapley"].items():
        comparisons.append(Comparison(name, metric="ece", weights=weights))
    chance = np.random.default_rng(0)
    decided, designs = 0, 500
    for _ in range(designs):
        noise = run.trials.assign(**{"test/ece": 0.1 + 0.02 * chance.normal(size=len(run.trials))})
        decisions = decide_sums(replace(run, trials=noise), comparisons)
        assert all(not decision.why for decision in decisions)
        decided += any(decision.outcome in ("better", "worse") for decision in decisions)
    assert decided <= 0.05 * designs + 2 * np.sqrt(0.05 * 0.95 * designs)
