"""Registries of data sets, backbones, methods, ladders and spaces: each imports one package."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from tune_calib.errors import UserError
from tune_calib.wording import shown

if TYPE_CHECKING:  # the records stand above this module, which knows neither torch nor optuna
    from analysis.figure import Figure
    from analysis.ladder.results import LadderResults
    from analysis.search.load import SearchResults
    from tune_calib.data.base import DatasetInfo
    from tune_calib.ladder import Ladder
    from tune_calib.models.base import BackboneInfo
    from tune_calib.space import Space


class Record(Protocol):
    """What a registry holds."""

    @property
    def name(self) -> str:
        """Registry key."""


T = TypeVar("T", bound=Record)


def nearest(name: str, known: list[str]) -> str:
    """Return a hint such as ``"; did you mean 'ece'?"``, or the list of what is known."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


class Registry(Generic[T]):
    """Name to record. A duplicate raises, an unknown name suggests the nearest.

    The modules of ``package`` are imported at the first look-up, so that a further file is a
    further entry and importing the registry itself stays cheap. Without a package, whoever makes
    the registry fills it.
    """

    def __init__(self, kind: str, package: str | None) -> None:
        self.kind = kind
        self._package = package
        self._records: dict[str, T] = {}
        self._families: list[Callable[[str], T | None]] = []
        self._is_loaded = False

    def register(self, record: T) -> T:
        """Add a record under its name.

        Raises:
            ValueError: the name is taken.
        """
        if record.name in self._records:
            raise ValueError(f"{self.kind} {record.name!r} is registered twice")
        self._records[record.name] = record
        return record

    def register_family(self, resolve: Callable[[str], T | None]) -> None:
        """Add a rule for names that are too many to list; it returns None for a foreign name."""
        self._families.append(resolve)

    def _load(self) -> None:
        if self._is_loaded or self._package is None:
            return
        package = importlib.import_module(self._package)
        for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
            if not module.startswith("_"):
                importlib.import_module(f"{self._package}.{module}")
        self._is_loaded = True

    def __getitem__(self, name: str) -> T:
        """Look a record up.

        Raises:
            UserError: the name is unknown; the message suggests the nearest.
        """
        self._load()
        if not isinstance(name, str):
            raise UserError(f"a {self.kind} is named by a text, got {name!r}")
        if name in self._records:
            return self._records[name]
        for resolve in self._families:
            record = resolve(name)
            if record is not None:
                return record
        raise UserError(f"unknown {self.kind} {shown(name)}{nearest(name, list(self))}")

    def __contains__(self, name: object) -> bool:
        """Whether the name is registered."""
        self._load()
        return name in self._records

    def __iter__(self) -> Iterator[str]:
        """Names in alphabetical order."""
        self._load()
        return iter(sorted(self._records))


class StrictModel(BaseModel):
    """Frozen; unknown keys, NaN, infinity, and a truth value for a number are refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_kind(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic takes true for 1 and 1 for true."""
        if info.field_name is not None:
            check_kind(value, cls, info.field_name)
        return value


def check_kind(value: Any, model: type[BaseModel], field: str) -> None:
    """Tell truth values from numbers, also in a list.

    Raises:
        ValueError: one stands where the other should.
    """
    kinds = _kinds_of(model, field)
    for part in value if isinstance(value, list | tuple) else (value,):
        if isinstance(part, bool) and bool not in kinds and kinds & {int, float}:
            raise ValueError("must be a number")
        if isinstance(part, int | float | str) and not isinstance(part, bool) and kinds == {bool}:
            raise ValueError("must be true or false")


@cache
def _kinds_of(model: type[BaseModel], field: str) -> frozenset[Any]:
    return frozenset(_kinds(model.model_fields[field].annotation))


def _kinds(annotation: Any) -> Iterator[Any]:
    """The plain types of an annotation, without None."""
    parts = get_args(annotation)
    if get_origin(annotation) is Annotated:
        parts = parts[:1]
    for part in parts:
        yield from _kinds(part)
    if not parts and annotation is not type(None):
        yield annotation


class Params(StrictModel):
    """Hyper-parameters of a method."""


Need = Literal["calib_pass", "two_forward_passes", "stages"]
NEEDS: dict[Need, str] = {
    "calib_pass": "a pass over calib after each epoch",
    "two_forward_passes": "two forward passes a step",
    "stages": "a backbone that can be run stage by stage",
}


@dataclass(frozen=True)
class MethodInfo:
    """What the rest of the program may know of a method without running it.

    Attributes:
        name: registry key.
        kind: which slot of a trial spec it fills.
        title: one-line description.
        paper: authors and venue.
        year: year of publication.
        url: where to read it.
        formula: LaTeX of the loss or the update, exactly as it is carried out.
        bibtex: entries to cite, one after the other.
        params: model of the hyper-parameters, with the defaults of the paper.
        implementation: the class that carries the method out.
        needs: what the engine must give it beyond logits and labels, of ``NEEDS``.
        per_head: hyper-parameters that may differ between the heads of one population.
        slot_defaults: the authors' recipe (fields of its slot, e.g. ``lr``), taken where each
            method's own is asked for. Epochs, backbone and augmentation are no part of it.
        dataset_slot_defaults: what of the recipe is otherwise on a data set.
        dataset_defaults: hyper-parameters that the paper sets otherwise for a data set
            (``cifar10``), or for a backbone on it (``cifar10/resnet110``).
        trains_own_head: a network method trains the network's linear head, so that a head method
            can continue from it.
    """

    name: str
    kind: Literal["network", "head", "posthoc"]
    title: str
    paper: str
    year: int
    url: str
    params: type[Params]
    implementation: type[Any]
    formula: str = ""
    bibtex: str = ""
    needs: frozenset[Need] = frozenset()
    per_head: frozenset[str] = frozenset()
    slot_defaults: dict[str, Any] | None = None
    dataset_slot_defaults: dict[str, dict[str, Any]] | None = None
    dataset_defaults: dict[str, dict[str, Any]] | None = None
    trains_own_head: bool = True


METHODS: Registry[MethodInfo] = Registry("method", "tune_calib.methods")
DATASETS: Registry["DatasetInfo"] = Registry("data set", "tune_calib.data.datasets")
BACKBONES: Registry["BackboneInfo"] = Registry("backbone", "tune_calib.models.backbones")
LADDERS: Registry["Ladder"] = Registry("ladder", "ablations")
SPACES: Registry["Space"] = Registry("search space", "search_spaces")
LADDER_FIGURES: Registry["Figure[LadderResults]"] = Registry(
    "figure of a ladder", "analysis.ladder.figures"
)
SEARCH_FIGURES: Registry["Figure[SearchResults]"] = Registry(
    "figure of a search", "analysis.search.figures"
)
