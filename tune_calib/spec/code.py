"""The code behind numbers: modules of the user's own, and modules of the program by content.

A released program states with ``results.tables.NUMBERS`` whether its numbers change. A checkout may
be edited at any time, so that rows and networks record digests of the modules that made them.
"""

import ast
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from tune_calib.errors import UserError
from tune_calib.paths import LOADED_AT
from tune_calib.text import format_count

PACKAGES = ("tune_calib", "search_spaces", "ablations", "analysis")
RELEASED = "released"
"""Key of the code of a released version, with the digest of no module."""

_ROOT = Path(__file__).parents[2]
_IS_RELEASED = _ROOT.name in ("site-packages", "dist-packages")
_PARTS = ("engine", "methods", "models", "metrics", "data", "determinism", "spec.slots")
_COUNTED = tuple(f"tune_calib.{part}." for part in _PARTS)
_STANDARD = {os.path.dirname(os.__file__), *map(sysconfig.get_path, ("stdlib", "platstdlib"))}
_MAX_NAMED = 3

_is_accepted = False


def accept_code(is_accepted: bool) -> None:
    """Set whether the user accepts to mix numbers of other code with new ones."""
    global _is_accepted
    _is_accepted = is_accepted


def is_accepted() -> bool:
    """Return what ``accept_code`` set."""
    return _is_accepted


def list_changes(recorded: Mapping[str, str], current: Mapping[str, str]) -> str:
    """List the names whose digests differ; "" if none does, or if both are of released versions."""
    if RELEASED in recorded and RELEASED in current:
        return ""
    names = sorted({*recorded, *current} - {RELEASED})
    changed = [name for name in names if recorded.get(name) != current.get(name)]
    further = len(changed) - _MAX_NAMED
    if further > 0:
        changed[_MAX_NAMED:] = [f"and {format_count(further, 'other')}"]
    return ", ".join(changed)


def find_imports(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the absolute names that code may import as modules, at any depth."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module))
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def digest_modules(roots: Iterable[str]) -> dict[str, str]:
    """Return the digests of modules of the program and of what they import, by short names."""
    digests, remaining = {}, set(roots)
    while remaining:
        name = remaining.pop()
        short = name.removeprefix("tune_calib.")
        if short not in digests and (module := _read_module(name)) is not None:
            digests[short] = module[0]
            remaining |= module[1]
    if _IS_RELEASED:
        digests[RELEASED] = ""
    return digests


def list_modules(package: str) -> list[str]:
    """Return the names of the modules of a package of the program."""
    files = (_ROOT / package.replace(".", "/")).glob("*.py")
    return [f"{package}.{file.stem}" for file in files]


@cache
def _read_module(name: str) -> tuple[str, set[str]] | None:
    """Return digest and imports of a module of the program; None for one that makes no numbers."""
    stem = _ROOT / name.replace(".", "/")
    path = next(filter(Path.is_file, (stem.with_suffix(".py"), stem / "__init__.py")), None)
    if path is None or not f"{name}.".startswith(_COUNTED):
        return None
    if path.stat().st_mtime > LOADED_AT and not _IS_RELEASED:
        raise UserError(f"{path} was changed after this program started; start it again")
    tree = ast.parse(path.read_bytes())
    nodes = list(ast.walk(tree))
    # Comments are in no syntax tree; texts that stand alone, as docstrings do, change nothing.
    for node in nodes:
        if isinstance(body := getattr(node, "body", None), list):
            vars(node)["body"] = [child for child in body if not _is_text(child)]
    # The same in all versions of Python: later ones omit empty fields, and have another one.
    options = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    text = ast.dump(tree, **options).replace(", type_params=[]", "")
    return hashlib.sha256(text.encode()).hexdigest()[:8], find_imports(nodes)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def find_own_modules() -> dict[str, Path]:
    """Return the loaded modules of the user's own with their files, or folders of namespaces.

    These are neither of Python, nor of installed packages, nor of this program.
    """
    modules = {}
    for name, module in list(sys.modules.items()):
        top = name.partition(".")[0]
        if top in (*PACKAGES, "__main__", "__mp_main__") or top.startswith("tune_calib_plugin_"):
            continue
        # Of its variables, since modules may invent attributes.
        names = getattr(module, "__dict__", {})
        path = names.get("__file__") or next(iter(names.get("__path__") or ()), None)
        if isinstance(path, str) and (file := _find_own_file(path)) is not None:
            modules[name] = file
    return modules


@cache
def _find_own_file(path: str) -> Path | None:
    module = Path(path).absolute()
    is_installed = {"site-packages", "dist-packages"}.intersection(module.parts)
    if is_installed or any(map(module.is_relative_to, _STANDARD)):
        return None
    # The file of a module in an archive is the archive.
    return next(filter(Path.is_file, (module, *module.parents)), module)
