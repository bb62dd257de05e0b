"""The code of the program that makes a network, its features and the numbers of a trial."""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from tune_calib.errors import RefusedError, UserError
from tune_calib.registry import Registry
from tune_calib.spec import plugins
from tune_calib.spec.backbones import BACKBONES
from tune_calib.spec.code import digest_modules, is_accepted, list_changes, list_modules
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.methods import METHODS
from tune_calib.spec.trial import TrialSpec

METHOD_COLUMNS = ("network_method", "head_method", "posthoc_method")
NAMES = ("dataset", "backbone", *METHOD_COLUMNS)
"""Columns of ``trials`` with the names of records, on whose modules the code of a trial depends."""


def names_of(spec: TrialSpec) -> dict[str, str | None]:
    """Return the names of records behind a trial, by column."""
    names: dict[str, str | None] = dict.fromkeys(METHOD_COLUMNS)
    for column, slot in zip(METHOD_COLUMNS, (spec.network, spec.head, spec.posthoc), strict=True):
        if slot is not None:
            names[column] = slot.method
    return {"dataset": spec.data.dataset, "backbone": spec.network.backbone, **names}


def read_code(names: Mapping[str, Any], engine: Collection[str] = ()) -> dict[str, str]:
    """Return the digests of the modules behind records and the engine, or only part of it."""
    roots = set(engine or list_modules("tune_calib.engine"))
    registries: list[tuple[str, Registry[Any], str]] = [
        ("dataset", DATASETS, "load"),
        ("backbone", BACKBONES, "build"),
        *((column, METHODS, "implementation") for column in METHOD_COLUMNS),
    ]
    for column, registry, attribute in registries:
        name = names[column]
        if name is None:
            continue
        with suppress(UserError):  # it has no such record any more, so its code differs
            maker = getattr(registry[name], attribute)
            roots.add(getattr(maker, "func", maker).__module__)
            roots |= plugins.imports_of(registry.origin(name))
    return digest_modules(roots)


def code_of_network(spec: TrialSpec, *engine: str) -> dict[str, str]:
    """Return the digests of the modules that train a network, and further ones of the engine."""
    names = {**names_of(spec), "head_method": None, "posthoc_method": None}
    return read_code(names, ["tune_calib.engine.network", *engine])


def code_of_trials(specs: Iterable[TrialSpec]) -> dict[str, str]:
    """Return the digests of all modules that make the numbers of some trials."""
    code: dict[str, str] = {}
    for names in {tuple(names_of(spec).items()) for spec in specs}:
        code |= read_code(dict(names))
    return code


def find_changes(recorded: Any, current: Mapping[str, str]) -> str:
    """List the modules that differ from recorded ones; "" if none, unrecorded, or accepted."""
    if recorded is None or is_accepted():
        return ""
    if not isinstance(recorded, dict):
        recorded = {}
    return list_changes(recorded, current)


def refuse_changed(recorded: Any, current: Mapping[str, str], what: str, way: str) -> None:
    """Refuse to mix numbers of the current code of the program with recorded ones."""
    if changed := find_changes(recorded, current):
        raise RefusedError(
            f"{what} by other code of the program (changed: {changed}): {way}, or mix them with "
            "`accept_code`"
        )
