"""What can be requested of a ladder, a comparison, a search or an evaluation: one model for all.

The Python functions take the fields of these models as arguments, and the options of the commands
are made from them (``api.request``, ``cli.request``): name, type, default, range and description of
an option stand here alone.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

from tune_calib.errors import UserError
from tune_calib.registry import Registry
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.ladder import LADDERS
from tune_calib.spec.methods import METHODS
from tune_calib.spec.metrics import METRICS, refuse_unsearchable, searchable_metrics
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.space import SPACES
from tune_calib.spec.strict import check_kind
from tune_calib.text import command_line, format_mistake, format_yaml, nearest, short_repr

DATA = "Data"
TRAINING = "Network, head and recipe"
SEEDS = "Seeds"
SEARCHING = "Search"
EXTRAS = "Further looks at finished trials"
WHERE = "Where it runs, and where results go"

SamplerName = Literal["tpe", "random", "nsga2", "grid"]
SchedulerName = Literal["none", "asha"]
SAMPLERS: tuple[SamplerName, ...] = get_args(SamplerName)
SCHEDULERS: tuple[SchedulerName, ...] = get_args(SchedulerName)


class Part(BaseModel):
    """A part of a request: unknown keys and values of another kind are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        defer_build=True,  # every command imports all models, and uses one
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        known = list(cls.model_fields)
        for key in values if isinstance(values, dict) else ():
            if key not in known:
                context = {"key": str(key), "hint": nearest(str(key), known)}
                raise PydanticCustomError("unknown_key", "unknown key '{key}'{hint}", context)
        return values

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_kind(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse empty texts, and booleans in place of numbers."""
        if isinstance(value, str) and not value.strip():
            raise ValueError("must not be empty; leave it out")
        if info.field_name is not None:
            check_kind(value, cls, info.field_name)
        return value


@dataclass(frozen=True)
class Name:
    """A string must be one of the known names.

    Attributes:
        what: is named, for messages.
        known: the names; a registry may know more than it lists.
        joint: what joins several of them.
    """

    what: str
    known: Registry[Any]
    joint: str | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Check the name after the type itself."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """List the names for editors; open where a registry knows more than it lists."""
        names = {"enum": list(self.known)}
        is_open = self.joint is not None or self.known is BACKBONES
        return {"anyOf": [names, {"type": "string"}]} if is_open else names

    def _check(self, value: str) -> str:
        for name in value.split(self.joint):
            if self.joint and not name.strip():
                raise ValueError(f"{value!r} has an empty part")
            try:
                self.known.require(name)
            except UserError as error:
                raise ValueError(str(error)) from None
        return value


@dataclass(frozen=True)
class OptionHelp:
    """How help shows a field, beside its name, default and description.

    Attributes:
        panel: group of options; empty for an argument that needs no name.
        default: the default in words, where ``None`` stands for something.
        metavar: what stands for the value, where its type does not say it.
        names: values that a shell completes.
    """

    panel: str = ""
    default: str | None = None
    metavar: str | None = None
    names: Callable[[], Iterable[str]] | None = None


ARGUMENT = OptionHelp()


def as_tuple(value: Any) -> Any:
    """Return one text as a tuple of it, and a list as a tuple."""
    if isinstance(value, str | PathLike):
        return (fspath(value),)
    return tuple(value) if isinstance(value, list) else value


def parse_share(value: Any) -> Any:
    """Return ``1/3`` as the number that it means, and anything else as it is."""
    over = str(value).removeprefix("1/")
    return 1 / int(over) if over != str(value) and over.isdigit() and int(over) else value


def check_share(gpus: float) -> float:
    """Refuse fractions that leave a part of a GPU unused."""
    is_share = 0 < gpus <= 1 and math.isclose(round(1 / gpus) * gpus, 1, rel_tol=1e-9)
    if gpus != 0 and not is_share:
        raise ValueError("must be 0, 1 or 1/k (1/3 is 0.3333333333333333)")
    return gpus


def plain(name: str, value: Any) -> Any:
    """Return a setting as a file holds it: NumPy's numbers become Python's, tuples lists."""
    try:
        return json.loads(json.dumps(value, default=lambda array: array.tolist()))
    except (TypeError, ValueError, AttributeError):
        raise ValueError(
            f"{name}: {short_repr(value)} is no number, text, truth value or list of such"
        ) from None


def _as_settings(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {str(name): plain(str(name), each) for name, each in value.items()}


def _as_constants(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else plain("constants", value)


TEXT = BeforeValidator(lambda value: fspath(value) if isinstance(value, PathLike) else value)
PATH = BeforeValidator(lambda value: Path(value) if isinstance(value, str | PathLike) else value)
Text = Annotated[str, TEXT]
LocalPath = Annotated[Path, PATH]
Words = Annotated[
    tuple[str, ...], BeforeValidator(as_tuple, json_schema_input_type=str | tuple[str, ...])
]
Share = Annotated[
    float,
    Field(allow_inf_nan=True),  # what is none is refused by ``check_share``
    BeforeValidator(parse_share, json_schema_input_type=float | str),
    AfterValidator(check_share),
]


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
"""Fields of a request that give a setting, which ``set`` may give instead."""


class DataRequest(Part):
    """Which data."""

    dataset: Annotated[str, OptionHelp(DATA, names=lambda: DATASETS)] = "digits"
    """see: tune-calib list datasets"""
    imported: Annotated[str | None, OptionHelp(DATA)] = None
    """instead of a data set: NAME that tune-calib import took in"""
    data_root: Annotated[LocalPath | None, OptionHelp(DATA)] = None
    """folder that holds the data set"""
    holdout: Annotated[str | None, OptionHelp(DATA, "train")] = None
    """part that select and calib are of: train, test"""
    norm: Annotated[
        str | list[list[float]] | None,
        BeforeValidator(_as_constants),
        OptionHelp(DATA, "the data set's"),
    ] = None
    """constants of the pixels: a name, dataset, or a list of means and one of deviations"""


class TrainingRequest(Part):
    """How networks and heads are trained."""

    backbone: Annotated[
        str | None, OptionHelp(TRAINING, "the recipe's", names=lambda: BACKBONES)
    ] = None
    """see: tune-calib list backbones; or FILE.py:FUNCTION"""
    weights: Annotated[LocalPath | None, OptionHelp(TRAINING)] = None
    """safetensors file of a network that is not trained"""
    epochs: Annotated[int | None, OptionHelp(TRAINING, "the recipe's")] = None
    """epochs of the network"""
    head_epochs: Annotated[int | None, OptionHelp(TRAINING, "the recipe's")] = None
    """epochs of the heads"""
    recipe: Annotated[str | None, OptionHelp(TRAINING, "quick", names=lambda: RECIPES)] = None
    """see: tune-calib list recipes"""
    set: Annotated[
        dict[str, Any] | None,
        BeforeValidator(_as_settings),
        OptionHelp(TRAINING, metavar="SLOT.KEY=VALUE"),
    ] = None
    """any setting, e.g. head.gamma=0.9; repeatable"""
    portable: Annotated[bool, OptionHelp(TRAINING)] = False
    """the same numbers on x86 machines, a little slower"""


class SeedsRequest(Part):
    """Under which seeds."""

    seeds: Annotated[int | None, OptionHelp(SEEDS, "1")] = Field(None, ge=1)
    """how many; network and head vary together"""
    network_seeds: Annotated[int | None, OptionHelp(SEEDS)] = Field(None, ge=1)
    """how many networks, crossed with heads"""
    head_seeds: Annotated[int | None, OptionHelp(SEEDS)] = Field(None, ge=1)
    """how many heads for each network"""

    @model_validator(mode="after")
    def _not_both(self) -> "SeedsRequest":
        if self.seeds is not None and (self.network_seeds or self.head_seeds):
            raise ValueError(
                "`seeds` varies both together; give it, or `network_seeds` and `head_seeds`"
            )
        return self


class WhereRequest(Part):
    """Where trials run, and where results go."""

    out: Annotated[Text | None, OptionHelp(WHERE, "a folder in runs/", "PATH")] = None
    """folder or URL of results"""
    store: Annotated[Text | None, OptionHelp(WHERE, "OUT/store", "PATH")] = None
    """folder or URL of artifacts"""
    address: Annotated[str | None, OptionHelp(WHERE, "a Ray of this machine")] = None
    """a Ray cluster (auto finds it); none: in this process, without Ray"""
    gpus: Annotated[Share, OptionHelp(WHERE)] = 0.0
    """GPUs of a trial: 0, 1 or 1/k"""


class ExtrasRequest(Part):
    """What finished trials are evaluated on besides."""

    shift: Annotated[Words, OptionHelp(EXTRAS)] = ()
    """look at finished trials on corruptions, noise, a data set (several times)"""
    bootstrap: Annotated[int, OptionHelp(EXTRAS)] = 0
    """draws of the test samples, for intervals of finished trials"""


class TrialsRequest(WhereRequest, SeedsRequest, TrainingRequest, DataRequest):
    """What ladders, comparisons and searches have in common."""


class LadderRequest(ExtrasRequest, TrialsRequest):
    """What ladders and comparisons have in common."""

    profile: Annotated[bool, OptionHelp(WHERE)] = False
    """write where the time of an epoch of a network went"""


class AblateRequest(LadderRequest):
    """An ablation ladder."""

    ladder: Annotated[str, OptionHelp(names=lambda: LADDERS)]
    """see: tune-calib list ladders"""
    controls: Annotated[bool, OptionHelp(TRAINING)] = False
    """add the controls"""


class CompareRequest(LadderRequest):
    """Methods beside each other."""

    methods: Annotated[Words | None, OptionHelp(names=lambda: METHODS)] = None
    """tune-calib list methods; several as ls+mac_cal+temperature"""
    all: Annotated[
        str | None, OptionHelp(TRAINING, names=lambda: ("posthoc", "head", "network"))
    ] = None
    """every method of a kind beside vanilla: posthoc, head, network"""
    own_recipes: Annotated[bool, OptionHelp(TRAINING)] = False
    """each method as its authors train it"""

    @model_validator(mode="after")
    def _one_of_both(self) -> "CompareRequest":
        if (self.methods is None) == (self.all is None):
            raise ValueError("name methods, or take `all` with a kind: posthoc, head or network")
        return self


class Sampling(Part):
    """How a search suggests settings, and what it looks for."""

    sampler: Annotated[SamplerName, OptionHelp(SEARCHING, names=lambda: SAMPLERS)] = "tpe"
    """how it suggests: tpe, random, nsga2, grid"""
    sampler_seed: Annotated[int, OptionHelp(SEARCHING)] = Field(0, ge=0)
    """seed of the sampler"""
    metric: Annotated[
        tuple[Annotated[str, Name("metric", METRICS)], ...],
        BeforeValidator(as_tuple, json_schema_input_type=str | tuple[str, ...]),
        Field(min_length=1),
        OptionHelp(SEARCHING, "ece", names=searchable_metrics),
    ] = ("ece",)
    """on select, see: tune-calib list metrics; several give a Pareto set"""
    guard: Annotated[float, OptionHelp(SEARCHING)] = Field(0.01, ge=0, le=1)
    """accuracy on select that may be lost, a fraction"""
    population: Annotated[int, OptionHelp(SEARCHING)] = Field(8, ge=1)
    """suggestions asked for together (head methods)"""
    at_once: Annotated[int | None, OptionHelp(WHERE, "all cores")] = Field(None, ge=1)
    """Ray trials side by side"""
    scheduler: Annotated[SchedulerName, OptionHelp(SEARCHING, names=lambda: SCHEDULERS)] = "none"
    """asha stops networks that are behind; none"""

    @field_validator("metric")
    @classmethod
    def _searchable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        try:
            refuse_unsearchable(value)
        except UserError as error:
            raise ValueError(str(error)) from None
        return value


class Retry(Part):
    """What a run tries again."""

    retry: Annotated[Literal["crashed"] | None, OptionHelp(WHERE, names=lambda: ("crashed",))] = (
        None
    )
    """try again what ended so: crashed"""


class Storage(Part):
    """Where the study of a search is."""

    study_storage: Annotated[str | None, OptionHelp(WHERE, "a file")] = None
    """URL of the database of a search's study"""


class SearchRequest(Retry, Storage, Sampling, TrialsRequest):
    """A search of the settings of a method."""

    method: Annotated[str, OptionHelp(names=lambda: SPACES)]
    """see: tune-calib list spaces"""
    trials: Annotated[int, OptionHelp(SEARCHING)] = Field(64, ge=1)
    """suggestions to try"""
    own_recipes: Annotated[bool, OptionHelp(TRAINING)] = False
    """each method as its authors train it"""


class ResumeRequest(Retry, Storage):
    """A search that goes on."""

    out: Annotated[Text, ARGUMENT]
    """folder or URL of a search"""
    trials: Annotated[int, OptionHelp(SEARCHING)] = Field(0, ge=0)
    """suggestions to try in all, where these are more than before"""


class EvaluateRequest(Storage, ExtrasRequest):
    """A read of the test split, for the chosen trial of a search."""

    out: Annotated[Text, ARGUMENT]
    """folder or URL of a search"""
    seeds: Annotated[int, OptionHelp(SEEDS)] = Field(5, ge=1)
    """fresh seeds of networks and heads"""
    extend: Annotated[bool, OptionHelp(SEEDS)] = False
    """read test again, under more seeds"""


class RunRequest(Retry):
    """A sweep file."""

    file: Annotated[LocalPath, ARGUMENT]
    """an experiment file; for its format see: tune-calib run --schema"""
    address: Annotated[str | None, OptionHelp(WHERE, "the file's")] = None
    """a Ray cluster (auto finds it); none: in this process, without Ray"""


R = TypeVar("R", bound=Part)


def option_help(model: type[Part], name: str) -> OptionHelp:
    """Return how help shows a field of a request."""
    return next(each for each in model.model_fields[name].metadata if isinstance(each, OptionHelp))


def is_argument(model: type[Part], name: str) -> bool:
    """Return whether a field is a positional argument of the command or call."""
    return not option_help(model, name).panel


def field_names(model: type[Part]) -> list[str]:
    """Return the fields of a request, those first that are given without their names."""
    return sorted(model.model_fields, key=lambda name: not is_argument(model, name))


def build_request(model: type[R], values: Mapping[str, Any]) -> R:
    """Validate what is requested.

    Args:
        model: of the request.
        values: by field; strict, so that a text is no number.
    """
    # Nothing in place of several values is their default.
    given = {
        name: value
        for name, value in values.items()
        if not (isinstance(model.model_fields[name].default, tuple) and value in (None, [], ()))
    }
    try:
        return model.model_validate(given, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
    message = format_mistake(first)
    names_field = "`" in message or "unknown" in message
    if not first["loc"] or (first["type"] == "value_error" and names_field):
        raise UserError(message)
    name = str(first["loc"][0])
    known = option_help(model, name).names
    if first["type"] == "literal_error" and known is not None:
        hint = nearest(str(first["input"]), list(known()))
        message = f"unknown `{name}` {short_repr(first['input'])}{hint}"
    elif first["type"] != "missing" and (first["type"], name) != ("value_error", "set"):
        message += f", got {short_repr(first['input'])}"
    raise UserError(message, setting=name)


def format_command(
    name: str, request: Part, without: Sequence[str] = (), further: Sequence[str] = ()
) -> str:
    """Return the command line of a request; what stands at its default is left out.

    Args:
        name: of the command.
        request: what is requested.
        without: fields that it leaves out.
        further: words of options that are no fields.
    """
    model = type(request)
    words = ["tune-calib", name]
    for key in field_names(model):
        value = getattr(request, key)
        if value is None or value == model.model_fields[key].default or key in without:
            continue
        if is_argument(model, key):
            words += map(str, value if isinstance(value, tuple) else (value,))
        else:
            words += _option(f"--{key.replace('_', '-')}", value)
    return command_line([*words, *further])


def _option(option: str, value: Any) -> Sequence[str]:
    if value is True:
        return [option]
    if isinstance(value, Mapping):
        return [
            word for key, each in value.items() for word in (option, f"{key}={format_yaml(each)}")
        ]
    if isinstance(value, list):  # constants are one value
        return [option, json.dumps(value)]
    values = value if isinstance(value, tuple) else (value,)
    return [word for each in values for word in (option, str(each))]
