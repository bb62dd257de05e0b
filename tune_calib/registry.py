"""Registries of data sets, backbones, methods, recipes, ladders and so on, a package each."""

import contextlib
import importlib
import json
import pkgutil
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from tune_calib import caches
from tune_calib.errors import UserError
from tune_calib.text import nearest, shown


class Record(Protocol):
    """What a registry holds."""

    @property
    def name(self) -> str:
        """Registry key."""


T = TypeVar("T", bound=Record)


class Registry(Generic[T]):
    """Name to record. A duplicate raises, an unknown name suggests the nearest.

    The modules of ``package`` are imported at the first look-up, so that a further file is a
    further entry and importing the registry itself stays cheap. Which names there are is
    remembered (``caches``), so that listing them and refusing others imports nothing. Plug-ins add
    theirs, and can be taken out again.

    Args:
        kind: what a record is, for messages.
        package: its modules register the program's own records.
        record: the class of a record.
        parted: its names are ``GROUP/NAME``, as those of the papers' tables.
    """

    def __init__(self, kind: str, package: str, record: type[Any], parted: bool = False) -> None:
        self.kind = kind
        self._package = package
        self._record = record
        self._name = re.compile(rf"{_NAME.pattern}/{_NAME.pattern}") if parted else _NAME
        self._records: dict[str, T] = {}
        self._families: list[tuple[Callable[[str], T | None], str | None]] = []
        self._names_of_families: list[Callable[[], Iterable[str]]] = []
        self._origins: dict[str, str | None] = {}
        self.is_loaded = False
        REGISTRIES.add(self)

    def register(self, record: T) -> T:
        """Add a record under its name.

        Raises:
            TypeError: it is no such record.
            ValueError: the name is none, or is taken.
        """
        origin = self._origin_of_caller(sys._getframe(1).f_globals)
        if not isinstance(record, self._record):
            raise TypeError(f"a {self.kind} is a {self._record.__name__}, got {shown(record)}")
        if not isinstance(record.name, str) or not self._name.fullmatch(record.name):
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

    def register_family(
        self,
        resolve: Callable[[str], T | None],
        names: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        """Add a rule for names that are too many to list.

        Args:
            resolve: returns None for a foreign name.
            names: all that it knows, of the program's own rules, which ``require`` does not ask.
        """
        self._families.append((resolve, self._origin_of_caller(sys._getframe(1).f_globals)))
        if names is not None:
            self._names_of_families.append(names)

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
        if self.is_loaded:
            return
        package = importlib.import_module(self._package)
        modules = pkgutil.iter_modules(getattr(package, "__path__", ()))
        for module in sorted(m.name for m in modules):
            if not module.startswith("_"):
                importlib.import_module(f"{self._package}.{module}")
        # Only now: if a module fails, the next look-up fails too, and does not miss its records.
        self.is_loaded = True
        self._remembered("names", self._find_names)  # for the next process

    def require(self, name: str) -> None:
        """Refuse a name that is unknown, and import nothing if it is remembered which are known.

        Raises:
            UserError: it is; the message suggests the nearest.
        """
        if not isinstance(name, str):
            raise UserError(f"a {self.kind} is named by a text, got {name!r}")
        if name not in self and not self._is_of_family(name):
            raise self._unknown(name)

    def _unknown(self, name: str) -> UserError:
        return UserError(f"unknown {self.kind} {shown(name)}{nearest(name, list(self))}")

    def _is_of_family(self, name: str) -> bool:
        if any(resolve(name) for resolve, _ in self._families):
            return True
        # Also where that was the answer already: the next process need not load any.
        return name in self._remembered("families", self._find_family_names)

    def _own(self) -> list[str]:
        """Names of the program's own records, without importing them if that goes."""
        return self._find_names() if self.is_loaded else self._remembered("names", self._find_names)

    def _remembered(self, what: str, find: Callable[[], list[str]]) -> list[str]:
        if self._package.partition(".")[0] not in caches.PACKAGES:
            return find()
        known: list[str] = caches.remembered(f"{what} of {self._package}", find)
        return known

    def _find_names(self) -> list[str]:
        self._load()
        return [name for name, origin in self._origins.items() if origin is None]

    def _find_family_names(self) -> list[str]:
        self._load()
        return sorted({name for names in self._names_of_families for name in names()})

    @property
    def has_foreign(self) -> bool:
        """Whether it holds records or families that are not the program's own."""
        origins = [self._origins.get(name, OUTSIDE) for name in self._records]
        return any(whose is not None for whose in [*origins, *(own for _, own in self._families)])

    def __getitem__(self, name: str) -> T:
        """Look a record up.

        Raises:
            UserError: the name is unknown; the message suggests the nearest.
        """
        self.require(name)
        self._load()
        if name in self._records:
            return self._records[name]
        for resolve, _ in self._families:
            record = resolve(name)
            if record is not None:
                return record
        raise self._unknown(name)

    def __contains__(self, name: object) -> bool:
        """Whether the name is registered."""
        return name in self._records or name in self._own()

    def __iter__(self) -> Iterator[str]:
        """Names in alphabetical order."""
        return iter(sorted({*self._records, *self._own()}))


_NAME = re.compile(r"[\w.-]+")
REGISTRIES: "weakref.WeakSet[Registry[Any]]" = weakref.WeakSet()


def told(what: str, work: Callable[[], Any]) -> Any:
    """What some work tells of the registries, remembered if they hold the program's own alone.

    Args:
        what: name of what is told.
        work: tells it, from the registries and nothing else.

    Returns:
        Plain JSON values.
    """
    if any(registry.has_foreign for registry in REGISTRIES):
        return json.loads(json.dumps(work()))
    return caches.remembered(what, work)


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
