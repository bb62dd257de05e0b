"""Old import paths of plug-ins, whose stored sources cannot be rewritten."""

import importlib
import sys
from functools import partial
from types import ModuleType
from typing import Any

_SLOTS = tuple(f"spec.slots.{name}" for name in ("base", "data", "network", "head", "posthoc"))
_TARGETS = {
    "data.constants": ("spec.datasets",),
    "ladder": ("spec.ladder",),
    "names": ("spec.names", "spec.metrics"),
    "pipelines": ("spec.ladder",),
    "plugins": ("spec.plugins",),
    "recipe": ("spec.recipe", "spec.datasets"),
    "registry": (
        "spec.methods", "spec.datasets", "spec.backbones", "spec.recipe", "spec.ladder",
        "spec.reproduction", "spec.space", "text", "analysis.figure",
    ),
    "reproduction": ("spec.reproduction",),
    "results": ("results.tables",),
    "seeds": ("determinism",),
    "slots": ("spec.slots",),
    **{each.removeprefix("spec."): (each,) for each in _SLOTS},
    "space": ("spec.space",),
    "spec": ("spec.trial", *_SLOTS),
    "strict": ("spec.strict",),
    "wording": ("text",),
}  # fmt: skip
"""Modules as they were called, with those that hold their names now."""

_KEPT = ("registry", "results", "spec")  # there still are modules of these names


def install_old_paths() -> None:
    """Make imports by old paths find what they name; modules are loaded when they are used."""
    for old, targets in _TARGETS.items():
        name = f"tune_calib.{old}"
        if old in _KEPT:
            module = importlib.import_module(name)
        else:
            module = sys.modules.setdefault(name, ModuleType(name))
            module.__path__ = []
        vars(module).setdefault("__getattr__", partial(_find, name, targets))


def _find(name: str, targets: tuple[str, ...], attribute: str) -> Any:
    for target in () if attribute.startswith("__") else targets:
        package = "" if target.startswith("analysis.") else "tune_calib."
        module = importlib.import_module(f"{package}{target}")
        if hasattr(module, attribute):
            return getattr(module, attribute)
    raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
