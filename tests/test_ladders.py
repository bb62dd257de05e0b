"""Every ladder of the registry expands to what it says."""

import pkgutil

import pytest

import ablations
from ablations._ladder import Seeds, expand, side_by_side
from analysis.published import published
from tune_calib.errors import UserError
from tune_calib.registry import DATASETS, LADDERS, METHODS

TWO = Seeds((0, 1), (0, 1), is_paired=True)


@pytest.mark.parametrize("dataset", list(DATASETS))
@pytest.mark.parametrize("name", list(LADDERS))
def test_a_ladder_expands_to_every_rung_and_seed(name, dataset):
    ladder = LADDERS[name]
    defaults = DATASETS[dataset].cpu_defaults
    planned = expand(ladder, defaults, {"data": {"dataset": dataset}}, TWO, with_controls=True)
    assert [trial.rung for trial in planned] == [
        i for i in range(len(ladder.rungs)) for _ in TWO.head
    ]
    assert len({trial.spec.hash for trial in planned}) == len(planned)
    assert ladder.rungs[0].kind == "base"
    assert len({rung.label for rung in ladder.rungs}) == len(ladder.rungs)


@pytest.mark.parametrize("name", [name for name in LADDERS if LADDERS[name].published])
def test_every_row_that_a_ladder_names_is_printed(name):
    printed = set(published(LADDERS[name].published)["method"])
    assert {rung.published for rung in LADDERS[name].rungs if rung.published} <= printed


def test_every_file_of_ablations_registers_its_ladder():
    files = {m.name for m in pkgutil.iter_modules(ablations.__path__)}
    assert {name for name in files if not name.startswith("_")} == set(LADDERS)


def test_methods_side_by_side_keep_their_own_recipes():
    planned = expand(
        side_by_side(["ce", "tst", "balcal", "temperature"]),
        {"head": {"lr": 0.05, "gamma": 0.8}},
        {"network": {"epochs": 7}},
        TWO,
        with_controls=False,
    )
    specs = {trial.label: trial.spec for trial in planned}
    assert specs["tst"].head.lr == METHODS["tst"].slot_defaults["lr"]
    assert specs["balcal"].network.optimizer == "adam"
    assert {spec.network.epochs for spec in specs.values()} == {7}
    assert specs["temperature"].posthoc.method == "temperature"
    assert specs["tst"].network_id == specs["ce"].network_id


def test_a_method_named_twice_is_refused():
    with pytest.raises(UserError, match="named twice"):
        side_by_side(["ce", "ls", "ce"])
