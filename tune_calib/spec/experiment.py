"""Models of experiment files; ``tune-calib run --schema`` prints them as a JSON schema."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tune_calib.errors import UserError, spell_settings
from tune_calib.paths import check_path
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.gpus import GPUS
from tune_calib.spec.ladder import LADDERS, Ladder, build_comparison, build_kind_comparison
from tune_calib.spec.methods import METHODS
from tune_calib.spec.names import LEAST_DRAWS, NOT_SETTINGS
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.request import GIVES, Sampling
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.slots.head import HeadSlot
from tune_calib.spec.slots.network import NetworkSlot
from tune_calib.spec.slots.posthoc import PostHocSlot
from tune_calib.spec.strict import Name, Part, Share, Words

Dataset = Annotated[str, Name(DATASETS)]
Backbone = Annotated[str, Name(BACKBONES)]


def _slot_schema(schema: dict[str, Any]) -> None:
    """Add the keys of every slot to the schema: its own, and those of its methods."""
    slots: dict[str, type[BaseModel]] = {
        "data": DataSlot,
        "network": NetworkSlot,
        "head": HeadSlot,
        "posthoc": PostHocSlot,
    }
    for slot in schema["properties"]:
        keys = slots[slot].model_json_schema()["properties"] | _settings_of_methods(slot)
        allowed = {key: value for key, value in keys.items() if key not in NOT_SETTINGS}
        # What stands behind $ref is checked when the file is read.
        plain = {key: {} if "$ref" in str(value) else value for key, value in allowed.items()}
        schema["properties"][slot] |= {"properties": plain, "additionalProperties": False}


def _settings_of_methods(slot: str) -> dict[str, Any]:
    """Return the settings of methods by key; those of several methods as alternatives."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in METHODS:
        if METHODS[name].kind == slot:
            for key, value in METHODS[name].params.model_json_schema()["properties"].items():
                found.setdefault(key, []).append(value | {"title": name})
    return {key: one[0] if len(one) == 1 else {"anyOf": one} for key, one in found.items()}


class MethodSettings(Part):
    """Settings of the slots of a pipeline."""

    model_config = ConfigDict(json_schema_extra=_slot_schema)

    network: dict[str, Any] = Field(default_factory=dict)
    """Settings of the network and its method."""
    head: dict[str, Any] = Field(default_factory=dict)
    """Settings of the head and its method."""
    posthoc: dict[str, Any] = Field(default_factory=dict)
    """Settings of the post-hoc method."""

    @model_validator(mode="after")
    def _refuse_names(self) -> "MethodSettings":
        for slot, own in self.by_slot().items():
            for key in own:
                if key in NOT_SETTINGS:
                    raise ValueError(f"{slot}.{key} is no setting; methods and seeds name it")
        return self

    def by_slot(self) -> dict[str, dict[str, Any]]:
        """Return the settings of the slots that have any."""
        return {slot: own for slot, own in self.model_dump().items() if own}


class Settings(MethodSettings):
    """Settings by slot, as ``--set slot.key=value`` takes them."""

    data: dict[str, Any] = Field(default_factory=dict)
    """Settings of the data: train_fraction, label_noise, imbalance."""


class Method(Part):
    """A method or pipeline with settings of its own."""

    method: Annotated[str, Name(METHODS, "+")]
    """A method, or several of different kinds as ls+mac_cal+temperature."""
    set: MethodSettings = MethodSettings()
    """Settings of this method alone."""


class SeedCounts(Part):
    """Numbers of seeds; a plain number varies network and head together."""

    both: int | None = Field(None, ge=1)
    """Pairs of a network and a head seed."""
    networks: int | None = Field(None, ge=1)
    """Networks, each with every head seed."""
    heads: int | None = Field(None, ge=1)
    """Heads for each network."""

    @model_validator(mode="after")
    def _not_both(self) -> "SeedCounts":
        if self.both is not None and (self.networks or self.heads):
            raise ValueError("a plain number varies both together; give it, or networks and heads")
        return self


Counts = Annotated[
    SeedCounts,
    BeforeValidator(
        lambda value: value if isinstance(value, dict) else {"both": value},
        json_schema_input_type=int | SeedCounts,
    ),
]


class TrialResources(Part):
    """Resources of one Ray trial."""

    gpus: Share = 0.0
    """0, 1 or a fraction 1/k."""

    @model_validator(mode="before")
    @classmethod
    def _no_cpus(cls, given: Any) -> Any:
        if isinstance(given, dict) and "cpus" in given:
            way = "cpus is a setting of the network now, set: {network: {threads: 4}}"
            raise PydanticCustomError("value_error", way)
        return given


class SearchOptions(Sampling):
    """A search of each method of the entry, on select; exactly one of trials, heads, hours."""

    trials: int | None = Field(None, ge=1)
    """Budget: number of suggestions."""
    heads: int | None = Field(None, ge=1)
    """Budget: number of heads to train (a suggestion trains one for each pair of seeds)."""
    hours: float | None = Field(None, gt=0)
    """Budget: hours of work, including those of earlier runs."""
    seeds: Counts | None = None
    """Seeds of each suggestion; those of the entry unless given."""

    @model_validator(mode="after")
    def _one_budget(self) -> "SearchOptions":
        if sum(budget is not None for budget in (self.trials, self.heads, self.hours)) != 1:
            raise ValueError("a search takes exactly one of trials, heads, hours")
        return self


class Where(Part):
    """Keys of the file that an entry may override."""

    datasets: tuple[Dataset, ...] | None = Field(None, min_length=1)
    """Names of data sets (see tune-calib list datasets); digits unless given."""
    backbones: tuple[Backbone, ...] | None = Field(None, min_length=1)
    """Names of backbones (see tune-calib list backbones), any of timm, or FILE.py:FUNCTION (a path
    relative to this file); those of the recipe unless given."""
    seeds: Counts | None = None
    """Seeds of networks and heads, also in searches; one unless given."""
    resources: TrialResources | None = None
    """Resources of one Ray trial."""
    recipe: Annotated[str, Name(RECIPES)] | None = None
    """Name of a recipe (see tune-calib list recipes); the data set's quick one unless given."""
    own_recipes: bool | None = None
    """Train each method by its authors' recipe instead of one recipe for all; not in a ladder."""
    set: Settings = Settings()
    """Fixed settings, which a search does not vary."""
    shift: Words | None = None
    """Shifted data on which finished trials are evaluated: corruptions, noise or a data set; not in
    a search, which never sees them (see tune-calib evaluate --shift)."""
    bootstrap: int | None = Field(None, ge=LEAST_DRAWS)
    """Bootstrap draws of the test samples, for confidence intervals of finished trials."""


class Entry(Where):
    """A comparison of methods, a ladder, or (with search) a search for each method."""

    methods: (
        tuple[
            Annotated[
                Method,
                BeforeValidator(
                    lambda value: {"method": value} if isinstance(value, str) else value,
                    json_schema_input_type=str | Method,
                ),
            ],
            ...,
        ]
        | None
    ) = Field(None, min_length=1)
    """Methods, or pipelines such as ls+mac_cal+temperature."""
    ladder: Annotated[str, Name(LADDERS)] | None = None
    """Name of a ladder (see tune-calib list ladders)."""
    all: Literal["network", "head", "posthoc"] | None = None
    """Compare all methods of a kind at their defaults with the unchanged network."""
    controls: bool = False
    """Add the control rungs of the ladder."""
    search: SearchOptions | None = None
    """Search the settings of the methods instead of running them at their defaults."""

    @model_validator(mode="after")
    def _one_kind(self) -> "Entry":
        if sum(each is not None for each in (self.methods, self.ladder, self.all)) != 1:
            raise ValueError("an entry takes either methods or a ladder, or all of a kind")
        if self.all is not None and self.search is not None:
            raise ValueError("all of a kind are not searched; name methods")
        if self.ladder is not None and self.search is not None:
            raise ValueError("a ladder is not searched; name methods")
        if self.ladder is not None and self.own_recipes:
            raise ValueError("the rungs of a ladder differ in one ingredient and have one recipe")
        names = [method.method for method in self.methods or () if self.search is not None]
        for name in names:
            if "+" in name:
                raise ValueError(f"{name!r}: a search takes one method")
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is named twice")
        if self.search is not None and (self.shift or self.bootstrap):
            raise ValueError("a search sees select alone; give shift and bootstrap to evaluate")
        if self.ladder is None and self.controls:
            raise ValueError("controls go with a ladder")
        return self

    def build_ladder(self) -> Ladder:
        """Return the ladder of an entry that is not a search."""
        if self.ladder is not None:
            ladder: Ladder = LADDERS[self.ladder]
            return ladder
        if self.all is not None:
            return build_kind_comparison(self.all)
        methods = self.methods or ()
        settings = [method.set.by_slot() for method in methods]
        return build_comparison([method.method for method in methods], settings)


class ExperimentFile(Where):
    """An experiment file of tune-calib: its entries and the keys that they share."""

    out: str | None = None
    """Folder (relative to the working directory) or URL for the results; runs/NAME-OF-THE-FILE
    unless given."""
    store: str | None = None
    """Folder or URL for networks and feature banks of all entries; OUT/store unless given."""
    data_root: Path | None = None
    """Folder with the files of the data sets."""
    title: str | None = None
    """Title of your own data in tables; the name of their folder unless given."""
    study_storage: str | None = None
    """URL of a database for the Optuna studies; a file in each search's folder unless given."""
    address: str | None = None
    """Address of a Ray cluster, auto to find one, or none to run in one process without Ray; a Ray
    of this machine unless given."""
    gpu_model: Annotated[str, Name(GPUS)] | None = None
    """Name of a GPU for which a dry run estimates the hours; not used otherwise."""
    plugins: tuple[str, ...] = ()
    """Plug-ins with your own methods, metrics, ...: files (relative to this one) and modules."""
    entries: dict[Annotated[str, Field(pattern=r"^[\w.+-]+$")], Entry] = Field(min_length=1)
    """Entries by name, which begins the names of their folders."""

    @field_validator("out", "store", "data_root", mode="before")
    @classmethod
    def _can_be_paths(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                check_path(value)
            except UserError as error:
                raise ValueError(str(error)) from None
        return value


_KEYS = {
    "dataset": "datasets",
    "dataset_title": "title",
    "backbone": "backbones",
    "plugin": "plugins",
    "network_seeds": "seeds.networks",
    "head_seeds": "seeds.heads",
    **{name: f"search.{name}" for name in SearchOptions.model_fields if name != "seeds"},
    **{name: f"resources.{name}" for name in TrialResources.model_fields},
}
"""Keys of an experiment file, by the field of a request that they are."""


def spell_keys(message: object) -> str:
    """Spell the settings in a message as keys of an experiment file (``search.guard``)."""
    keys = {**{field: f"set.{name}" for field, name in GIVES.items()}, **_KEYS}
    return spell_settings(message, lambda field: keys.get(field, field))
