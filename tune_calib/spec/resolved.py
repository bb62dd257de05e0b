"""What is asked of the trials of a ladder or a search: settings, and under which seeds."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS, Settings
from tune_calib.spec.recipe import QUICK, Recipe
from tune_calib.spec.settings import add_import, find_recipe, is_frozen, list_changes, resolve_spec
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.trial import TrialSpec

LARGEST_PLAN = 100_000
"""Trials of one ladder or search; more are refused before any is written out."""


@dataclass(frozen=True)
class Seeds:
    """Pairs of network and head seeds.

    Attributes:
        network: seeds of the networks.
        head: seeds of the heads.
        is_paired: the i-th network goes with the i-th head seed; else every pair is run.
    """

    network: tuple[int, ...]
    head: tuple[int, ...]
    is_paired: bool

    @classmethod
    def count(cls, both: int | None, network: int | None, head: int | None) -> "Seeds":
        """Return the first seeds: this many pairs, or networks crossed with heads."""
        is_paired = network is None and head is None
        refuse_large((both or 1) if is_paired else (network or 1) * (head or 1))
        if is_paired:
            numbers = tuple(range(both or 1))
            return cls(numbers, numbers, is_paired=True)
        return cls(tuple(range(network or 1)), tuple(range(head or 1)), is_paired=False)

    def pairs(self) -> list[tuple[int, int]]:
        """Return all pairs (network seed, head seed) that are run."""
        if self.is_paired:
            return list(zip(self.network, self.head, strict=True))
        return [(n, h) for n in self.network for h in self.head]


ONE_SEED = Seeds((0,), (0,), is_paired=True)


@dataclass(frozen=True)
class ResolvedRequest:
    """What a ladder or a search is asked for, beside what it varies itself.

    Attributes:
        overrides: settings by slot that were asked for; a search does not search them.
        seeds: of networks and heads.
        recipe: settings that hold unless others are given (``settings.find_recipe``); None: those
            of the program.
        controls: add the ladder's controls.
        own_recipes: train each method by the recipe of its authors.
    """

    overrides: Settings = field(default_factory=dict)
    seeds: Seeds = ONE_SEED
    # Kept, and not looked up each time: a search goes on with the recipe that it began with.
    recipe: Recipe | None = None
    controls: bool = False
    own_recipes: bool = False

    def __post_init__(self) -> None:
        """Add what an import implies, and allow a frozen network head seeds only.

        Of imported data the network is given, and none.
        """
        object.__setattr__(self, "overrides", add_import(self.overrides))
        if not self.is_frozen:
            return
        if not self.seeds.is_paired and len(self.seeds.network) > 1:
            raise UserError(
                "a frozen network is one, whatever `network_seeds` say; leave them out: "
                "`head_seeds` are those of its heads"
            )
        heads = Seeds((0,), self.seeds.head, is_paired=False)
        object.__setattr__(self, "seeds", heads)

    @property
    def is_frozen(self) -> bool:
        """Return whether the network is frozen."""
        return is_frozen(self.overrides)

    @property
    def is_imported(self) -> bool:
        """Return whether features or logits are imported, without a network."""
        return self.overrides.get("data", {}).get("imported") is not None

    def with_recipe(self, recipe: str | None = None) -> "ResolvedRequest":
        """Add the named recipe for the data set; its quick one unless named."""
        return replace(self, recipe=find_recipe(self.overrides, recipe))

    def identity(self) -> dict[str, Any]:
        """Return what identifies a run besides its seeds, as plain JSON values.

        ``recipe`` and ``own_recipes`` only where asked for, as before there were any.
        """
        recipe = self.recipe
        return {
            "defaults": recipe.settings if recipe else {},
            "given": self.overrides,
            **({"own_recipes": True} if self.own_recipes else {}),
            **({"recipe": recipe.plain()} if recipe and recipe.name != QUICK else {}),
        }

    @property
    def fixed(self) -> dict[str, Any]:
        """Return the overrides by ``slot.key``, as ``set`` takes them.

        The data set and the import are left out, which options of their own name, and so is what
        only files say of them.
        """
        named = {"data": {"dataset", "imported", "found"}}
        if self.is_imported:
            named["network"] = {"backbone", "epochs"}
        return {
            f"{slot}.{key}": value
            for slot, own in self.overrides.items()
            for key, value in own.items()
            if key not in named.get(slot, ())
        }

    @property
    def recipe_label(self) -> str | None:
        """Return the name of the recipe and the overrides of its settings, for rows."""
        if self.recipe is None:
            return None
        name = f"heads by {self.recipe.name}" if self.is_frozen else self.recipe.name
        told = ", ".join([name, *self._other_than_it()])
        return f"{told}; each method by its authors' recipe" if self.own_recipes else told

    @property
    def recipe_caption(self) -> str | None:
        """Return ``recipe_label`` with the title and the source, for captions."""
        if self.recipe is None:
            return None
        if self.is_frozen:
            return ", ".join([f"heads by recipe {self.recipe.name}", *self._other_than_it()])
        about = ", ".join(filter(None, (self.recipe.title, self.recipe.source)))
        return ", ".join([f"recipe {self.recipe.name} ({about})", *self._other_than_it()])

    def _other_than_it(self) -> list[str]:
        assert self.recipe is not None
        changes = list_changes(self.recipe, self.overrides)
        return [f"but {', '.join(changes)}"] if changes else []

    def spec(self) -> TrialSpec:
        """Resolve the spec of data and network alone."""
        network = self.overrides.get("network", {})
        known = {key: value for key, value in network.items() if key in NetworkSlot.model_fields}
        return resolve_spec({"data": self.overrides.get("data", {}), "network": known}, self.recipe)

    def with_scanned_data(self, data_root: Path | None, images: Path) -> "ResolvedRequest":
        """Add the facts that only the files of a data set without a record hold.

        Args:
            data_root: where data sets lie.
            images: folder of decoded images; all of such a data set are read.
        """
        data = self.overrides.get("data", {})
        slot = self.spec().data
        general = DATASETS[slot.dataset].general
        if general is None or slot.found is not None:
            return self
        found = general.describe(slot, data_root, images)
        return replace(self, overrides={**self.overrides, "data": {**data, "found": found}})


def refuse_large(trials: int) -> None:
    """Refuse a plan that is too large to be written out."""
    if trials > LARGEST_PLAN:
        raise UserError(
            f"{trials:,} trials are planned, and a plan has at most {LARGEST_PLAN:,}; ask for "
            "fewer seeds, trials or methods at a time"
        )
