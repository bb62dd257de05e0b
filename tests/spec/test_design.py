"""Designs of ladders: the cells that they run, and what they refuse."""

from itertools import combinations

import numpy as np
import pytest

from tune_calib.errors import UserError
from tune_calib.spec.design import build_design, fit_design
from tune_calib.spec.ladder import LADDERS, Factor, Ladder, Rung, expand
from tune_calib.spec.resolved import ResolvedRequest


def free_ladder(count):
    """A ladder whose steps set one setting each and need nothing."""
    names = ["lr", "weight_decay", "epochs", "batch_size", "clip_grad_norm", "optimizer", "select"]
    values = [0.02, 0.001, 3, 32, 1.0, "adam", "min_val_nll"]
    rungs = [Rung("base", "", {"head": {"method": "retrain"}}, kind="base")]
    settings = {"method": "retrain"}
    for name, value in list(zip(names, values, strict=True))[:count]:
        settings = {**settings, name: value}
        rungs.append(Rung(f"+ {name}", "", {"head": settings}))
    return Ladder("free", "Free steps", tuple(rungs))


def settings_of(ladder, label):
    (rung,) = [rung for rung in ladder.rungs if rung.label == label]
    return rung.slots["head"]


def test_a_factorial_design_of_mac_cal_has_every_combination_that_can_act():
    ladder = build_design(LADDERS["mac_cal"], "factorial")
    cells = {cell for equal in ladder.design.cells.values() for cell in equal}
    assert len(cells) == 15  # 1 + (bottleneck or not) x (no mask, 2 gradients x 3 kinds of q)
    assert all("masks" in cell for cell in cells if "masked gradient" in cell)
    # A step resets what an earlier one has fixed, whatever lies between them in the ladder.
    assert settings_of(ladder, "retraining + bottleneck") == {
        "method": "mac_cal", "q0": 1.0, "tau0": 0.0, "shape": "bottleneck", "gradient": "dense",
    }  # fmt: skip
    last = [rung for rung in LADDERS["mac_cal"].rungs if rung.kind == "step"][-1]
    assert settings_of(ladder, "all steps") == last.slots["head"]
    assert "tau0" not in settings_of(ladder, "all but masked gradient")


def test_leave_one_out_removes_what_needs_the_step_and_add_one_adds_what_it_needs():
    without = build_design(LADDERS["mac_cal"], "leave-one-out").design.cells
    assert set(without) >= {"vanilla", "retraining + bottleneck", "all but bottleneck"}
    assert "all but masks" not in without  # the gradient would have nothing to be masked by
    alone = build_design(LADDERS["mac_cal"], "add-one").design.cells
    assert "retraining + masks + adaptive q" in alone
    assert "all steps" not in alone


def test_the_incremental_design_is_the_ladder_itself():
    ladder = LADDERS["mac_cal"]
    assert build_design(ladder, "incremental") is ladder
    labels = [rung.label for rung in build_design(ladder, "incremental", "temperature").rungs]
    assert labels[6:8] == ["vanilla, temperature", "+ masked retraining, temperature"]
    assert labels[-1] == "retrain bottleneck (no mask), temperature"


@pytest.mark.parametrize("count", [5, 6, 7])
def test_pairs_is_a_fraction_without_confounded_pairs(count):
    ladder = build_design(free_ladder(count), "pairs")
    names = [factor.name for factor in ladder.design.factors]
    cells = [cell for (cell,) in ladder.design.cells.values()]
    assert len(cells) == {5: 16, 6: 32, 7: 64}[count] == len(set(cells))
    signs = np.array([[1 if name in cell else -1 for name in names] for cell in cells])
    contrasts = [signs[:, i] for i in range(count)]
    contrasts += [signs[:, i] * signs[:, j] for i, j in combinations(range(count), 2)]
    products = np.array(contrasts) @ np.array(contrasts).T
    assert np.array_equal(products, len(cells) * np.eye(len(contrasts)))
    if count == 5:  # the defining relation I = ABCDE, up to its sign
        assert len(set(signs.prod(axis=1))) == 1


@pytest.mark.parametrize(
    ("name", "design", "posthoc", "message"),
    [
        ("fedlas", "factorial", None, "is the ladder itself: each step of fedlas needs"),
        ("decoupling", "add-one", None, "is the ladder itself"),
        ("mixup", "factorial", None, "needs at least two steps to combine"),
        ("mac_cal", "pairs", None, "takes steps that act alone, and masks needs another one"),
        ("mac_cal", "factorial", "ls", "ls is a network method"),
        ("mac_cal_scaled", "incremental", "temperature", "which has a method already"),
    ],
)
@pytest.mark.every_case
def test_a_design_that_cannot_be_is_refused(name, design, posthoc, message):
    with pytest.raises(UserError, match=message):
        build_design(LADDERS[name], design, posthoc)


def test_a_step_that_needs_an_unknown_one_is_refused():
    rungs = (
        Rung("base", "", kind="base"),
        Rung("+ one", "", {"head": {"method": "retrain"}}, factors=(Factor("one", ("two",)),)),
    )
    with pytest.raises(UserError, match="one needs two, no earlier step"):
        build_design(Ladder("odd", "Odd", rungs), "factorial")


def test_cells_that_a_setting_makes_equal_run_once_and_impossible_ones_not_at_all():
    ladder = build_design(LADDERS["mac_cal"], "factorial", "temperature")
    equal = ResolvedRequest({"head": {"q0": 1.0}})  # a mask that keeps all weights
    fitted = fit_design(ladder, equal)
    assert len(expand(fitted, equal)) == 2 * 13
    assert {len(cells) for cells in fitted.design.cells.values()} == {1, 2}
    assert sum(map(len, fitted.design.cells.values())) == 15
    impossible = ResolvedRequest({"head": {"q_min": 0.9}})
    fitted = fit_design(ladder, impossible)
    assert len(fitted.design.cells) == 3
    assert all("q0 must be >= q_min" in why for why in fitted.design.invalid.values())
    assert len(expand(fitted, impossible)) == 2 * 3
