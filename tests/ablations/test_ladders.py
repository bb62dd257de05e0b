"""Every ladder of the registry expands to what it says."""

from dataclasses import replace

import pytest

from analysis.published import published
from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import (
    LADDERS,
    build_comparison,
    build_kind_comparison,
    expand,
    find_left_out,
)
from tune_calib.spec.methods import METHODS
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.resolved import ResolvedRequest, Seeds

TWO = Seeds((0, 1), (0, 1), is_paired=True)


@pytest.mark.parametrize("dataset", [name for name in DATASETS if DATASETS[name].quick])
@pytest.mark.parametrize("name", list(LADDERS))
def test_a_ladder_expands_to_every_rung_and_seed(name, dataset):
    ladder = LADDERS[name]
    planned = expand(
        ladder, ResolvedRequest({"data": {"dataset": dataset}}, TWO, controls=True).with_recipe()
    )
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


@pytest.mark.parametrize("own_recipes", [False, True])
def test_methods_of_a_comparison_share_a_network_and_settings(own_recipes):
    planned = expand(
        build_comparison(["ce", "tst", "balcal", "temperature"]),
        ResolvedRequest(
            overrides={"network": {"epochs": 7}},
            seeds=TWO,
            recipe=replace(RECIPES["quick"], settings={"head": {"lr": 0.05, "views": 3}}),
            own_recipes=own_recipes,
        ),
    )
    specs = {trial.label: trial.spec for trial in planned}
    assert specs["tst"].head.lr == (1e-4 if own_recipes else 0.05)
    assert specs["balcal"].network.optimizer == ("adam" if own_recipes else "sgd")
    assert {spec.network.epochs for spec in specs.values()} == {7}
    assert specs["temperature"].posthoc.method == "temperature"
    assert specs["tst"].network_id == specs["ce"].network_id


def test_methods_joined_by_plus_are_one_pipeline():
    ladder = build_comparison(["ls+mac_cal+temperature", "tst+temperature"])
    first, second = expand(ladder, ResolvedRequest())
    slots = first.spec.network, first.spec.head, first.spec.posthoc
    assert [slot.method for slot in slots] == ["ls", "mac_cal", "temperature"]
    assert (second.spec.network.method, second.spec.head.method) == ("ce", "tst")


@pytest.mark.parametrize(
    ("pipelines", "message"),
    [
        (["ce", "ls", "ce"], "given twice"),
        (["ce", "ls+fl"], "two network methods"),
        (["ce", "ls+mac_call"], "did you mean 'mac_cal'"),
    ],
)
def test_an_impossible_pipeline_is_refused(pipelines, message):
    with pytest.raises(UserError, match=message):
        build_comparison(pipelines)


def test_longer_joint_training_goes_on_from_the_base_for_as_long_as_the_heads_train():
    settings = {"network": {"epochs": 14}, "head": {"epochs": 6}}
    planned = expand(LADDERS["decoupling"], ResolvedRequest(settings, TWO))
    networks = {trial.label: trial.spec.network for trial in planned}
    base, longer = networks["joint"], networks["joint, longer"]
    assert (base.epochs, longer.epochs) == (14, 20)
    drops = [[round(m * n.epochs) for m in n.milestones] for n in (base, longer)]
    assert drops[0] == drops[1] == [6, 10]
    heads = [trial.spec.head for trial in planned if trial.spec.head]
    recipe = {(h.optimizer, h.lr, h.batch_size, h.epochs, h.select) for h in heads}
    assert recipe == {("adam", 1e-4, 256, 6, "min_val_nll")}


@pytest.mark.parametrize(("share", "until"), [(0.5, [7, 7]), (1.0, [14, 20])])
def test_longer_joint_training_augments_up_to_the_same_epoch_or_to_its_end(share, until):
    settings = {"network": {"epochs": 14, "augment_until": share}, "head": {"epochs": 6}}
    planned = expand(LADDERS["decoupling"], ResolvedRequest(settings))
    networks = {trial.label: trial.spec.network for trial in planned}
    trained = [networks[label] for label in ("joint", "joint, longer")]
    assert [round(network.augment_until * network.epochs) for network in trained] == until


@pytest.mark.parametrize("kind", ["posthoc", "head", "network"])
def test_a_comparison_of_a_kind_includes_the_vanilla_network(kind):
    ladder, request = build_kind_comparison(kind), ResolvedRequest({"data": {"dataset": "digits"}})
    absent = [rung.label for rungs in find_left_out(ladder, request).values() for rung in rungs]
    assert absent == (["beta"] if kind == "posthoc" else [])
    of_kind = {name for name in METHODS if METHODS[name].kind == kind}
    planned = expand(ladder, request)
    assert planned[0].label == "vanilla"
    expected = {"vanilla"} | of_kind - {"ce", *absent}
    if kind == "posthoc":
        expected.add("temperature fit=grid_ece")
        hashes = {trial.label: trial.spec.hash for trial in planned}
        alone = build_comparison(["temperature"], [{"posthoc": {"fit": "grid_ece"}}])
        assert expand(alone, request)[0].spec.hash == hashes["temperature fit=grid_ece"]
    assert {trial.label for trial in planned} == expected
    vanilla = planned[0].spec
    assert (vanilla.network.method, vanilla.head, vanilla.posthoc) == ("ce", None, None)
    if kind != "network":
        assert {trial.spec.network_id for trial in planned} == {vanilla.network_id}


def test_a_comparison_of_a_kind_includes_a_method_without_an_entry_in_the_index(monkeypatch):
    monkeypatch.setitem(METHODS._records, "mine", replace(METHODS["fl"], name="mine"))
    monkeypatch.setitem(METHODS._origins, "mine", None)
    labels = [rung.label for rung in build_kind_comparison("network").rungs]
    assert labels.count("mine") == labels.count("fl") == 1
    assert "mine" not in [rung.label for rung in build_kind_comparison("head").rungs]


def test_a_method_that_was_named_is_refused_and_not_left_out():
    request = ResolvedRequest({"data": {"dataset": "digits"}})
    named = build_comparison(["temperature", "beta"])
    assert find_left_out(named, request) == {}
    with pytest.raises(UserError, match="'beta' takes 2 classes, and 'digits' has 10"):
        expand(named, request)
