"""Resolve a request: its settings by slot, seeds, recipe, and the rungs of its ladder."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from tune_calib.errors import UserError
from tune_calib.spec import plugins
from tune_calib.spec.datasets import DATASETS, Settings
from tune_calib.spec.design import DESIGNS, build_design
from tune_calib.spec.ladder import (
    LADDERS,
    Ladder,
    build_comparison,
    build_kind_comparison,
    has_setting,
    refuse_unused,
)
from tune_calib.spec.names import IMPORTED
from tune_calib.spec.recipe import by_slot, merge_settings
from tune_calib.spec.request import (
    GIVES,
    AblateRequest,
    CompareRequest,
    LadderRequest,
    SearchRequest,
    TrialsRequest,
)
from tune_calib.spec.resolved import ResolvedRequest, Seeds
from tune_calib.spec.trial import SLOT_TYPES


def resolve_settings(request: TrialsRequest) -> dict[str, dict[str, Any]]:
    weights, imported = request.weights, request.imported
    if weights is not None and request.epochs is not None:
        message = "is a network that is not trained: leave `epochs` out, or `set` network.weights"
        raise UserError(message, "weights")
    if imported is not None and request.dataset != "digits":
        raise UserError("takes the place of `dataset`; give one of them", setting="imported")
    dataset = request.dataset if imported is None else IMPORTED
    settings: dict[str, Any] = {"data.dataset": dataset}
    for field, setting in GIVES.items():
        value = getattr(request, field)
        if value is not None and value is not False:  # 0 epochs mean a frozen network
            settings[setting] = value
    if weights is not None:
        settings |= {"network.weights": str(weights), "network.epochs": 0}
    for name, value in (request.set or {}).items():
        if name in settings:
            fields = ", ".join(f"`{field}`" for field in GIVES)
            raise UserError(f"{name} is given twice; {fields} also give settings", "set")
        settings[name] = value
    if isinstance(backbone := settings.get("network.backbone"), str):
        settings["network.backbone"] = plugins.backbone(backbone)
    slots = by_slot(settings)
    for slot, values in slots.items():  # before any is imported
        for key, registry in SLOT_TYPES[slot].named.items():
            if isinstance(values.get(key), str):
                registry.require(values[key])
    if request.dataset_title is not None and not takes_title(dataset):
        raise UserError(f"is for your own images, and {dataset} has a title", "dataset_title")
    return slots


def takes_title(dataset: str) -> bool:
    """Return whether a data set is a user's own, so that no record has its title."""
    return dataset == IMPORTED or DATASETS[dataset].general is not None


def resolve_ladder(request: AblateRequest | CompareRequest) -> tuple[Ladder, ResolvedRequest]:
    settings = resolve_settings(request)
    if isinstance(request, AblateRequest):
        assert request.ladder is not None
        ladder = build_design(LADDERS[request.ladder], request.design, request.posthoc)
        refuse_unused(ladder.rungs, settings)  # before a data set is imported
        return ladder, resolve(request)
    resolved = resolve(request)  # before methods are imported
    if request.all is None:
        ladder = build_comparison(*_list_methods(request))
    else:
        ladder = build_kind_comparison(request.all)
    refuse_unused(ladder.rungs, settings)
    return ladder, resolved


def _list_methods(request: CompareRequest) -> tuple[list[str], list[Settings]]:
    pipelines: list[str] = []
    settings: list[Settings] = []
    grid = request.grid or {}
    unused = set(grid)
    for method in request.methods:
        values_of = {name: grid[name] for name in grid if has_setting(method.method, name)}
        unused -= values_of.keys()
        for cell in product(*values_of.values()):
            pipelines.append(method.method)
            chosen = by_slot(dict(zip(values_of, cell, strict=True)))
            settings.append(merge_settings(method.set.by_slot(), chosen))
    for name in sorted(unused):
        raise UserError(f"no method has a setting {name}", "grid")
    return pipelines, settings


def resolve(request: AblateRequest | CompareRequest | SearchRequest) -> ResolvedRequest:
    resolved = ResolvedRequest(
        resolve_settings(request),
        Seeds.count(request.seeds, request.network_seeds, request.head_seeds),
        controls=isinstance(request, AblateRequest) and request.controls,
        own_recipes=not isinstance(request, AblateRequest) and request.own_recipes,
    )
    if isinstance(request, LadderRequest):
        split_seeds = tuple(range(request.split_seeds or 0))
        resolved = replace(resolved, split_seeds=split_seeds, calib_sizes=request.calib_sizes)
    return resolved.with_recipe(request.recipe)


def default_folder(request: AblateRequest | CompareRequest | SearchRequest) -> str:
    """Return ``out``, or a folder in ``runs`` that is named after the request."""
    name = "compare"
    if isinstance(request, AblateRequest):
        name = str(request.ladder)
        if request.design != DESIGNS[0]:
            name += f"-{request.design}"
        if request.posthoc:
            name += f"-{request.posthoc}"
    elif isinstance(request, SearchRequest) and request.replay:
        return request.out or f"runs/replay-{Path(request.replay).stem}"
    elif isinstance(request, SearchRequest):
        name = f"search-{request.method}"
    data = re.sub(r"[^\w.-]+", "-", request.imported or request.dataset).strip("-")
    return request.out or f"runs/{name}-{data}"
