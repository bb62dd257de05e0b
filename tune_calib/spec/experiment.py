"""Models of experiment files; ``tune-calib run --schema`` prints them as a JSON schema."""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from tune_calib.spec import request
from tune_calib.spec.design import build_design
from tune_calib.spec.ladder import LADDERS, Ladder, build_comparison, build_kind_comparison
from tune_calib.spec.pipelines import MethodOrName, MethodSettings
from tune_calib.spec.strict import Part


class Settings(MethodSettings):
    """Settings by slot, as ``--set slot.key=value`` takes them."""

    data: dict[str, Any] = Field(default_factory=dict)
    """Settings of the data: train_fraction, label_noise, imbalance."""


_COUNTS = {
    "seeds": "both",
    "network_seeds": "networks",
    "head_seeds": "heads",
    "split_seeds": "splits",
}


class SeedCounts(request.SeedsRequest):
    """Numbers of seeds; a plain number varies network and head together."""

    split_seeds: request.SplitSeeds = None

    model_config = ConfigDict(alias_generator=lambda name: _COUNTS[name])


Counts = Annotated[
    SeedCounts,
    BeforeValidator(
        lambda value: value if isinstance(value, dict | SeedCounts) else {"both": value},
        json_schema_input_type=int | SeedCounts,
    ),
]


class SearchOptions(request.Choice, request.Sampling):
    """A search of each method of the entry, on select; exactly one of trials, heads, hours."""

    one_of = ("trials", "heads", "hours")
    heads: int | None = Field(None, ge=1)
    """number of heads to train, instead of trials (a suggestion trains one per seed pair)"""
    hours: float | None = Field(None, gt=0)
    """hours of work, instead of trials, including those of earlier runs"""
    seeds: Counts = SeedCounts()
    """seeds of each suggestion, instead of those of the entry"""


class Where(request.LadderOptions):
    """Keys of the file that an entry may override by naming them."""

    datasets: tuple[request.Dataset, ...] = Field(
        (request.TrainingRequest.model_fields["dataset"].default,), min_length=1
    )
    """data sets (see: tune-calib list datasets), one run each"""
    backbones: tuple[request.Backbone, ...] = Field((), min_length=1)
    """backbones (see: tune-calib list backbones), one run each, instead of the recipe's: also any
    of timm, or FILE.py:FUNCTION (a path relative to this file)"""
    seeds: Counts = SeedCounts()
    """seeds of networks and heads, also in searches"""
    resources: request.ResourcesRequest = request.ResourcesRequest()
    """resources of one Ray trial"""
    recipe: request.RecipeName = None
    own_recipes: request.OwnRecipes = False
    set: Settings = Settings()
    """settings by slot; a search does not vary them"""


_KINDS: dict[type[Part], str] = {
    request.AblateRequest: "a ladder",
    request.CompareRequest: "a comparison",
    request.SearchRequest: "a search",
}


class Entry(request.Choice, request.Tuning, Where):
    """A comparison of methods, a ladder, or (with search) a search for each method."""

    one_of = ("methods", "ladder", "all")
    methods: Annotated[tuple[MethodOrName, ...], request.METHOD_LIST] = Field((), min_length=1)
    ladder: Annotated[request.LadderName | None, request.LADDER] = None
    all: request.AllOfKind = None
    controls: request.Controls = False
    design: request.DesignChoice = "incremental"
    posthoc: request.Behind = None
    calib_sizes: request.CalibSizes = ()
    search: SearchOptions | None = None
    """search the settings of the methods instead of running them at their defaults"""

    @property
    def request_model(self) -> type[request.TrialsRequest]:
        if self.search is not None:
            return request.SearchRequest
        if self.ladder is not None:
            return request.AblateRequest
        return request.CompareRequest

    @model_validator(mode="after")
    def _fits_request(self) -> "Entry":
        unfit = set().union(*(model.model_fields for model in _KINDS))
        unfit -= self.request_model.model_fields.keys()
        if self.search:
            unfit.discard("methods")
            if self.seeds.split_seeds or self.search.seeds.split_seeds:
                raise ValueError("`seeds.splits` does not go with a search")
        for name in sorted(self.model_fields_set & unfit):
            if getattr(self, name):
                raise ValueError(f"`{name}` does not go with {_KINDS[self.request_model]}")
        return self

    def build_ladder(self) -> Ladder:
        """Return the ladder of an entry that is not a search."""
        if self.ladder is not None:
            return build_design(LADDERS[self.ladder], self.design, self.posthoc)
        if self.all is not None:
            return build_kind_comparison(self.all)
        settings = [method.set.by_slot() for method in self.methods]
        return build_comparison([method.method for method in self.methods], settings)


class ExperimentFile(request.Forecast, request.Storage, request.Folders, Where):
    """An experiment file of tune-calib: its entries and the keys that they share."""

    data_root: request.DataRoot = None
    dataset_title: request.DatasetTitle = None
    plugins: tuple[str, ...] = Field((), description=request.ALWAYS["plugin"])
    entries: dict[Annotated[str, Field(pattern=r"^[\w.+-]+$")], Entry] = Field(min_length=1)
    """entries by name; the names of their folders begin with it"""
