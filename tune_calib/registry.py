"""Registries of data sets, backbones, methods, recipes, ladders and so on, one package each."""

import contextlib
import importlib
import json
import pkgutil
import re
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tune_calib.errors import UserError
from tune_calib.text import nearest, short_repr


class Record(Protocol):
    """A record of a registry."""

    @property
    def name(self) -> str:
        """Return the registry key."""


T = TypeVar("T", bound=Record)


class Registry(Generic[T]):
    """Records by name. A duplicate raises, an unknown name suggests the nearest.

    The modules of ``package`` are imported at the first look-up, so that a new file is a new entry
    and importing the registry itself stays cheap. For a package in ``index.json`` a look-up imports
    only the module of the record, and listing names or refusing others imports nothing. Records of
    plug-ins can be removed again. ``kind`` names a record in messages; the names of a ``parted``
    registry are ``GROUP/NAME``, like those of the papers' tables.
    """

    def __init__(self, kind: str, package: str, record: type[Any], parted: bool = False) -> None:
        self.kind = kind
        self.package = package
        self.aliases: dict[str, str] = {}  # further names of records, looked up but not listed
        self._record = record
        self._name = re.compile(rf"{_NAME.pattern}/{_NAME.pattern}") if parted else _NAME
        self._records: dict[str, T] = {}
        self._families: list[tuple[Callable[[str], T | None], str | None]] = []
        self._names_of_families: list[Callable[[], Iterable[str]]] = []
        self._origins: dict[str, str | None] = {}  # content hash of the plug-in of each record
        self.homes: dict[str, str] = {}  # modules that registered the records
        self._is_loaded = False
        REGISTRIES.add(self)

    def register(self, record: T | None = None, /, **fields: Any) -> T:
        """Add a record, or one with these fields, under its name."""
        if fields:
            record = self._record(**fields)
        caller = sys._getframe(1).f_globals
        origin = self._origin_of_caller(caller)
        if record is None or not isinstance(record, self._record):
            raise TypeError(f"a {self.kind} must be a {self._record.__name__}, got {record!r}")
        if not isinstance(record.name, str) or not self._name.fullmatch(record.name):
            raise ValueError(f"{record.name!r} is no {self.kind} name: use letters, digits, _.-")
        name = record.name
        # A plug-in may register again what its module registered when it was imported.
        is_new = name not in self._records and (origin is None or not self.knows(name))
        if not is_new and self._origins.get(name) != OUTSIDE:
            raise ValueError(f"{self.kind} {name!r} is already registered")
        self._records[name], self._origins[name] = record, origin
        self.homes[name] = caller["__name__"].rpartition(".")[2]
        return record

    def register_family(
        self, resolve: Callable[[str], T | None], names: Callable[[], Iterable[str]] | None = None
    ) -> None:
        """Add a rule that returns None for other names; a built-in one also lists its ``names``."""
        self._families.append((resolve, self._origin_of_caller(sys._getframe(1).f_globals)))
        if names is not None:
            self._names_of_families.append(names)

    def _origin_of_caller(self, names: dict[str, Any]) -> str | None:
        caller = f"{names.get('__name__')}."
        return None if caller.startswith(f"{self.package}.") else _loading

    def origin(self, name: str) -> str | None:
        """Return the content hash of the plug-in of a record; None for a built-in record."""
        if not self._index:
            self._load()
        if name in self._records:
            origin = self._origins[name]
        else:
            origin = next((plugin for rule, plugin in self._families if rule(name)), None)
        if origin == OUTSIDE:
            raise UserError(
                f"{self.kind} {name!r} was registered outside a plug-in; give its file as `plugin`"
            )
        return origin

    def of(self, origin: str) -> list[T]:
        """Return the records of a plug-in."""
        return [record for name, record in self._records.items() if self._origins[name] == origin]

    def has(self, origin: str) -> bool:
        """Return whether a plug-in has registered a record or a rule."""
        return origin in [*self._origins.values(), *(plugin for _, plugin in self._families)]

    def remove(self, origin: str) -> None:
        """Remove the records and rules of a plug-in."""
        for record in self.of(origin):
            del self._records[record.name], self._origins[record.name]
        self._families = [family for family in self._families if family[1] != origin]

    def _load(self) -> None:
        if self._is_loaded:
            return
        importlib.import_module(self.package)
        for module in self.modules():
            importlib.import_module(f"{self.package}.{module}")
        # Only now: if a module fails, the next look-up fails too instead of missing its records.
        self._is_loaded = True

    def modules(self) -> list[str]:
        """Return the names of the package's modules without importing it."""
        spec = find_spec(self.package)
        if spec is None:
            return []
        modules = pkgutil.iter_modules(spec.submodule_search_locations or ())
        return sorted(module.name for module in modules if not module.name.startswith("_"))

    @cached_property
    def _index(self) -> Mapping[str, Any] | None:
        """Return the package's part of ``index.json``; None for a package that loads quickly."""
        index: Mapping[str, Any] | None = read_index().get(self.package)
        # A new method is found at once, even before the index is generated again.
        return index if index and index["modules"] == self.modules() else None

    def facts(self, name: str) -> Mapping[str, Any]:
        """Return the facts of the index about a record without an import; none for a plug-in's."""
        records: Mapping[str, Mapping[str, Any]] = self._index["records"] if self._index else {}
        return records.get(self.canonical(name), {})

    def canonical(self, name: str) -> str:
        """Return the name of the record of an alias, and any other name unchanged."""
        if name not in self.aliases or name in self:  # a plug-in may register the alias as a name
            return name
        return self.aliases[name]

    def require(self, name: str) -> None:
        """Refuse an unknown name without importing a package that is in the index."""
        if not isinstance(name, str):
            raise UserError(f"the name of a {self.kind} must be a string, got {name!r}")
        if not self.knows(self.canonical(name)):
            raise UserError(f"unknown {self.kind} {short_repr(name)}{nearest(name, list(self))}")

    def knows(self, name: str) -> bool:
        """Return whether the name is registered, or a rule resolves it."""
        return name in self or self._is_of_family(name)

    def _is_of_family(self, name: str) -> bool:
        if self._index and name in self._index["families"]:
            return True
        if not self._index:
            self._load()
        # The index lists the names of built-in rules.
        return any(rule(name) for rule, plugin in self._families if plugin or not self._index)

    def family_names(self) -> list[str]:
        """Return all names that the built-in rules know."""
        self._load()
        return sorted(set().union(*(names() for names in self._names_of_families)))

    def __getitem__(self, name: str) -> T:
        """Return a record, importing its module if need be."""
        if isinstance(name, str) and name in self._records:
            return self._records[name]
        self.require(name)
        name = self.canonical(name)
        if name not in self._records:
            if facts := self.facts(name):
                importlib.import_module(f"{self.package}.{facts['module']}")
            else:
                self._load()
        if name in self._records:
            return self._records[name]
        return next(filter(None, (resolve(name) for resolve, _ in self._families)))

    def __contains__(self, name: object) -> bool:
        """Return whether the name is registered."""
        return name in self._records or name in self._builtin_names()

    def __iter__(self) -> Iterator[str]:
        """Yield the names in alphabetical order."""
        return iter(sorted({*self._records, *self._builtin_names()}))

    def values(self) -> Iterator[T]:
        """Yield the records in alphabetical order of their names."""
        for name in self:
            yield self[name]

    def _builtin_names(self) -> Collection[str]:
        if self._index:
            names: Collection[str] = self._index["records"].keys()
            return names
        self._load()
        return self._records.keys()


_NAME = re.compile(r"[\w.-]+")
REGISTRIES: "weakref.WeakSet[Registry[Any]]" = weakref.WeakSet()


@cache
def read_index() -> dict[str, Any]:
    """Return facts about packages that import slowly, as ``docs.generate.index`` wrote them."""
    index: dict[str, Any] = json.loads(Path(__file__).with_name("index.json").read_text("utf-8"))
    return index


OUTSIDE = "outside"
_loading = OUTSIDE


@contextlib.contextmanager
def loading(origin: str) -> Iterator[None]:
    """Attribute what is registered in the block to the plug-in with this content hash."""
    global _loading
    outer, _loading = _loading, origin
    try:
        yield
    finally:
        _loading = outer
