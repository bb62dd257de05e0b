"""Models of requests: a ladder, a comparison, a search, an evaluation, an experiment file.

The Python functions take the fields of these models as arguments, and the options of the commands
are made from them (``api.calls``, ``cli.options``). Name, type, default, range and description of
an option are defined only here.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from tune_calib import text
from tune_calib.console import echo
from tune_calib.errors import UserError
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.design import DESIGNS, DesignName
from tune_calib.spec.gpus import GPUS
from tune_calib.spec.ladder import LADDERS
from tune_calib.spec.methods import METHODS, MethodKind
from tune_calib.spec.metrics import METRICS, refuse_unsearchable, searchable_metrics
from tune_calib.spec.names import LEAST_DRAWS, POOL
from tune_calib.spec.pipelines import MethodOrName, Pipeline
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.samplers import SAMPLERS
from tune_calib.spec.space import SPACES
from tune_calib.spec.strict import (
    LocalPath,
    Name,
    Part,
    Share,
    Text,
    Words,
    as_numbers,
    as_tuple,
    checked,
)

DATA = "Data"
TRAINING = "Network, head and recipe"
SEEDS = "Seeds"
SEARCHING = "Search"
EXTRAS = "Extra evaluations"
WHERE = "Resources and results"


@dataclass(frozen=True)
class OptionHelp:
    """Help on a field, in addition to its name, type, default and description."""

    panel: str = ""  # group of options; empty for a positional argument
    default: str | None = None  # in words, if None has a meaning
    metavar: str | None = None  # if the type does not show what the value is
    names: Callable[[], Iterable[str]] | None = None  # values for shell completion
    is_hidden: bool = False  # from the help of the command line


ARGUMENT = OptionHelp()


def _plain(name: str, value: Any) -> Any:
    """Return a setting as in a file: NumPy numbers become Python numbers, and tuples lists."""
    try:
        return json.loads(json.dumps(value, default=lambda array: array.tolist()))
    except (TypeError, ValueError, AttributeError):
        raise ValueError(
            f"{name}: {text.short_repr(value)} is not a number, string, boolean or list of these"
        ) from None


def _plain_settings(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {str(name): _plain(str(name), setting) for name, setting in value.items()}


ALWAYS = {
    "log": "log the trials to tensorboard, wandb or mlflow",
    "plugin": "load your own methods, metrics, ... from a file or module",
}
"""Options of all commands that run trials, with descriptions; they are not part of a request."""

GIVES = {
    "imported": "data.imported",
    "holdout": "data.holdout",
    "norm": "data.norm",
    "backbone": "network.backbone",
    "weights": "network.weights",
    "epochs": "network.epochs",
    "head_epochs": "head.epochs",
    "portable": "network.portable",
}
"""Fields of a request that set a setting, which ``set`` may set instead."""

# Fields and names that several models share, each declared once. A second ``OptionHelp`` after one
# replaces the first.
Dataset = Annotated[str, Name(DATASETS)]
Backbone = Annotated[str, Name(BACKBONES)]
LadderName = Annotated[str, Name(LADDERS)]

DataRoot = Annotated[
    LocalPath | None, OptionHelp(DATA), Field(description="folder with the files of the data set")
]
DatasetTitle = Annotated[
    Text | None, OptionHelp(DATA, "its folder's name"), Field(description="title of your own data")
]
RecipeName = Annotated[
    Annotated[str, Name(RECIPES)] | None,
    OptionHelp(TRAINING, "quick", names=lambda: RECIPES),
    Field(description="recipe (see: tune-calib list recipes)"),
]
Overrides = Annotated[
    dict[str, Any] | None,
    BeforeValidator(_plain_settings),
    OptionHelp(TRAINING, metavar="SLOT.KEY=VALUE"),
    Field(description="override a setting, e.g. head.gamma=0.9"),
]
Grid = Annotated[
    dict[str, list[Any]] | None,
    BeforeValidator(_plain_settings),
    OptionHelp(SEARCHING, metavar="SLOT.KEY=VALUE,VALUE"),
    Field(description="try every combination of these values, e.g. head.gamma=.7,.8,.9"),
]
Race = Annotated[
    bool,
    OptionHelp(SEARCHING),
    Field(description="train further seeds only while a suggestion may be the best one"),
]
Halving = Annotated[
    int | None,
    OptionHelp(SEARCHING, metavar="N"),
    Field(ge=2, description="train with 1/N of the epochs first, and the best 1/N longer, e.g. 3"),
]
OwnRecipes = Annotated[
    bool, OptionHelp(TRAINING), Field(description="train each method with its authors' recipe")
]
SeedPairs = Annotated[
    int | None,
    OptionHelp(SEEDS, "1"),
    Field(ge=1, description="number of seeds, for networks and heads together"),
]
SplitSeeds = Annotated[
    int | None,
    OptionHelp(SEEDS, "the published draw"),
    Field(ge=1, description="number of draws of the splits; of a frozen network, select and calib"),
]
CalibSizes = Annotated[
    tuple[Annotated[int, Field(ge=2)], ...],
    BeforeValidator(as_numbers, json_schema_input_type=int | str | tuple[int | str, ...]),
    OptionHelp(SEEDS, metavar="N,N"),
    Field(description="learning curve over so many samples of calib, besides all of them"),
]
Out = Annotated[
    Text | None,
    OptionHelp(WHERE, "a folder in runs/", "PATH"),
    Field(description="folder or URL for the results"),
]
Address = Annotated[
    str | None,
    OptionHelp(WHERE, "this machine"),
    Field(description="Ray cluster, auto, or none for no Ray"),
]
LADDER = Field(description="ladder (see: tune-calib list ladders)")
METHOD_LIST = Field(description="methods, or pipelines such as ls+mac_cal+temperature")
AllOfKind = Annotated[
    MethodKind | None,
    OptionHelp(TRAINING, names=lambda: get_args(MethodKind)),
    Field(description="compare all methods of one kind: posthoc, head or network"),
]
Controls = Annotated[
    bool, OptionHelp(TRAINING), Field(description="add the control rungs of the ladder")
]

DesignChoice = Annotated[
    DesignName,
    OptionHelp(TRAINING, names=lambda: DESIGNS),
    Field(description="combinations of steps: " + ", ".join(DESIGNS)),
]
Behind = Annotated[
    Annotated[str, Name(METHODS)] | None,
    OptionHelp(TRAINING, names=lambda: METHODS),
    Field(description="also fit a post-hoc method behind each rung, e.g. temperature"),
]


class Choice(Part):
    """A part in which exactly one of some fields must be given."""

    one_of: ClassVar[tuple[str, ...]]

    @model_validator(mode="after")
    def _gives_one(self) -> "Choice":
        choices = self.model_fields_set.intersection(self.one_of)
        if sum(getattr(self, name) is not None for name in choices) != 1:
            *names, last = (f"`{name}`" for name in self.one_of)
            raise ValueError(f"give exactly one of {', '.join(names)} and {last}")
        return self


class TrainingRequest(Part):
    """The data, and the training of networks and heads."""

    dataset: Annotated[Dataset, OptionHelp(DATA, names=lambda: DATASETS)] = "digits"
    """data set (see: tune-calib list datasets)"""
    imported: Annotated[str | None, OptionHelp(DATA)] = None
    """name of an import (see tune-calib import), instead of a data set"""
    data_root: DataRoot = None
    dataset_title: DatasetTitle = None
    holdout: Annotated[str | None, OptionHelp(DATA, "train")] = None
    """source of select and calib: train or test"""
    norm: Annotated[
        str | list[list[float]] | None,
        BeforeValidator(partial(_plain, "constants")),
        OptionHelp(DATA, "the data set's"),
    ] = None
    """pixel normalisation: name or lists"""
    backbone: Annotated[
        str | None, OptionHelp(TRAINING, "the recipe's", names=lambda: BACKBONES)
    ] = None
    """backbone, or FILE.py:FUNCTION"""
    weights: Annotated[LocalPath | None, OptionHelp(TRAINING)] = None
    """safetensors file of a frozen network, which is not trained"""
    epochs: Annotated[int | None, OptionHelp(TRAINING, "the recipe's")] = None
    """training epochs of each network"""
    head_epochs: Annotated[int | None, OptionHelp(TRAINING, "the recipe's")] = None
    """training epochs of each head"""
    recipe: RecipeName = None
    set: Overrides = None
    portable: Annotated[bool, OptionHelp(TRAINING)] = False
    """give the same numbers on all x86 machines, slightly slower"""


class SeedsRequest(Part):
    """The seeds."""

    seeds: SeedPairs = None
    network_seeds: Annotated[int | None, OptionHelp(SEEDS)] = Field(None, ge=1)
    """number of network seeds, crossed with the head seeds"""
    head_seeds: Annotated[int | None, OptionHelp(SEEDS)] = Field(None, ge=1)
    """number of head seeds for each network"""

    @model_validator(mode="after")
    def _not_both(self) -> "SeedsRequest":
        if self.seeds is not None and (self.network_seeds or self.head_seeds):
            raise ValueError(
                "`seeds` varies both together; give either it, or `network_seeds` and `head_seeds`"
            )
        return self


class Folders(Part):
    """Folders of the results, and the cluster that makes them."""

    out: Out = None
    store: Annotated[Text | None, OptionHelp(WHERE, "OUT/store", "PATH")] = None
    """folder of networks and feature banks"""
    address: Address = None


class ResourcesRequest(Part):
    """The resources of one Ray trial."""

    gpus: Annotated[Share, OptionHelp(WHERE)] = 0.0
    """GPUs per trial: 0, 1, 1/k, or auto, which chooses k by the memory of a few steps on a GPU"""


class Forecast(Part):
    """The GPU of a forecast."""

    gpu_model: Annotated[
        Annotated[str, Name(GPUS)] | None, OptionHelp(WHERE, names=lambda: GPUS)
    ] = None
    """GPU for which a dry run estimates the hours, e.g. A100-80GB"""


class TimeLimit(Part):
    """A limit of the time of a command."""

    max_hours: Annotated[float | None, OptionHelp(WHERE)] = Field(None, gt=0)
    """start no trial after this many hours; running ones finish"""


class LadderOptions(TimeLimit):
    """Options of a ladder or comparison that do not change its trials."""

    shift: Annotated[Words, OptionHelp(EXTRAS)] = ()
    """evaluate on shifted data: corruptions, noise or a data set"""
    bootstrap: Annotated[int, OptionHelp(EXTRAS)] = 0
    """bootstrap draws for confidence intervals over test samples"""

    @field_validator("bootstrap")
    @classmethod
    def _enough(cls, draws: int) -> int:
        if draws and draws < LEAST_DRAWS:
            raise ValueError(f"must be 0 or at least {LEAST_DRAWS}")
        return draws


class Acceptance(Part):
    """An option of earlier versions, which scripts may still name."""

    accept_code: Annotated[bool, OptionHelp(WHERE, is_hidden=True)] = False
    """without effect"""

    @field_validator("accept_code")
    @classmethod
    def _drop(cls, is_given: bool) -> bool:
        if is_given:
            echo("accept_code has no effect: nothing depends on it any more", err=True)
        return False


class TrialsRequest(Acceptance, ResourcesRequest, Folders, SeedsRequest, TrainingRequest):
    """The fields that ladders, comparisons and searches share."""


class LadderRequest(LadderOptions, TrialsRequest):
    """The fields that ladders and comparisons share."""

    split_seeds: SplitSeeds = None
    calib_sizes: CalibSizes = ()
    profile: Annotated[bool, OptionHelp(WHERE)] = False
    """record how each network spends the time of an epoch"""


_OF_PATH = {"path", "seeds", "network_seeds", "head_seeds", "out", "address", "shift", "bootstrap"}


class AblateRequest(Choice, LadderRequest):
    """An ablation ladder, or the path from the published to the chosen settings of a search."""

    one_of = ("ladder", "path")
    ladder: Annotated[LadderName | None, OptionHelp(names=lambda: LADDERS), LADDER] = None
    path: Annotated[Text | None, OptionHelp(SEARCHING, metavar="RUN")] = None
    """which settings that a search has changed carry its gain: the folder of the search"""
    controls: Controls = False
    design: DesignChoice = "incremental"
    posthoc: Behind = None

    @model_validator(mode="after")
    def _fits_path(self) -> "AblateRequest":
        for name in sorted(self.model_fields_set - _OF_PATH):
            if self.path and not self.has_default(name):
                raise ValueError(f"`path` takes `{name}` from its search; leave it out")
        return self


class Tuning(Part):
    """The searches of the methods of a comparison, which precede it."""

    tune: Annotated[int | None, OptionHelp(SEARCHING)] = Field(None, ge=1)
    """search the settings of each method with so many suggestions first"""
    metric: Annotated[
        Annotated[str, Name(METRICS)],
        checked(lambda name: refuse_unsearchable((name,))),
        OptionHelp(SEARCHING, "nll", names=searchable_metrics),
    ] = "nll"
    """metric to optimise, with `tune`"""
    guard: Annotated[float, OptionHelp(SEARCHING)] = Field(0.01, ge=0, le=1)
    """accuracy on select that may be lost, a fraction, with `tune`"""
    tune_seeds: Annotated[int, OptionHelp(SEEDS)] = Field(1, ge=1)
    """number of seeds of each suggestion, with `tune`"""
    sampler_seed: Annotated[int, OptionHelp(SEARCHING)] = Field(0, ge=0)
    """random seed of the sampler, with `tune`"""
    race: Race = False
    halving: Halving = None

    @model_validator(mode="after")
    def _tunes(self) -> "Tuning":
        for name in ("metric", "guard", "tune_seeds", "sampler_seed", "race", "halving"):
            if self.tune is None and not self.has_default(name):
                raise ValueError(f"{name} is that of the searches of `tune`; give both or none")
        return self


class CompareRequest(Choice, Tuning, LadderRequest):
    """A comparison of methods."""

    one_of = ("methods", "all")
    methods: Annotated[
        tuple[MethodOrName, ...],
        BeforeValidator(as_tuple),
        OptionHelp(names=lambda: METHODS),
        METHOD_LIST,
    ] = ()
    all: AllOfKind = None
    own_recipes: OwnRecipes = False
    grid: Grid = None

    @model_validator(mode="after")
    def _fits_tuning(self) -> "CompareRequest":
        if self.grid and (self.tune or self.all):
            other = "tune" if self.tune else "all"
            raise ValueError(f"`grid` names the values of settings, so `{other}` does not apply")
        if self.tune and any(pipeline.method.startswith(POOL) for pipeline in self.methods):
            raise ValueError("a pool has no search; leave it or `tune` out")
        return self


class Sampling(Part):
    """The sampler, the objective and the length of a search."""

    sampler: Annotated[
        Annotated[str, Name(SAMPLERS)], OptionHelp(SEARCHING, names=lambda: SAMPLERS)
    ] = "tpe"
    """sampler of settings: tpe, gp, qmc, random, nsga2, grid or one-at-a-time"""
    around: Annotated[Text | None, OptionHelp(SEARCHING, "published settings", "RUN")] = None
    """search whose chosen settings `sampler` one-at-a-time varies"""
    sampler_seed: Annotated[int, OptionHelp(SEARCHING)] = Field(0, ge=0)
    """random seed of the sampler"""
    metric: Annotated[
        tuple[Annotated[str, Name(METRICS)], ...],
        BeforeValidator(as_tuple, json_schema_input_type=str | tuple[str, ...]),
        Field(min_length=1),
        checked(refuse_unsearchable),
        OptionHelp(SEARCHING, "ece", names=searchable_metrics),
    ] = ("ece",)
    """metric to optimise; several give a Pareto set"""
    guard: Annotated[float, OptionHelp(SEARCHING)] = Field(0.01, ge=0, le=1)
    """accuracy on select that may be lost, a fraction"""
    population: Annotated[int, OptionHelp(SEARCHING)] = Field(8, ge=1)
    """suggestions in a batch (head methods)"""
    at_once: Annotated[int | None, OptionHelp(WHERE, "all cores")] = Field(None, ge=1)
    """number of trials in parallel"""
    trials: Annotated[int, OptionHelp(SEARCHING)] = Field(64, ge=1)
    """number of suggestions to try"""
    grid: Grid = None
    replay: Annotated[LocalPath | None, OptionHelp(SEARCHING)] = None
    """table that answers the trials, which are not trained (see docs/benchmarks)"""
    replay_answer: Annotated[
        Literal["surrogate", "nearest"],
        OptionHelp(SEARCHING, names=lambda: ("surrogate", "nearest")),
    ] = "surrogate"
    """answer of a replay: surrogate, or the nearest point of the table not used yet"""
    race: Race = False
    halving: Halving = None
    reuse: Annotated[Words, OptionHelp(SEARCHING, metavar="RUN")] = ()
    """take rows of equal trials from an earlier search, and try its best points first"""
    join: Annotated[bool, OptionHelp(SEARCHING)] = False
    """consist of the suggestions of the searches of `reuse`, without new ones"""

    @model_validator(mode="after")
    def _fits_sampler(self) -> "Sampling":
        sampler = SAMPLERS[self.sampler]
        if self.join and (not self.reuse or sampler.tries_grid):
            raise ValueError("`join` needs `reuse`, and a `sampler` without a grid")
        if self.grid and not sampler.tries_grid:
            raise ValueError("`grid` gives the values of `sampler` grid; give both")
        if self.around and (self.grid or not sampler.is_local):
            raise ValueError("`around` goes with `sampler` one-at-a-time, and not with `grid`")
        return self


class Retry(Part):
    """Trials that a run retries."""

    retry: Annotated[Literal["crashed"] | None, OptionHelp(WHERE, names=lambda: ("crashed",))] = (
        None
    )
    """retry trials with this status: crashed"""


class Storage(Part):
    """Storage of the study of a search."""

    study_storage: Annotated[str | None, OptionHelp(WHERE, "a file")] = None
    """URL of a database for the Optuna study"""


class SearchRequest(Retry, TimeLimit, Storage, Sampling, TrialsRequest):
    """A search of the settings of a method or pipeline."""

    method: Annotated[Pipeline, OptionHelp(names=lambda: SPACES)]
    """method with a search space (see: tune-calib list spaces), or a pipeline such as ls+mac_cal"""
    own_recipes: OwnRecipes = False
    worker: Annotated[bool, OptionHelp(WHERE)] = False
    """share the trials with all processes that run the same command, e.g. of a job array"""

    @model_validator(mode="after")
    def _fits_worker_and_replay(self) -> "SearchRequest":
        if self.worker and self.at_once is None:
            raise ValueError("`worker` needs the number of processes that you start as `at_once`")
        if self.worker and self.address is not None:
            raise ValueError("`worker` runs without Ray, so `address` does not apply")
        if self.worker and self.retry is not None:  # otherwise each process would
            raise ValueError("`worker` retries no trials; run tune-calib resume with `retry` first")
        for name in [*TrainingRequest.model_fields, "own_recipes", "gpus", "at_once"]:
            if self.replay and not self.has_default(name):
                raise ValueError(f"`replay` takes `{name}` from its table; leave it out")
        return self


class Continuation(Acceptance, Storage):
    """A request for the search in a folder."""

    out: Annotated[Text, ARGUMENT]
    """folder or URL of the search"""
    address: Annotated[Address, OptionHelp(WHERE, "that of the search")] = None


class ResumeRequest(Retry, TimeLimit, Continuation):
    """A search to resume."""

    trials: Annotated[int, OptionHelp(SEARCHING)] = Field(0, ge=0)
    """new total number of suggestions to try, if larger than before"""


class EvaluateRequest(Continuation, LadderOptions):
    """An evaluation of the selected trial of a search on the test split."""

    seeds: Annotated[int, OptionHelp(SEEDS)] = Field(5, ge=1)
    """number of fresh seeds of networks and heads"""
    extend: Annotated[bool, OptionHelp(SEEDS)] = False
    """evaluate test again, with additional seeds"""


class RunRequest(Acceptance, Retry):
    """An experiment file to run."""

    file: Annotated[LocalPath, ARGUMENT]
    """experiment file (for its format see tune-calib run --schema)"""
    address: Annotated[Address, OptionHelp(WHERE, "the file's")] = None


R = TypeVar("R", bound=Part)


def option_help(model: type[Part], name: str) -> OptionHelp:
    metadata = reversed(model.model_fields[name].metadata)
    return next(entry for entry in metadata if isinstance(entry, OptionHelp))


def is_argument(model: type[Part], name: str) -> bool:
    return not option_help(model, name).panel


def field_names(model: type[Part]) -> list[str]:
    """Return the fields of a request, positional arguments first."""
    return sorted(model.model_fields, key=lambda name: not is_argument(model, name))


def build_request(model: type[R], values: Mapping[str, Any]) -> R:
    """Validate a request strictly, so that strings are not converted to numbers."""
    fields = {}
    for name, value in values.items():
        # For a field of several values, None and an empty list mean its default.
        if not isinstance(model.model_fields[name].default, tuple) or value not in (None, [], ()):
            fields[name] = value
    try:
        return model.model_validate(fields, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
    message, value = text.format_mistake(first), text.short_repr(first["input"])
    is_complete = "`" in message or (isinstance(first["input"], str) and value in message)
    if not first["loc"] or (first["type"] == "value_error" and is_complete):
        raise UserError(message)
    name = str(first["loc"][0])
    names = option_help(model, name).names
    if first["type"] == "literal_error" and names is not None:
        message = f"{value} is unknown{text.nearest(str(first['input']), list(names()))}"
    elif first["type"] != "missing" and (first["type"], name) != ("value_error", "set"):
        message += f", got {value}"
    raise UserError(message, setting=name)


def format_command(
    name: str, request: Part, without: Sequence[str] = (), further: Sequence[str] = ()
) -> str:
    """Return the command line of a request, without defaults and some fields, and further words."""
    model = type(request)
    words = ["tune-calib", name]
    for key in field_names(model):
        value = getattr(request, key)
        if value is None or request.has_default(key) or key in without:
            continue
        if is_argument(model, key):
            words += map(str, _list_values(value))
        else:
            option = key.replace("_", "-")
            words += text.option_words((option, part) for part in _list_values(value))
    return text.command_line([*words, *further])


def _list_values(value: Any) -> Sequence[Any]:
    if isinstance(value, Mapping):
        return [f"{key}={text.format_yaml(setting)}" for key, setting in value.items()]
    if isinstance(value, list):  # constants are a single value
        return [json.dumps(value)]
    return value if isinstance(value, tuple) else (value,)
