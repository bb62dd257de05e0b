"""Registries of data sets, backbones, methods, recipes, ladders and spaces, a package each."""

import contextlib
import difflib
import importlib
import pkgutil
import re
import sys
import weakref
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
    from tune_calib.recipe import Recipe
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
    further entry and importing the registry itself stays cheap. Plug-ins add theirs, and can be
    taken out again.

    Args:
        kind: what a record is, for messages.
        package: its modules register the program's own records.
        record: name of the class of a record, which stands above this module.
    """

    def __init__(self, kind: str, package: str, record: str) -> None:
        self.kind = kind
        self._package = package
        self._record = record
        self._records: dict[str, T] = {}
        self._families: list[tuple[Callable[[str], T | None], str | None]] = []
        self._origins: dict[str, str | None] = {}
        self._is_loaded = False
        REGISTRIES.add(self)

    def register(self, record: T) -> T:
        """Add a record under its name.

        Raises:
            TypeError: it is no such record.
            ValueError: the name is none, or is taken.
        """
        origin = self._origin_of_caller(sys._getframe(1).f_globals)
        # By name: the classes stand above this module, and importing them would close a circle.
        if self._record not in (kind.__name__ for kind in type(record).__mro__):
            raise TypeError(f"a {self.kind} is a {self._record}, got {shown(record)}")
        if not isinstance(record.name, str) or not _NAME.fullmatch(record.name):
            raise ValueError(
                f"{shown(record.name)} names no {self.kind}: take letters, digits, _.-"
            )
        if origin is not None:
            self._load()  # so that not the program's own record is blamed, which comes later
        if self._is_taken(record.name, by_families=origin is not None):
            raise ValueError(f"{self.kind} {record.name!r} is registered already")
        self._records[record.name] = record
        self._origins[record.name] = origin
        return record

    def register_family(self, resolve: Callable[[str], T | None]) -> None:
        """Add a rule for names that are too many to list; it returns None for a foreign name."""
        self._families.append((resolve, self._origin_of_caller(sys._getframe(1).f_globals)))

    def _origin_of_caller(self, names: dict[str, Any]) -> str | None:
        """The plug-in that is being loaded, unless it made Python import a module of ours."""
        caller = f"{names.get('__name__')}."
        return None if caller.startswith(f"{self._package}.") else _loading

    def _is_taken(self, name: str, by_families: bool) -> bool:
        # What a module registered when it was imported, its plug-in may register once more.
        if name in self._records and self._origins[name] != OUTSIDE:
            return True
        return by_families and any(resolve(name) for resolve, _ in self._families)

    def origin(self, name: str) -> str | None:
        """Content hash of the plug-in that a record is of; None for one of the program.

        Raises:
            UserError: it is of neither, so that nobody could tell two versions of it apart.
        """
        self._load()
        if name in self._records:
            origin = self._origins[name]
        else:
            origin = next((whose for resolve, whose in self._families if resolve(name)), None)
        if origin == OUTSIDE:
            raise UserError(
                f"{self.kind} {name!r} was registered outside a plug-in; give its file or module "
                "by `plugin` (in Python: tune_calib.plugins.use)"
            )
        return origin

    def of(self, origin: str) -> list[T]:
        """What a plug-in registered."""
        return [self._records[name] for name, own in self._origins.items() if own == origin]

    def families_of(self, origin: str) -> list[Callable[[str], T | None]]:
        """The rules that a plug-in registered."""
        return [resolve for resolve, own in self._families if own == origin]

    def remove(self, origin: str) -> None:
        """Take out what a plug-in registered."""
        for record in self.of(origin):
            del self._records[record.name], self._origins[record.name]
        self._families = [family for family in self._families if family[1] != origin]

    def _load(self) -> None:
        if self._is_loaded:
            return
        package = importlib.import_module(self._package)
        modules = pkgutil.iter_modules(getattr(package, "__path__", ()))
        for module in sorted(m.name for m in modules):
            if not module.startswith("_"):
                importlib.import_module(f"{self._package}.{module}")
        # Only now: if a module fails, the next look-up fails too, and does not miss its records.
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
        for resolve, _ in self._families:
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


REGISTRIES: "weakref.WeakSet[Registry[Any]]" = weakref.WeakSet()
_NAME = re.compile(r"[\w.-]+")
OUTSIDE = "outside"
_loading = OUTSIDE


@contextlib.contextmanager
def loading(origin: str) -> Iterator[None]:
    """What is registered in the block is of the plug-in with this content hash."""
    global _loading
    before, _loading = _loading, origin
    try:
        yield
    finally:
        _loading = before


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
        recipe: name of the recipe by which its authors train it; its optimiser is taken where
            each method's own is asked for. None: as all others.
        dataset_defaults: hyper-parameters that the paper sets otherwise for a data set
            (``cifar10``), or for a backbone on it (``cifar10/resnet110``).
        pairs_by_order: the order of a batch decides which of its samples are paired.
        trains_own_head: a network method trains the network's linear head, so that a head method
            can continue from it.
        keeps_accuracy: of a post-hoc method, whether it never changes which class is first; None
            of other kinds.
        classes: the only number of classes that a post-hoc method takes; None: any.
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
    recipe: str | None = None
    dataset_defaults: dict[str, dict[str, Any]] | None = None
    pairs_by_order: bool = False
    trains_own_head: bool = True
    keeps_accuracy: bool | None = None
    classes: int | None = None


METHODS: Registry[MethodInfo] = Registry("method", "tune_calib.methods", "MethodInfo")
DATASETS: Registry["DatasetInfo"] = Registry("data set", "tune_calib.data.datasets", "DatasetInfo")
BACKBONES: Registry["BackboneInfo"] = Registry(
    "backbone", "tune_calib.models.backbones", "BackboneInfo"
)
RECIPES: Registry["Recipe"] = Registry("recipe", "tune_calib.recipes", "Recipe")
LADDERS: Registry["Ladder"] = Registry("ladder", "ablations", "Ladder")
SPACES: Registry["Space"] = Registry("search space", "search_spaces", "Space")
LADDER_FIGURES: Registry["Figure[LadderResults]"] = Registry(
    "figure of a ladder", "analysis.ladder.figures", "Figure"
)
SEARCH_FIGURES: Registry["Figure[SearchResults]"] = Registry(
    "figure of a search", "analysis.search.figures", "Figure"
)
