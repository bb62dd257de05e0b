"""Resolve settings to trial specs: the only place where defaults fill in what is not requested.

All methods of a comparison are trained with one recipe, by default the data set's quick one, so
that methods are compared and not recipes. The recipes of the methods' authors are used on request.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS, DatasetInfo, Settings, flatten
from tune_calib.spec.methods import METHODS, MethodInfo
from tune_calib.spec.names import IMPORTED
from tune_calib.spec.recipe import QUICK, RECIPES, Recipe, recipe_for, refuse_misfit
from tune_calib.spec.slots.base import refuse_unknown
from tune_calib.spec.trial import SLOT_TYPES, TrialSpec
from tune_calib.text import format_setting

_SIZES = ("resize", "crop")
_NOT_OPTIMISER = {"epochs", "backbone", "augment", "augment_until"}


def is_frozen(overrides: Settings) -> bool:
    epochs = overrides.get("network", {}).get("epochs")
    return epochs == 0 and epochs is not False


def add_import(overrides: Settings) -> Settings:
    """Add the data set and the placeholder network of imported data, if it is requested."""
    data, network = overrides.get("data", {}), overrides.get("network", {})
    if data.get("imported") is None:
        if data.get("dataset") == IMPORTED:
            raise UserError(f"give the name of an import as `{IMPORTED}`", "data.dataset")
        return overrides
    placeholder = {"backbone": IMPORTED, "epochs": 0}
    for key, value in network.items():
        if key not in ("portable", "execution") and value != placeholder.get(key):
            raise UserError(f"network.{key}: imported data have no network; leave it out")
    data, network = {"dataset": IMPORTED, **data}, {**network, **placeholder}
    return {**overrides, "data": data, "network": network}


def find_recipe(overrides: Settings, name: str | None = None) -> Recipe | None:
    dataset = _named("data", "dataset", overrides)
    info: DatasetInfo = DATASETS[dataset]
    if name is None and is_frozen(overrides) and (info.quick is None or info.general is not None):
        return None  # only heads are trained, with the program's defaults and the images as given
    return recipe_for(name, dataset)


def restore_recipe(
    overrides: Settings, defaults: Settings, record: Mapping[str, Any] | None
) -> Recipe | None:
    """Return the recipe with which a search began; a quick recipe has settings and no record."""
    if not defaults and record is None:
        return None
    record = record or {"name": QUICK, "on": {}, "methods": {}}
    recipe = RECIPES[record["name"]]
    with suppress(UserError):  # it no longer fits
        recipe = recipe_for(recipe.name, _named("data", "dataset", overrides))
    return replace(recipe, settings=defaults, on=record["on"], methods=record["methods"])


def own_recipe(method: MethodInfo, dataset: str) -> dict[str, Any]:
    if method.recipe is None:
        return {}
    recipe: Recipe = RECIPES[method.recipe]
    slot = {**recipe.at(dataset).get(method.kind, {}), **recipe.of_method(method.name, dataset, "")}
    return {key: value for key, value in slot.items() if key not in _NOT_OPTIMISER}


def resolve_spec(
    overrides: Settings, recipe: Recipe | None = None, own_recipes: bool = False
) -> TrialSpec:
    """Resolve settings by slot to a trial spec.

    A setting comes from the first of these sources that has it: the requested settings (those of a
    method are among those of its slot or in ``params``); with ``own_recipes``, the recipe of the
    method's authors; the recipe, with its exceptions for the method; the hyper-parameters of the
    method's paper for the data set and the backbone; the program's defaults. With a frozen network,
    which is not trained, only settings of heads and sizes of images come from the recipe. The slots
    ``head`` and ``posthoc`` are filled if they are requested.
    """
    dataset = _named("data", "dataset", overrides)
    defaults = _recipe_settings(recipe, overrides) if recipe else {}
    places = dataset, _named("network", "backbone", overrides, defaults)
    has_training = not is_frozen(overrides)
    slots: dict[str, Any] = {"data": {**defaults.get("data", {}), **overrides.get("data", {})}}
    for name in ("network", "head", "posthoc"):
        slot_overrides, slot_defaults = dict(overrides.get(name, {})), defaults.get(name, {})
        if name == "network" and not has_training:
            if "backbone" not in slot_overrides:
                message = "a frozen network (network.epochs=0) needs its network.backbone"
                raise UserError(message, "network.epochs")
            refuse_unknown(slot_overrides, known_keys(name, "ce"), "a frozen network", name)
            slots[name] = slot_overrides
        elif name == "network" or name in overrides:
            method = method_of(name, slot_overrides)
            if recipe is not None and method is not None:
                slot_defaults = slot_defaults | recipe.of_method(method, *places)
            if name == "head" and dataset == IMPORTED:  # features are one clean view
                slot_defaults = slot_defaults | {"augment": "none"}
            slots[name] = _fill_slot(name, slot_overrides, slot_defaults, places, own_recipes)
    if recipe is not None and has_training:
        refuse_misfit(recipe, *places, slots["network"], own_recipes)
    return TrialSpec.build(**slots)


def _recipe_settings(recipe: Recipe, overrides: Settings) -> dict[str, dict[str, Any]]:
    dataset = _named("data", "dataset", overrides)
    settings = recipe.at(dataset, overrides.get("network", {}).get("backbone"))
    if not is_frozen(overrides):
        return settings
    # Shares, rules and constants of a recipe belong to the networks that it trains.
    data = {key: value for key, value in settings.get("data", {}).items() if key in _SIZES}
    heads = {slot: settings[slot] for slot in settings if slot in ("head", "posthoc")}
    return {"data": data, **heads}


def add_changes(name: str, recipe: Recipe, overrides: Settings) -> str:
    """Add the settings that override those of a recipe to its name, e.g. ``, but head.lr 1``."""
    settings = flatten(_recipe_settings(recipe, overrides))
    changes = []
    for setting, value in flatten(overrides).items():
        same = [format_setting(settings.get(setting, value))]
        if setting == "network.backbone" and setting in settings and recipe.backbones:
            same = list(recipe.backbones)  # any that it was made for
        if format_setting(value) not in same:
            changes.append(f"{setting} {format_setting(value)}")
    return f"{name}, but {', '.join(changes)}" if changes else name


def known_keys(slot: str, method: str | None) -> list[str]:
    keys = [key for key in SLOT_TYPES[slot].model_fields if key not in ("params", "plugin", "pool")]
    if method is not None:
        METHODS.require(method)
        facts = METHODS.facts(method)
        keys += facts["fields"] if facts else METHODS[method].params.model_fields
    return keys


def method_of(slot: str, overrides: Mapping[str, Any]) -> str | None:
    default = "ce" if slot == "network" else None
    name = overrides.get("method", default)
    return METHODS.canonical(name) if isinstance(name, str) else name


def _named(slot: str, key: str, *settings: Settings) -> str:
    for source in settings:
        if key in source.get(slot, {}):
            return str(source[slot][key])
    return str(SLOT_TYPES[slot].model_fields[key].default)


def _fill_slot(
    slot: str,
    overrides: dict[str, Any],
    defaults: Mapping[str, Any],
    places: tuple[str, str],
    own_recipes: bool,
) -> dict[str, Any]:
    name = method_of(slot, overrides)
    if name is None:
        names = ", ".join(name for name in METHODS if METHODS[name].kind == slot)
        raise UserError(f"the {slot} slot names no method; known: {names}")
    method, keys = METHODS[name], known_keys(slot, name)
    params = overrides.pop("params", {})
    if not isinstance(params, Mapping):
        raise UserError(f"{slot}.params must map settings of the method to values, got {params!r}")
    if twice := sorted(overrides.keys() & params.keys()):
        setting = f"{slot}.{twice[0]}"
        raise UserError(f"{setting} is given in the slot and in its params; give it once", setting)
    overrides = {**overrides, **params}
    refuse_unknown(overrides, keys, f"{slot} method {name!r}", slot)
    dataset, paper = places[0], method.dataset_defaults or {}
    defaults = {**paper.get(dataset, {}), **paper.get("/".join(places), {}), **defaults}
    if own_recipes and (authors := own_recipe(method, dataset)):
        # None of the authors uses Nesterov momentum, which Adam does not have.
        defaults |= {"nesterov": False, **authors}
    # A recipe fits a data set and not a method, so settings that the method lacks are dropped;
    # unknown overrides were refused above.
    settings = {key: value for key, value in defaults.items() if key in keys} | overrides
    params = {key: settings.pop(key) for key in list(settings) if key in method.params.model_fields}
    return {"method": name, **settings, "params": params}
