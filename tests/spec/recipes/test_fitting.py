"""Every recipe on every data set and backbone, and what stands above it."""

import pytest

from tests.spec.recipes.support import BOTH, FITTING, NETWORKS, needs_stages, request_for, spec_of
from tests.support import sample
from tune_calib.errors import UserError
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import build_comparison, expand
from tune_calib.spec.recipe import QUICK, RECIPES, Recipe, fitting


@pytest.mark.parametrize("dataset", sorted({dataset for dataset, _ in BOTH}))
def test_a_recipe_fits_a_data_set_or_the_error_lists_those_that_fit(dataset):
    for name in [name for other, name in BOTH if other == dataset]:
        if name in fitting(dataset):
            recipe = request_for(dataset, name).recipe
            assert recipe.name == name
            assert recipe.title
            continue
        with pytest.raises(UserError) as caught:
            request_for(dataset, name)
        message = str(caught.value)
        assert "\n" not in message
        assert all(other in message for other in fitting(dataset))


@pytest.mark.parametrize("own_recipes", [False, True])
@pytest.mark.parametrize(("dataset", "name"), FITTING)
def test_all_methods_expand_under_each_recipe(dataset, name, own_recipes):
    names = [*NETWORKS, "mac_cal", "tst", "ls+vtst+temperature"]
    if own_recipes and RECIPES[name].pretrained:
        with pytest.raises(UserError, match="`own_recipes` train networks from scratch"):
            expand(build_comparison(names), request_for(dataset, name, own_recipes))
        return
    # The joint variant of TST and BalCAL ask for stages that a vision transformer has not.
    names = [method for method in names if not needs_stages(method) or name != "vit"]
    request = request_for(dataset, name, own_recipes)
    for trial in expand(build_comparison(names), request):
        network = trial.spec.network
        assert network.backbone == request.recipe.at(dataset)["network"]["backbone"]
        assert trial.spec.data.dataset == dataset


@pytest.mark.parametrize("backbone", sample([*BACKBONES, "resnet18", "vit_base_patch16_384"], 4))
def test_a_recipe_that_is_named_takes_any_backbone(backbone):
    for dataset, name in FITTING:
        spec = spec_of(dataset, name, backbone=backbone)
        settings = RECIPES[name].at(dataset, backbone) if name != QUICK else {}
        for key, value in settings.get("network", {}).items():
            if key != "backbone":
                assert getattr(spec.network, key) == value, (dataset, name)
        assert spec.network.backbone == backbone
        # Once more through JSON: it is a spec, and no other.
        assert type(spec).model_validate_json(spec.canonical_json()).hash == spec.hash


@pytest.mark.parametrize("dataset", [name for name in DATASETS if DATASETS[name].quick])
def test_the_quick_setting_that_nobody_named_is_for_its_backbones_alone(dataset):
    made_for = DATASETS[dataset].quick.backbones
    for backbone in ("small_cnn", "small_vgg", "resnet50", "resnet110"):
        if not made_for or backbone in made_for:
            assert spec_of(dataset, None, backbone=backbone) == spec_of(
                dataset, QUICK, backbone=backbone
            )
            continue
        with pytest.raises(UserError, match=f"made for {', '.join(made_for)}, not for {backbone}"):
            spec_of(dataset, None, backbone=backbone)


@pytest.mark.parametrize("own_recipes", [False, True])
@pytest.mark.parametrize(("dataset", "name"), FITTING)
def test_requested_settings_override_recipes(dataset, name, own_recipes):
    if own_recipes and RECIPES[name].pretrained:
        return
    request = request_for(dataset, name, own_recipes, epochs=7, lr=0.3, backbone="resnet20")
    (trial,) = expand(build_comparison(["fl"]), request)
    network = trial.spec.network
    assert (network.epochs, network.lr, network.backbone) == (7, 0.3, "resnet20")
    settings = {**request.recipe.at(dataset, "resnet20")["network"], "method": "fl"}
    # Those of its authors stand above the recipe's, but not for these.
    assert network.augment == settings["augment"]
    assert network.batch_size == (
        RECIPES["focal"].at(dataset)["network"]["batch_size"]
        if own_recipes
        else settings["batch_size"]
    )
    label = request.recipe_label
    assert label.startswith(f"{name}, but ")
    assert "network.epochs 7" in label
    assert label.endswith("each method by its authors' recipe") == own_recipes


def test_a_recipe_may_differ_with_a_backbone_on_a_data_set():
    recipe = Recipe(
        "lab", "a lab's", "nobody", {"network": {"epochs": 9}}, datasets=("cifar10", "digits"),
        on={"cifar10/resnet18": {"network": {"epochs": 5}}},
    )  # fmt: skip
    epochs = [
        each_recipe.at(dataset, backbone)["network"]["epochs"]
        for each_recipe in (recipe, recipe.narrowed("cifar10"))
        for dataset, backbone in (("cifar10", "resnet18"), ("cifar10", "resnet8"))
    ]
    assert epochs == [5, 9, 5, 9]
    assert recipe.at("digits", "resnet18")["network"]["epochs"] == 9
