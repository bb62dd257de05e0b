"""Describe the setting of a ladder or comparison in one line for its captions."""

import json
from collections.abc import Sequence
from typing import Any

from tune_calib.results.manifests import PluginRecord, RecipeRecord
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import Ladder, PlannedTrial, find_left_out
from tune_calib.spec.plugins import Plugin
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.slots.base import OptimisedSlot
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.trial import SLOT_TYPES
from tune_calib.text import format_count, format_setting
from tune_calib.tuning.folder import RunLocation

_OUTPUTS = {"logits": "logits", "probs": "log-probabilities", "head": "logits by the given head"}
_OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}

# The text of each field of a recipe, unless its value is the usual one. Fields that differ between
# trials are left to the table.
_FIELD_TEXTS = {
    "optimizer": "{}",
    "nesterov": "Nesterov's momentum",
    "lr": "lr {:g}",
    "schedule": "{}",
    "warmup": "warm-up over {:g} of the epochs",
    "augment_until": "no augmentation after {:g}",
    "batch_size": "batch {}",
    "weight_decay": "weight decay {:g}",
    "loss_reduction": "{} loss",
    "clip_grad_norm": "clip {:g}",
    "precision": "{}",
    "weights": "from the weights {}",
}
_USUAL = {"nesterov": False, "schedule": "steps", "warmup": 0, "augment_until": 1}
_USUAL |= {"precision": "fp32", "weights": None}

_DATA_FIELDS = ("split", "labels", "test_norm", "resize", "crop", "grey")

# The fields that are not part of a recipe.
_NO_RECIPE = {"plugin", "seed", "method", "params", "backbone", "init", "pool"}
_NO_RECIPE |= {"views", "bn_mode", "batch_order"}


def describe_setting(
    planned: Sequence[PlannedTrial], ladder: Ladder | None, resolved: ResolvedRequest
) -> str:
    """Describe the data, networks and heads of a run, and the recipes that train them."""
    imports = {}
    for trial in planned:
        if record := trial.spec.data.import_record:
            imports[record.digest] = record.classes
    parts = [describe_data(planned[0].spec.data)]
    if len(imports) > 1:
        counts = ", ".join(map(str, sorted(set(imports.values()))))
        parts = [f"{len(imports)} imports of {counts} classes"]
    parts.append(_describe_networks(planned))
    if ladder:
        for reason, rungs in find_left_out(ladder, resolved).items():
            parts.append(f"left out, since {reason}: {'; '.join(rung.label for rung in rungs)}")
    heads = list_heads(planned)
    if heads:
        text = f"heads {format_count(heads[0].epochs, 'epoch')}"
        if ladder and ladder.head_recipe:
            text += f", recipe of {ladder.head_recipe}"
        parts.append(text + _recipe(heads))
    parts.append(describe_set(resolved))
    if heads or not all(trial.spec.network.is_frozen for trial in planned):
        parts += [resolved.recipe_caption or "", _describe_recipes(planned, resolved.own_recipes)]
    else:
        parts.append("nothing is trained")
    return "; ".join(filter(None, parts))


def describe_set(resolved: ResolvedRequest) -> str:
    """Describe the requested settings of methods, e.g. ``set head.gamma 0.95``; "" without any."""
    texts = []
    for name, value in resolved.fixed.items():
        slot, _, key = name.partition(".")
        if slot == "pool" or key not in SLOT_TYPES[slot].model_fields:
            texts.append(f"{name} {format_setting(value)}")
    return f"set {', '.join(texts)}" if texts else ""


def describe_data(data: DataSlot) -> str:
    """Describe the data and their settings that differ from the defaults."""
    parts = [data.dataset]
    if record := data.import_record:
        sizes = [f"{_OUTPUTS[record.outputs]} of {record.classes} classes"]
        if record.width:
            sizes[0] = f"{format_count(record.width, 'feature')}, {sizes[0]}"
        for name in ("train", "select", "calib", "test"):
            if count := getattr(record, name):
                sizes.append(f"{name} {count}")
        text = f"imported {record.digest}: {', '.join(sizes)}"
        if record.is_cut:
            how = "class by class"
            if record.groups:
                how = "without dividing a group"
            text += f" (select and calib: halves of one given split, {how})"
        if record.groups:
            counts = [f"{name} {count}" for name, count in record.groups.items()]
            text += f"; groups: {', '.join(counts)}"
        parts = [text]
    if data.train_fraction < 1:
        parts.append(f"{data.train_fraction:g} of the training split")
    if data.label_noise:
        parts.append(f"label noise {data.label_noise:g}")
    if data.imbalance > 1:
        parts.append(f"imbalance {data.imbalance:g}")
    changed = data.model_dump(include=set(_DATA_FIELDS), exclude_defaults=True)
    parts += [
        f"{name} {changed[name]}".replace("_", " ") for name in _DATA_FIELDS if name in changed
    ]
    if data.holdout == "test":
        select, calib, test = (f"{share:.4g}" for share in data.holdout_shares)
        parts.append(f"of the published test part: select {select}, calib {calib}, test {test}")
    if data.norm is not None:
        parts.append(f"norm {format_setting(data.norm).replace('_', ' ')}")
    return "; ".join(parts)


def _describe_networks(planned: Sequence[PlannedTrial]) -> str:
    networks = [trial.spec.network for trial in planned]
    network = networks[0]
    if planned[0].spec.data.import_record is not None:
        return ""
    if network.is_frozen:
        return f"{network.backbone} as given (weights {network.weights})"
    parts = [network.backbone]
    if _is_shared("method", networks):
        parts.append(network.method)
    parts.append(f"{format_count(network.epochs, 'epoch')}{_recipe(networks)}")
    return ", ".join(parts)


def list_heads(planned: Sequence[PlannedTrial]) -> list[HeadSlot]:
    return [trial.spec.head for trial in planned if trial.spec.head]


def origin_records(resolved: ResolvedRequest, used: Sequence[Plugin]) -> dict[str, Any]:
    """Build the records of the recipe and the plug-ins for a manifest."""
    plugins = []
    for plugin in used:
        parts = dict(plugin.parts)
        record = PluginRecord(
            name=plugin.name, content=plugin.content, where=plugin.where, parts=parts
        )
        plugins.append(record)
    records: dict[str, Any] = {"plugins": plugins}
    if recipe := resolved.recipe:
        records["recipe"] = RecipeRecord(
            name=recipe.name,
            title=recipe.title,
            source=recipe.source,
            # JSON turns tuples into lists, so that the record equals the one that is read.
            settings=json.loads(json.dumps(recipe.settings)),
            told=resolved.recipe_label or "",
        )
    return records


def titles(planned: Sequence[PlannedTrial], location: RunLocation) -> dict[str, str]:
    """Return titles of data sets and backbones, without parentheses, by registry name."""
    data = {trial.spec.data.dataset: trial.spec.data for trial in planned}
    short = {name: DATASETS[name].title.partition(" (")[0] for name in sorted(data)}
    for name in sorted({trial.spec.network.backbone for trial in planned}):
        short[name] = BACKBONES[name].title.partition(" (")[0]
    title_of_user = location.dataset_title
    if not title_of_user and location.data_root:
        title_of_user = location.data_root.resolve().name
    if title_of_user:
        for name, slot in data.items():
            if slot.found or slot.imported:
                short[name] = title_of_user
    return short


def _recipe(slots: Sequence[OptimisedSlot]) -> str:
    texts = []
    for name, text in _FIELD_TEXTS.items():
        if name not in type(slots[0]).model_fields or not _is_shared(name, slots):
            continue
        value = getattr(slots[0], name)
        if name == "clip_grad_norm" and value is None:
            texts.append("no clip")
        elif name not in _USUAL or value != _USUAL[name]:
            if name in ("optimizer", "schedule"):
                value = _OPTIMISERS.get(value, value.replace("_", " "))
            texts.append(text.format(value))
    return f": {', '.join(texts)}" if texts else ""


def _is_shared(name: str, slots: Sequence[OptimisedSlot]) -> bool:
    return len({getattr(slot, name) for slot in slots}) == 1


def _describe_recipes(planned: Sequence[PlannedTrial], own_recipes: bool) -> str:
    if own_recipes:
        return "each method by its authors' recipe"
    networks, heads = [trial.spec.network for trial in planned], list_heads(planned)
    for slots in (networks, heads):
        recipes = set()
        for slot in slots:
            plain = slot.model_dump(mode="json", exclude=_NO_RECIPE)
            epochs = plain.pop("epochs")
            plain["milestones"] = [round(share * epochs) for share in plain.get("milestones", ())]
            recipes.add(str(plain))
        if len(recipes) > 1:
            return "recipes differ"
    if not _is_shared("optimizer", (*networks, *heads)):
        return "one recipe for all networks, one by another optimiser for all heads"
    return "one recipe for all"
