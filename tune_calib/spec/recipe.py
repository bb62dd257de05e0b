"""Records of recipes: settings with which a paper, or a quick run, trains networks and heads."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS, Quick, Settings, flatten
from tune_calib.spec.names import NOT_SETTINGS
from tune_calib.spec.trial import SLOT_TYPES
from tune_calib.text import nearest

QUICK = "quick"
"""The recipe that each data set has of its own and that is used if none is named."""


def by_slot(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return settings with names such as ``head.lr`` by slot; refuse what is not a setting."""
    slots: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        slot, dot, key = name.partition(".")
        if not dot or slot not in SLOT_TYPES:
            names = ", ".join(SLOT_TYPES)
            raise UserError(f"{name}: write slot.key, where slot is one of {names}", setting="set")
        if key in NOT_SETTINGS:
            raise UserError(f"{name} is not a setting; the ladder or `seeds` sets it", "set")
        slots.setdefault(slot, {})[key] = value
    return slots


def merge_settings(*settings: Settings) -> dict[str, dict[str, Any]]:
    """Merge settings by slot; later ones override earlier ones."""
    merged: dict[str, dict[str, Any]] = {}
    for source in settings:
        for slot, values in source.items():
            merged.setdefault(slot, {}).update(values)
    return {slot: values for slot, values in merged.items() if values}


@dataclass(frozen=True)
class Recipe:
    """Settings with which networks and heads are trained; recipes with equal trials are equal."""

    name: str
    title: str = field(compare=False)  # one line, as printed in captions
    source: str = field(default="", compare=False)  # the paper or program that it is from
    settings: Settings = field(default_factory=dict)  # for every data set that it fits
    datasets: tuple[str, ...] = field(default=(), compare=False)  # those that it fits
    url: str = field(default="", compare=False)
    # Settings that differ on a data set (``cifar10``) or for a backbone on it
    # (``cifar10/resnet110``).
    on: Mapping[str, Settings] = field(default_factory=dict)
    # Settings that its authors change for a method, by its name, then by a data set, a backbone on
    # it, or an empty string for all.
    methods: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    backbones: tuple[str, ...] = field(default=(), compare=False)  # empty if it fits any
    # Whether its networks start from weights that a user provides (``network.weights``).
    pretrained: bool = field(default=False, compare=False)
    note: str = field(default="", compare=False)  # how it differs from the publication

    def __post_init__(self) -> None:
        names: list[str] = []
        for slot, model in SLOT_TYPES.items():
            names += [f"{slot}.{key}" for key in model.model_fields if key not in NOT_SETTINGS]
        for name in flatten(merge_settings(self.settings, *self.on.values())):
            if name not in names:
                hint = nearest(name, names)
                raise UserError(f"a recipe sets {name}, which is not a setting{hint}")

    def at(self, dataset: str, backbone: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the settings by slot on a data set, with a backbone or the recipe's own one."""
        settings = merge_settings(self.settings, self.on.get(dataset, {}))
        backbone = backbone or settings.get("network", {}).get("backbone", "")
        return merge_settings(settings, self.on.get(f"{dataset}/{backbone}", {}))

    def of_method(self, method: str, dataset: str, backbone: str) -> dict[str, Any]:
        """Return the settings that differ for a method: those of its slot and its own."""
        exceptions = self.methods.get(method, {})
        settings: dict[str, Any] = {}
        for place in ("", dataset, f"{dataset}/{backbone}"):
            settings |= exceptions.get(place, {})
        return settings

    def narrowed(self, dataset: str) -> "Recipe":
        methods: dict[str, dict[str, Mapping[str, Any]]] = {}
        for name, exceptions in self.methods.items():
            for place, settings in exceptions.items():
                if place in ("", dataset) or place.startswith(f"{dataset}/"):
                    methods.setdefault(name, {})[place] = settings
        settings = merge_settings(self.settings, self.on.get(dataset, {}))
        on = {place: values for place, values in self.on.items() if place.startswith(f"{dataset}/")}
        return replace(self, settings=settings, datasets=(dataset,), on=on, methods=methods)

    def plain(self) -> dict[str, Any]:
        """Return what identifies its trials besides the settings, as plain JSON values."""
        return {"name": self.name, "on": self.on, "methods": self.methods}


RECIPES: Registry[Recipe] = Registry("recipe", "tune_calib.spec.recipes", Recipe)


def recipe_for(name: str | None, dataset: str) -> Recipe:
    """Return the named recipe narrowed to a data set; its quick recipe if none is named."""
    recipe: Recipe = RECIPES[name or QUICK]
    quick: Quick | None = DATASETS[dataset].quick
    if recipe.name != QUICK:
        if dataset not in recipe.datasets:
            raise UserError(
                f"recipe {name!r} does not fit {dataset} (it is for {', '.join(recipe.datasets)}); "
                f"{_way_out(dataset)}"
            )
        return recipe.narrowed(dataset)
    if quick is None:
        raise UserError(f"{dataset} has no quick setting; {_way_out(dataset)}")
    backbones = () if name else quick.backbones  # whoever names it wants it with any backbone
    recipe = replace(recipe, title=quick.title, settings=quick.settings, datasets=(dataset,))
    return replace(recipe, backbones=backbones)


def refuse_misfit(
    recipe: Recipe, dataset: str, backbone: str, network: Mapping[str, Any], own_recipes: bool
) -> None:
    if recipe.name == QUICK and recipe.backbones and backbone not in recipe.backbones:
        BACKBONES.require(backbone)  # an unknown backbone is another mistake
        raise UserError(
            f"the quick setting of {dataset} was made for {', '.join(recipe.backbones)}, not for "
            f"{backbone}; {_way_out(dataset, backbone)}"
        )
    if recipe.pretrained and network.get("weights") is None:
        raise UserError(
            f"recipe {recipe.name!r} starts from pretrained weights: set `network.weights` to the "
            "safetensors file of its backbone"
        )
    if recipe.pretrained and own_recipes:
        raise UserError(
            f"recipe {recipe.name!r} fine-tunes, and `own_recipes` train networks from scratch"
        )


def fitting(dataset: str, backbone: str | None = None) -> list[str]:
    """Return the recipes that fit a data set; with a backbone, those but quick that fit both."""
    names = []
    if backbone is None and dataset in DATASETS:
        facts = DATASETS.facts(dataset) or vars(DATASETS[dataset])  # a record imports torch
        names += [QUICK] * (facts["quick"] is not None)
    for recipe in RECIPES.values():
        fits_backbone = backbone is None or not recipe.backbones or backbone in recipe.backbones
        if dataset in recipe.datasets and fits_backbone:
            names.append(recipe.name)
    return names


def _way_out(dataset: str, backbone: str | None = None) -> str:
    names = fitting(dataset, backbone)
    if names:
        return f"choose a `recipe` that fits: {', '.join(names)}"
    if backbone is not None:
        return f"no other recipe fits; `recipe` {QUICK} trains {backbone} with that setting anyway"
    return "no recipe fits it: give it a `quick`, or register a recipe (docs/pages/adding.md)"
