"""Effective settings of a trial: the one place where defaults are put under what was asked for.

By default all methods are trained by one recipe, that of the data set, so that a comparison
compares methods; the recipe of a method's authors is taken when it is asked for.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from tune_calib.errors import UserError
from tune_calib.registry import DATASETS, METHODS, MethodInfo, nearest
from tune_calib.spec import DataSlot, HeadSlot, NetworkSlot, PostHocSlot, TrialSpec

Settings = Mapping[str, Mapping[str, Any]]
"""Settings by slot; those of a method beside those of its slot: ``{"head": {"gamma": 0.9}}``."""

SLOTS: dict[str, type[BaseModel]] = {
    "data": DataSlot,
    "network": NetworkSlot,
    "head": HeadSlot,
    "posthoc": PostHocSlot,
}


def suited_to(asked: Settings) -> Settings:
    """Settings that suit the data set that some settings name.

    Raises:
        UserError: the data set is unknown.
    """
    defaults: Settings = DATASETS[_named("data", "dataset", asked)].cpu_defaults
    return defaults


def own_recipe(method: MethodInfo, dataset: str) -> dict[str, Any]:
    """How the authors of a method train it on a data set: fields of its slot."""
    other = method.dataset_slot_defaults or {}
    return {**(method.slot_defaults or {}), **other.get(dataset, {})}


def effective(asked: Settings, defaults: Settings, own_recipes: bool = False) -> TrialSpec:
    """The trial that some settings ask for.

    Settings stand above each other, the lowest first: those of the program; hyper-parameters that
    a method's paper sets for the data set and the backbone; those that suit the data set; the
    recipe of a method's authors, where that was asked for; those that were asked for.

    Args:
        asked: settings by slot; a slot ``head`` or ``posthoc`` is filled if it is there. A
            method's own settings stand beside the slot's or in ``params``.
        defaults: settings by slot that suit the data set (``suited_to``); what a method does not
            know of them is not for it.
        own_recipes: train each method by the recipe of its authors.

    Raises:
        UserError: a setting that was asked for is unknown or out of range.
    """
    places = tuple(
        _named(slot, key, asked, defaults)
        for slot, key in (("data", "dataset"), ("network", "backbone"))
    )
    slots: dict[str, Any] = {"data": {**defaults.get("data", {}), **asked.get("data", {})}}
    for name in ("network", "head", "posthoc"):
        if name == "network" or name in asked:
            own = dict(asked.get(name, {}))
            slots[name] = _filled(name, own, defaults.get(name, {}), places, own_recipes)
    return TrialSpec.build(**slots)


def known_keys(slot: str, method: str | None) -> Iterator[str]:
    """Settings of a slot and of the method that fills it."""
    yield from (key for key in SLOTS[slot].model_fields if key not in ("params", "plugin"))
    if method is not None:
        yield from METHODS[method].params.model_fields


def method_of(slot: str, asked: Mapping[str, Any]) -> str | None:
    """Method that fills a slot: the one that is named, ``ce`` for a network without one."""
    named: str | None = asked.get("method", "ce" if slot == "network" else None)
    return named


def _named(slot: str, key: str, *settings: Settings) -> str:
    """A setting by its first place in some settings, or as the program has it."""
    found = (given[slot][key] for given in settings if key in given.get(slot, {}))
    return str(next(found, SLOTS[slot].model_fields[key].default))


def _filled(
    slot: str,
    asked: dict[str, Any],
    defaults: Mapping[str, Any],
    places: tuple[str, ...],
    own_recipes: bool,
) -> dict[str, Any]:
    """A slot with its defaults, as a spec takes it."""
    name = method_of(slot, asked)
    if name is None:
        raise UserError(f"the {slot} slot names no method; known: {', '.join(_of_kind(slot))}")
    method, known = METHODS[name], list(known_keys(slot, name))
    asked = _flat(slot, asked)
    for key in asked:
        if key not in known:
            raise UserError(f"{slot} method {name!r} has no setting {key!r}{nearest(key, known)}")
    recipe = own_recipe(method, places[0]) if own_recipes else {}
    below = {**_of_paper(method, places), **defaults, **recipe}
    # Defaults suit a data set and not a method, so that what it does not know of them is dropped;
    # what was asked for and is not known was refused above.
    settings = {**{key: value for key, value in below.items() if key in known}, **asked}
    params = {k: settings.pop(k) for k in list(settings) if k in method.params.model_fields}
    return {"method": name, **settings, "params": params}


def _flat(slot: str, asked: dict[str, Any]) -> dict[str, Any]:
    params = asked.pop("params", {})
    if not isinstance(params, Mapping):
        raise UserError(f"{slot}.params must map settings of the method to values, got {params!r}")
    twice = sorted(asked.keys() & params.keys())
    if twice:
        raise UserError(f"{slot}.{twice[0]} stands in the slot and in its params; give it once")
    return {**asked, **params}


def _of_paper(method: MethodInfo, places: tuple[str, ...]) -> dict[str, Any]:
    """Hyper-parameters that the paper sets for a data set, and for a backbone on it."""
    dataset, backbone = places
    given = method.dataset_defaults or {}
    return {**given.get(dataset, {}), **given.get(f"{dataset}/{backbone}", {})}


def _of_kind(slot: str) -> list[str]:
    return [name for name in METHODS if METHODS[name].kind == slot]
