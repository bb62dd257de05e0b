"""One path to the settings of a trial, one recipe for all methods, and each authors' own."""

import json
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import sample
from tune_calib.results.tables import read_table
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import build_comparison, expand
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import SLOTS
from tune_calib.spec.recipe import QUICK
from tune_calib.spec.request import AblateRequest
from tune_calib.spec.resolve import resolve_settings
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.settings import own_recipe
from tune_calib.spec.slots.base import OptimisedSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.space import SPACES
from tune_calib.spec.trial import TrialSpec
from tune_calib.tuning.folder import RunLocation
from tune_calib.tuning.ladder import LadderRun
from tune_calib.tuning.ray.trainables import resolve_trial
from tune_calib.tuning.search.definition import Candidates, Objective, SearchDefinition

OPTIMISER = set(NetworkSlot.model_fields) - {"method", "params", "backbone", "seed", "init"}


def named(kind: str) -> list[str]:
    return [name for name in METHODS if METHODS[name].kind == kind]


def planned(names, dataset="digits", own_recipes=False, recipe=None, **overrides):
    settings = {"data": {"dataset": dataset}, **overrides}
    ladder = build_comparison(names)
    return expand(ladder, ResolvedRequest(settings, own_recipes=own_recipes).with_recipe(recipe))


# docs/pages/methods/index.md#recipes: what the authors' programs set.
FIELDS = ("optimizer", "lr", "weight_decay", "batch_size", "loss_reduction", "clip_grad_norm",
          "select", "drop_last")  # fmt: skip
AUTHORS = {
    **dict.fromkeys(
        ("ce", "ls", "fl", "flsd", "dfl", "adafocal", "mmce_weighted"),
        ("sgd", 0.1, 5e-4, 128, "sum", 2.0, "last", False),
    ),
    "brier": ("sgd", 0.1, 5e-4, 128, "mean", 2.0, "last", False),
    **dict.fromkeys(
        ("mbls", "acls", "fedlas_ls", "fedlas_mbls", "cpc", "ecp", "mmce"),
        ("sgd", 0.1, 5e-4, 128, "mean", 2.0, "best_val_acc", "cifar10"),
    ),
    "mdca": ("sgd", 0.1, 5e-4, 128, "mean", None, "best_val_acc", "cifar10"),
    **dict.fromkeys(
        ("crl", "mixup", "mit_l", "mit_a"), ("sgd", 0.1, 1e-4, 128, "mean", None, "last", False)
    ),
    "plp": ("sgd", 0.1, 5e-4, 128, "mean", None, "last", False),
    **dict.fromkeys(("balcal",), ("adam", 1e-4, 0.0, 256, "mean", None, "min_val_nll", False)),
    **dict.fromkeys(("tst", "vtst"), ("adam", 1e-4, 0.0, 256, "mean", None, "min_val_nll")),
    "mac_cal": ("sgd", 0.1, 5e-4, 128, "sum", 2.0, "last"),
}


def slot_of(spec: TrialSpec, name: str) -> OptimisedSlot:
    return getattr(spec, METHODS[name].kind)


@pytest.mark.parametrize("dataset", [name for name in DATASETS if DATASETS[name].quick])
def test_by_default_all_methods_of_a_comparison_have_one_recipe(dataset):
    for kind in ("network", "head"):
        fields = OPTIMISER & set((NetworkSlot if kind == "network" else HeadSlot).model_fields)
        trials = planned(named(kind), dataset)
        values_of = {
            name: {getattr(slot_of(t.spec, t.label), name) for t in trials} for name in fields
        }
        assert {name: len(values) for name, values in values_of.items()} == dict.fromkeys(fields, 1)
        suited = {k: v for k, v in DATASETS[dataset].quick.settings[kind].items() if k in fields}
        assert {name: values_of[name].pop() for name in suited} == suited


@pytest.mark.parametrize("dataset", ["cifar10", "digits"])
@pytest.mark.parametrize("name", [*named("network"), *named("head")])
def test_an_own_recipe_is_that_of_the_authors(name, dataset):
    (trial,) = planned([name], dataset, own_recipes=True)
    slot = slot_of(trial.spec, name)
    if name not in AUTHORS:  # a control of ours
        (shared,) = planned([name], dataset)
        assert slot == slot_of(shared.spec, name)
        return
    expected = dict(zip(FIELDS, AUTHORS[name], strict=False))
    if expected.get("drop_last"):
        expected["drop_last"] = dataset == expected["drop_last"]
    assert {field: getattr(slot, field) for field in expected} == expected


@pytest.mark.parametrize("name", named("network"))
def test_milestones_follow_the_authors_schedule(name):
    epochs = {"crl": 300, "mdca": 160}.get(name, 350)
    drops = {"crl": [150, 250], "mdca": [80, 120], "balcal": []}
    recipe = {**NetworkSlot(params={}).model_dump(), **own_recipe(METHODS[name], "cifar10")}
    milestones = [round(share * epochs) for share in recipe["milestones"]]
    assert milestones == drops.get(name, [150, 250])
    tiny = own_recipe(METHODS[name], "tiny_imagenet")
    if METHODS[name].recipe in ("focal", "acls", "fedlas"):
        assert [round(share * 100) for share in tiny["milestones"]] == [40, 60]
        assert tiny["batch_size"] == 64
        assert not tiny["drop_last"]


def test_a_data_set_of_the_papers_drops_the_last_batch_on_cifar10_alone():
    for name in named("network"):
        has = {ds for ds in ("cifar10", "cifar100", "tiny_imagenet", "digits")
               if own_recipe(METHODS[name], ds).get("drop_last")}  # fmt: skip
        assert has == ({"cifar10"} if "cifar10" in map(str, AUTHORS.get(name, ())) else set())


@pytest.mark.parametrize("own_recipes", [False, True])
@pytest.mark.parametrize(
    ("backbone", "gamma"),
    [("resnet50", 5), ("resnet110", 4.5), ("wrn26_10", 2.6), ("densenet121", 5), ("small_cnn", 5)],
)
def test_the_exponent_of_dfl_follows_the_backbone(backbone, gamma, own_recipes):
    (trial,) = planned(["dfl"], "cifar10", own_recipes, QUICK, network={"backbone": backbone})
    assert trial.spec.network.params.gamma == gamma
    asked = {"backbone": backbone, "gamma": 1.5}
    (trial,) = planned(["dfl"], "cifar10", own_recipes, QUICK, network=asked)
    assert trial.spec.network.params.gamma == 1.5


def configured(name, dataset, own_recipes, nested):
    """Configuration of a Trainable, and what the command line is given, for equal settings."""
    kind, (key, setting) = METHODS[name].kind, next(iter(SPACES[name].settings.items()))
    key, value = key.partition(".")[2], setting.levels()[-1]
    settings = {"network": {"epochs": 7}}
    if kind == "head":
        settings["head"] = {"epochs": 3}
    config = {slot: dict(asked) for slot, asked in settings.items()}
    settings[kind] = {**settings.get(kind, {}), key: value}
    is_param = nested and key in METHODS[name].params.model_fields
    settings_of_slot = {"params": {key: value}} if is_param else {key: value}
    config[kind] = {**config.get(kind, {}), **settings_of_slot}
    return {**config, "data": {"dataset": dataset}, "own_recipes": own_recipes}, settings


@pytest.mark.parametrize("dataset", sample([name for name in DATASETS if DATASETS[name].quick], 2))
@pytest.mark.parametrize("name", list(SPACES))
def test_a_trainable_has_the_trial_of_the_command_line(name, dataset):
    for nested, own_recipes in product((False, True), repeat=2):
        config, slots = configured(name, dataset, own_recipes, nested)
        spec = resolve_trial(name, config)
        (trial,) = planned([name], dataset, own_recipes, **slots)
        request = ResolvedRequest({"data": {"dataset": dataset}, **slots}, own_recipes=own_recipes)
        point = Candidates(name, request.with_recipe()).trials({}, 0)[0]
        assert spec.hash == trial.spec.hash == point.spec.hash, (nested, own_recipes)


OLD = json.loads((Path(__file__).parent / "old_rows.json").read_text())


@pytest.mark.parametrize("row", OLD)
def test_a_row_of_an_earlier_version_keeps_its_identity(row):
    spec = TrialSpec.build(**row["spec"])
    assert (spec.hash, spec.network_id) == (row["hash"], row["network_id"])


def test_rows_of_the_example_give_the_hashes_that_they_have():
    for folder in ("ladder", "compare", "search"):
        for row in read_table(Path("analysis/example") / folder, "trials").to_pylist():
            slots = {name: json.loads(row[name]) for name in SLOTS if row[name]}
            assert TrialSpec.build(**slots).hash == row["spec_hash"]


def job(out: Path, own_recipes: bool, names=("ce", "tst")) -> LadderRun:
    request = ResolvedRequest(
        {"data": {"dataset": "digits"}}, own_recipes=own_recipes
    ).with_recipe()
    return LadderRun(build_comparison(names), request, RunLocation(out, out / "store"))


def test_own_recipes_change_the_hashes_of_runs_and_their_absence_does_not(tmp_path):
    runs = {has_recipes: job(tmp_path, has_recipes) for has_recipes in (False, True)}
    sweeps = {has_recipes: run.build_manifest().sweep for has_recipes, run in runs.items()}
    assert sweeps[False] == "82669afa07cdd694"
    assert sweeps[True] != sweeps[False]
    question = SearchDefinition("tst", ResolvedRequest(), Objective(("ece",), 0.01))
    assert "own_recipes" not in question.record.plain()
    suited = SearchDefinition("tst", ResolvedRequest(own_recipes=True), Objective(("ece",), 0.01))
    assert suited.record.plain() == {**question.record.plain(), "own_recipes": True}
    for definition in (question, suited):
        again = SearchDefinition.read(SimpleNamespace(question=definition.record))
        assert again == definition
        lr = {t.spec.head.lr for t in again.candidates.trials({}, 0)}
        assert lr == {1e-4 if definition.resolved.own_recipes else 0.01}


def test_zero_epochs_of_a_request_are_those_of_a_frozen_network():
    request = AblateRequest(ladder="mac_cal", epochs=0, head_epochs=3)
    settings = resolve_settings(request)
    assert (settings["network"], settings["head"]) == ({"epochs": 0}, {"epochs": 3})
