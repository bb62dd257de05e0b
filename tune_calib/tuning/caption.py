"""Describe the setting of a ladder or comparison in one line for its captions."""

import json
from collections.abc import Callable, Sequence
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
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.text import format_count, format_setting
from tune_calib.tuning.folder import RunLocation

_OUTPUTS = {"logits": "logits", "probs": "log-probabilities", "head": "logits by the given head"}
_OPTIMISERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}

# The text of each field of a recipe, empty for the usual value. Fields that differ between trials
# are left to the table.
_FIELD_TEXTS: dict[str, Callable[[Any], str]] = {
    "optimizer": lambda name: _OPTIMISERS[name],
    "nesterov": lambda has_it: "Nesterov's momentum" if has_it else "",
    "lr": lambda value: f"lr {value:g}",
    "schedule": lambda name: "" if name == "steps" else name.replace("_", " "),
    "warmup": lambda share: f"warm-up over {share:g} of the epochs" if share else "",
    "augment_until": lambda share: f"no augmentation after {share:g}" if share < 1 else "",
    "batch_size": lambda value: f"batch {value}",
    "weight_decay": lambda value: f"weight decay {value:g}",
    "loss_reduction": lambda value: f"{value} loss",
    "clip_grad_norm": lambda value: "no clip" if value is None else f"clip {value:g}",
    "precision": lambda name: "" if name == "fp32" else name,
    "weights": lambda identity: f"from the weights {identity}" if identity else "",
}

_DATA_FIELDS = ("split", "labels", "test_norm", "resize", "crop", "grey")

# The fields that are not part of a recipe.
_NO_RECIPE = {"plugin", "seed", "method", "params", "backbone", "init"}
_NO_RECIPE |= {"views", "bn_mode", "batch_order"}


def describe_setting(
    planned: Sequence[PlannedTrial], ladder: Ladder, resolved: ResolvedRequest
) -> str:
    """Describe the data, networks and heads of a ladder, and the recipes that train them."""
    networks = [trial.spec.network for trial in planned]
    heads = [trial.spec.head for trial in planned if trial.spec.head]
    parts = [
        describe_data(planned[0].spec.data),
        describe_networks(planned),
        *list_left_out(ladder, resolved),
        f"heads {describe_heads(planned, ladder.head_recipe)}" if heads else "",
    ]
    if is_trained(planned):
        whose = _describe_recipes(networks, heads, resolved.own_recipes)
        parts += [resolved.recipe_caption or "", whose]
    else:
        parts.append("nothing is trained")
    return "; ".join(filter(None, parts))


def describe_data(data: DataSlot) -> str:
    """Describe the data and their settings that differ from the defaults."""
    parts = [data.dataset]
    if record := data.import_record:
        features = f"{format_count(record.width, 'feature')}, " if record.width else ""
        sizes = {name: getattr(record, name) for name in ("train", "select", "calib", "test")}
        counts = ", ".join(f"{name} {count}" for name, count in sizes.items() if count)
        cut = " (select and calib: halves of one given split, class by class)" * record.is_cut
        parts = [
            f"imported {record.digest}: {features}{_OUTPUTS[record.outputs]} of {record.classes} "
            f"classes, {counts}{cut}"
        ]
    if data.train_fraction < 1:
        parts.append(f"{data.train_fraction:g} of the training split")
    if data.label_noise:
        parts.append(f"label noise {data.label_noise:g}")
    if data.imbalance > 1:
        parts.append(f"imbalance {data.imbalance:g}")
    parts += [
        f"{key} {value}".replace("_", " ")
        for key in _DATA_FIELDS
        if (value := getattr(data, key)) != type(data).model_fields[key].default
    ]
    if data.holdout == "test":
        select, calib, test = (f"{share:.4g}" for share in data.holdout_shares)
        parts.append(f"of the published test part: select {select}, calib {calib}, test {test}")
    if data.norm is not None:
        norm = data.norm if isinstance(data.norm, str) else format_setting(data.norm)
        parts.append(f"norm {norm.replace('_', ' ')}")
    return "; ".join(parts)


def describe_networks(planned: Sequence[PlannedTrial]) -> str:
    """Describe backbone, shared method, epochs and optimiser; return "" for imported data."""
    networks = [trial.spec.network for trial in planned]
    network = networks[0]
    if planned[0].spec.data.import_record is not None:
        return ""
    if network.is_frozen:
        return f"{network.backbone} as given (weights {network.weights})"
    loss = f", {network.method}" if len({slot.method for slot in networks}) == 1 else ""
    epochs = format_count(network.epochs, "epoch")
    return f"{network.backbone}{loss}, {epochs}{_recipe(networks)}"


def describe_heads(planned: Sequence[PlannedTrial], head_recipe: str | None) -> str:
    """Describe epochs and optimiser of the heads; return "" without heads."""
    heads = [trial.spec.head for trial in planned if trial.spec.head]
    if not heads:
        return ""
    whose = f", recipe of {head_recipe}" if head_recipe else ""
    return f"{format_count(heads[0].epochs, 'epoch')}{whose}{_recipe(heads)}"


def list_left_out(ladder: Ladder, resolved: ResolvedRequest) -> list[str]:
    """List the rungs that are left out, in a line for each reason."""
    return [
        f"left out, since {why}: {'; '.join(rung.label for rung in rungs)}"
        for why, rungs in find_left_out(ladder, resolved).items()
    ]


def is_trained(planned: Sequence[PlannedTrial]) -> bool:
    """Return whether any network or head is trained."""
    return any(trial.spec.head or not trial.spec.network.is_frozen for trial in planned)


def origin_records(resolved: ResolvedRequest, used: Sequence[Plugin]) -> dict[str, Any]:
    """Build the records of the recipe and the plug-ins for a manifest, if there are any."""
    records: dict[str, Any] = {}
    if used:
        records["plugins"] = [
            # Records omit defaults.
            PluginRecord(**{k: v for k, v in plugin.plain().items() if v and k != "source"})
            for plugin in used
        ]
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
    backbones = {trial.spec.network.backbone for trial in planned}
    long = {name: DATASETS[name].title for name in sorted(data)}
    long |= {name: BACKBONES[name].title for name in sorted(backbones)}
    short = {name: title.partition(" (")[0] for name, title in long.items()}
    root = location.data_root
    own = location.dataset_title or (root.resolve().name if root else None)
    is_own = (name for name, slot in data.items() if slot.found or slot.imported)
    return short | (dict.fromkeys(is_own, own) if own else {})


def _recipe(slots: Sequence[OptimisedSlot]) -> str:
    """Describe the settings that all slots share, e.g. ``: SGD, lr 0.1, batch 128``."""
    texts = (
        text(getattr(slots[0], name))
        for name, text in _FIELD_TEXTS.items()
        if name in type(slots[0]).model_fields and len({getattr(slot, name) for slot in slots}) == 1
    )
    shared = ", ".join(filter(None, texts))
    return f": {shared}" if shared else ""


def _describe_recipes(
    networks: Sequence[NetworkSlot], heads: Sequence[HeadSlot], own_recipes: bool
) -> str:
    if own_recipes:
        return "each method by its authors' recipe"
    for slots in (networks, heads):
        recipes = set()
        for slot in slots:
            plain = slot.model_dump(mode="json", exclude=_NO_RECIPE)
            epochs = plain.pop("epochs")
            plain["milestones"] = [round(share * epochs) for share in plain.get("milestones", ())]
            recipes.add(str(plain))
        if len(recipes) > 1:
            return "recipes differ"
    if len({slot.optimizer for slot in (*networks, *heads)}) > 1:
        return "one recipe for all networks, one by another optimiser for all heads"
    return "one recipe for all"
