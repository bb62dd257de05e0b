"""Generate the API reference from the docstrings, a page per package."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from itertools import chain

from docs.generate.page import Page

_ROOTS = ("tune_calib", "search_spaces", "ablations", "analysis")
# The methods have pages of their own; only their interface to the engine is listed here.
_HIDDEN = {"tune_calib.methods": ("_base",), "tune_calib.cli": ()}


def pages() -> Iterator[Page]:
    """Yield the list of packages and a page for each."""
    packages = list(chain.from_iterable(map(_packages, _ROOTS)))
    lines = [f"- [`{name}`]({name}.md)" for name in packages]
    intro = "This reference is generated from the docstrings. Each package has a page."
    text = "\n\n".join(["# API", intro, "\n".join(lines)]) + "\n"
    yield Page("reference/index.md", "API", text)
    for name in packages:
        yield Page(f"reference/{name}.md", name, _text(name), section="Reference")


def _packages(name: str) -> Iterator[str]:
    yield name
    for module in _modules(name):
        if module.ispkg:
            yield from _packages(f"{name}.{module.name}")


def _modules(package: str) -> list[pkgutil.ModuleInfo]:
    return list(pkgutil.iter_modules(import_module(package).__path__))


def _text(package: str) -> str:
    names = [module.name for module in _modules(package) if not module.ispkg]
    shown = _HIDDEN.get(package, tuple(name for name in names if not name.startswith("_")))
    parts = [f"# `{package}`", *(f"::: {package}.{name}" for name in shown)]
    if package == "tune_calib.cli":
        parts.append("The commands are described [here](../commands.md).")
    if package == "tune_calib.methods":
        parts.insert(1, "The methods are described [here](../methods/index.md).")
    return "\n\n".join(parts) + "\n"
