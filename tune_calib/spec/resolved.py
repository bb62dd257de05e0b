"""Resolved requests: settings by slot, seeds and a recipe."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS, Settings, flatten
from tune_calib.spec.recipe import QUICK, Recipe
from tune_calib.spec.settings import add_changes, add_import, find_recipe, is_frozen, resolve_spec
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.trial import TrialSpec

LARGEST_PLAN = 100_000
"""Largest number of trials of one ladder or search; more are refused before they are listed."""


@dataclass(frozen=True)
class Seeds:
    """Pairs of network and head seeds."""

    network: tuple[int, ...]
    head: tuple[int, ...]
    is_paired: bool  # the i-th network seed goes with the i-th head seed; else every pair is run

    @classmethod
    def count(cls, pairs: int | None, networks: int | None, heads: int | None) -> "Seeds":
        """Return so many pairs of the first seeds, or networks crossed with heads."""
        if networks is None and heads is None:
            refuse_large(pairs or 1)
            seeds = tuple(range(pairs or 1))
            return cls(seeds, seeds, is_paired=True)
        networks, heads = networks or 1, heads or 1
        refuse_large(networks * heads)
        return cls(tuple(range(networks)), tuple(range(heads)), is_paired=False)

    def pairs(self) -> list[tuple[int, int]]:
        if self.is_paired:
            return list(zip(self.network, self.head, strict=True))
        return list(product(self.network, self.head))


@dataclass(frozen=True)
class ResolvedRequest:
    """A request of a ladder or a search, without what the rungs or suggestions set themselves."""

    overrides: Settings = field(default_factory=dict)  # by slot; a search does not vary them
    seeds: Seeds = Seeds((0,), (0,), is_paired=True)
    # Stored instead of looked up: a search continues with the recipe that it began with.
    recipe: Recipe | None = None  # None: the program's defaults
    controls: bool = False  # add the ladder's controls
    own_recipes: bool = False  # train each method with the recipe of its authors
    split_seeds: tuple[int, ...] = ()  # draws of the splits; the published one if empty
    calib_sizes: tuple[int, ...] = ()  # subsets of calib, for a learning curve besides all of it
    # Records by name of the imports that a pattern names; a single import is in ``overrides``.
    imports: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Add the settings that an import implies, and allow a frozen network head seeds only."""
        object.__setattr__(self, "overrides", add_import(self.overrides))
        for key, name in (("split_seed", "split_seeds"), ("calib_size", "calib_sizes")):
            if getattr(self, name) and key in self.overrides.get("data", {}):
                raise UserError(f"`{name}` varies data.{key}; give one of them")
        if not self.is_frozen:
            return
        if not self.seeds.is_paired and len(self.seeds.network) > 1:
            raise UserError(
                "there is only one frozen network, without `network_seeds`; use `head_seeds`"
            )
        object.__setattr__(self, "seeds", Seeds((0,), self.seeds.head, is_paired=False))

    @property
    def is_frozen(self) -> bool:
        return is_frozen(self.overrides)

    @property
    def draws(self) -> list[dict[str, Any]]:
        """Return the settings of the data for each import, draw of the splits and size of calib."""
        draws: list[dict[str, Any]] = []
        records: list[dict[str, Any] | None] = [*self.imports.values()]
        axes = records or [None], self.split_seeds or [None], [None, *self.calib_sizes]
        for record, seed, size in product(*axes):
            draw = {"imported": record, "split_seed": seed, "calib_size": size}
            draws.append({key: value for key, value in draw.items() if value is not None})
        return draws

    @property
    def outputs(self) -> list[tuple[int, bool]]:
        """Return the numbers of classes of the data, each with whether there are features."""
        if self.imports:
            records = self.imports.values()
            return sorted({(record["classes"], record["width"] > 0) for record in records})
        data = self.spec().data
        return [(data.info.classes, data.import_record is None or data.import_record.width > 0)]

    @property
    def is_imported(self) -> bool:
        """Return whether features or logits are imported, without a network."""
        return self.overrides.get("data", {}).get("imported") is not None

    def with_recipe(self, recipe: str | None = None) -> "ResolvedRequest":
        return replace(self, recipe=find_recipe(self.overrides, recipe))

    def identity(self) -> dict[str, Any]:
        """Return the part of a run's identity that is not its seeds, as plain JSON values."""
        overrides = {slot: dict(settings) for slot, settings in self.overrides.items()}
        # A run may continue with another execution.
        if overrides.get("network", {}).pop("execution", None) and not overrides["network"]:
            del overrides["network"]
        identity: dict[str, Any] = {"defaults": {}, "given": overrides}
        if self.own_recipes:
            identity["own_recipes"] = True
        if self.recipe:
            identity["defaults"] = self.recipe.settings
            if self.recipe.name != QUICK:
                identity["recipe"] = self.recipe.plain()
        return identity

    @property
    def fixed(self) -> dict[str, Any]:
        """Return the overrides by ``slot.key``, except the data set, its files and an import."""
        identifying = {"data.dataset", "data.imported", "data.found"}
        if self.is_imported:
            identifying |= {"network.backbone", "network.epochs"}
        settings = flatten(self.overrides)
        return {name: value for name, value in settings.items() if name not in identifying}

    @property
    def recipe_label(self) -> str | None:
        """Return the name of the recipe and the overrides of its settings, for rows."""
        if self.recipe is None:
            return None
        name = f"heads by {self.recipe.name}" if self.is_frozen else self.recipe.name
        label = add_changes(name, self.recipe, self.overrides)
        if self.own_recipes:
            label += "; each method by its authors' recipe"
        return label

    @property
    def recipe_caption(self) -> str | None:
        if self.recipe is None:
            return None
        name = f"heads by recipe {self.recipe.name}"
        if not self.is_frozen:
            origin = ", ".join(filter(None, (self.recipe.title, self.recipe.source)))
            name = f"recipe {self.recipe.name} ({origin})"
        return add_changes(name, self.recipe, self.overrides)

    def spec(self) -> TrialSpec:
        """Return the spec of only the data and the network."""
        data, network = self.overrides.get("data", {}), self.overrides.get("network", {})
        for record in list(self.imports.values())[:1]:
            data = {**data, "imported": record}
        network = {key: value for key, value in network.items() if key in NetworkSlot.model_fields}
        return resolve_spec({"data": data, "network": network}, self.recipe)

    def with_scanned_data(self, data_root: Path | None, images: Path) -> "ResolvedRequest":
        """Add the properties of the user's own images, which are read and cached in ``images``."""
        data = self.overrides.get("data", {})
        slot = self.spec().data
        general = DATASETS[slot.dataset].general
        if general is None or slot.found is not None:
            return self
        data = {**data, "found": general.describe(slot, data_root, images)}
        return replace(self, overrides={**self.overrides, "data": data})


def refuse_large(trials: int) -> None:
    if trials > LARGEST_PLAN:
        raise UserError(
            f"{trials:,} trials are planned, but at most {LARGEST_PLAN:,} are allowed at a time"
        )
