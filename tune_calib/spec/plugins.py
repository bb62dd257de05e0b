"""Plug-ins: files and modules of a user that register methods, spaces, ladders and so on.

A plug-in is an ordinary Python file that imports ``tune_calib`` and registers records. Its content
hash is its identity and part of each slot that it fills in a spec, so that networks of two versions
of a file are never confused.

Files are sent to workers as text, since they need not share a file system. A module must be
importable, in the same version, wherever it is used.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tune_calib.errors import UserError, locate_error
from tune_calib.paths import refuse_special
from tune_calib.registry import REGISTRIES, loading
from tune_calib.spec.backbones import BACKBONES, BackboneInfo
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.metrics import METRICS
from tune_calib.text import option_words

GROUP = "tune_calib.plugins"
"""Group of entry points of installed packages; they name modules."""

LARGEST = 1_000_000


@dataclass(frozen=True)
class Plugin:
    """A version of a plug-in."""

    name: str  # name of its file without .py, or of its module
    content: str  # 16 hexadecimal digits of the SHA-256 of its text
    where: str  # path of its file, or its module
    source: str | None = None  # text of its file; None for a module

    def plain(self) -> dict[str, Any]:
        """Return plain JSON values, for a worker."""
        return asdict(self)


_in_use: dict[str, Plugin] = {}  # by content
# All that ran, with the records that they registered, so that each of them runs once.
_ran: dict[str, tuple[Plugin, list[tuple[Any, Any]]]] = {}


def read(given: str, folder: Path = Path()) -> Plugin:
    """Read a plug-in: a file ending in ``.py``, relative to a folder, or a module."""
    if given.endswith(".py") or "/" in given:
        return _read_file(folder / given)
    content, _ = _of_module(given)
    return Plugin(given, content, given)


def _read_file(path: Path) -> Plugin:
    refuse_special(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read plug-in {path}: {error.strerror}") from None
    if len(raw) > LARGEST:
        raise UserError(f"plug-in {path} has more than {LARGEST:,} bytes; install it as a module")
    try:
        source = importlib.util.decode_source(raw)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UserError(f"plug-in {path} is not a text file: {error}") from None
    return Plugin(path.stem, _digest([(path.suffix, raw)]), str(path.resolve()), source)


def _of_module(name: str) -> tuple[str, frozenset[str]]:
    """Return the content hash and the files of a module's package, without importing it."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        try:
            found = importlib.util.find_spec(".".join(parts[:count]))
        except (ImportError, ValueError):
            found = None
        if found is None:
            break
        if found.origin and found.origin.endswith(".py"):
            top = Path(found.origin)
            # The whole package, since the module may import the rest of it.
            files = sorted(top.parent.rglob("*.py")) if found.submodule_search_locations else [top]
            texts = [(str(file.relative_to(top.parent)), file.read_bytes()) for file in files]
            return _digest(texts), frozenset(map(str, files))
    raise UserError(f"plug-in {name!r}: there is no such module; the name of a file ends in .py")


def _digest(texts: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, text in texts:
        digest.update(f"{name} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:16]


def installed() -> tuple[Plugin, ...]:
    """Return the plug-ins of installed packages."""
    return tuple(read(point.module) for point in entry_points(group=GROUP))


def in_use() -> tuple[Plugin, ...]:
    """Return the plug-ins that are registered in this process."""
    return tuple(_in_use.values())


def as_options() -> list[str]:
    """Return the options that load the plug-ins in use again, except installed ones."""
    already = installed()
    return option_words(("plugin", own.where) for own in in_use() if own not in already)


def run_before(contents: Iterable[str]) -> tuple[Plugin, ...]:
    """Return the plug-ins with these contents that this process ran because its user named them."""
    return tuple(_ran[content][0] for content in contents if content in _ran)


def used(contents: Iterable[str | None]) -> tuple[Plugin, ...]:
    """Return the plug-ins in use with one of these contents and those that compute a metric."""
    wanted = set(contents) | {METRICS.origin(name) for name in METRICS}
    return tuple(plugin for plugin in in_use() if plugin.content in wanted)


def backbone(given: str, folder: Path = Path()) -> str:
    """Return the registry key of a backbone, registering ``FILE.py:FUNCTION`` if need be.

    The function takes no arguments and returns a torch module; the key is ``FILE.FUNCTION``.
    """
    path, colon, function = given.rpartition(":")
    if not colon or not path.endswith(".py"):
        return given
    plugin = _read_file(folder / path)
    use([*in_use(), plugin])
    name = f"{plugin.name}.{function}"
    if BACKBONES.origin(name) != plugin.content:
        known = ", ".join(_functions(sys.modules[_module_name(plugin)]))
        raise UserError(f"{path} has no function {function!r}; it has: {known or 'none'}")
    return name


def load(*given: str, folder: Path = Path()) -> None:
    """Register files or modules in addition to the plug-ins in use."""
    use([*in_use(), *(read(each, folder) for each in given)])


def use(plugins: Iterable[Plugin]) -> None:
    """Register exactly these plug-ins in this process, in place of any others."""
    wanted = {plugin.content: plugin for plugin in plugins}
    names = [plugin.name for plugin in wanted.values()]
    for plugin in wanted.values():
        if names.count(plugin.name) > 1:
            raise UserError(f"two plug-ins have the name {plugin.name}; rename {plugin.where}")
    for content in [content for content in _in_use if content not in wanted]:
        _remove(content)
    for content, plugin in wanted.items():
        if content not in _in_use:
            _register(plugin)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Remove the plug-ins registered in the block when it ends."""
    before = in_use()
    try:
        yield
    finally:
        use(before)


def _remove(content: str) -> None:
    for registry in REGISTRIES:
        registry.remove(content)
    _in_use.pop(content, None)


def _register(plugin: Plugin) -> None:
    """Run a plug-in, or register the records of an earlier run again; all of them or none."""
    files = frozenset([plugin.where])
    if plugin.source is None:
        here, files = _of_module(plugin.where)
        if here != plugin.content:
            raise UserError(
                f"plug-in {plugin.where} is another version on this machine ({here}, not "
                f"{plugin.content}); install the same version everywhere"
            )
    try:
        with loading(plugin.content):
            if plugin.content in _ran:
                for add, record in _ran[plugin.content][1]:
                    add(record)
            else:
                _run(plugin)
        registered = list(_registered(plugin.content))
        if not registered:
            raise UserError("it registers nothing")
        from tune_calib.spec.recipe import refuse_unknown_settings  # it loads all slots

        for dataset in DATASETS.of(plugin.content):
            refuse_unknown_settings(dataset.quick.settings if dataset.quick else {})
        for metric in METRICS.of(plugin.content):
            if metric.compute is None:
                raise UserError(f"metric {metric.name!r} has no `compute` function")
    except (Exception, SystemExit) as error:
        _remove(plugin.content)
        found = locate_error(error, files.__contains__)
        raise UserError(f"plug-in {found.place or plugin.where}: {found.text}") from None
    _ran[plugin.content] = plugin, registered
    _in_use[plugin.content] = plugin


def _run(plugin: Plugin) -> None:
    if plugin.source is None:
        # A module that was imported before would not register again.
        for name in [n for n in sys.modules if f"{n}.".startswith(f"{plugin.where}.")]:
            del sys.modules[name]
        importlib.import_module(plugin.where)
        return
    # Two versions of a file are two modules; pydantic and pickle look modules up by name.
    module = ModuleType(_module_name(plugin))
    module.__file__ = plugin.where
    sys.modules[module.__name__] = module
    _install_old_paths()
    exec(compile(plugin.source, plugin.where, "exec"), vars(module))
    if _functions(module):
        BACKBONES.register_family(partial(_find_backbone, plugin, module))


def _module_name(plugin: Plugin) -> str:
    return f"tune_calib_plugin_{plugin.name}_{plugin.content}"


def _functions(module: ModuleType) -> list[str]:
    """Return the functions that a file defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__
    ]


def _find_backbone(plugin: Plugin, module: ModuleType, name: str) -> BackboneInfo | None:
    """Return the backbone ``FILE.FUNCTION`` of a file; None for other names."""
    file, _, function = name.rpartition(".")
    if file != plugin.name or function not in _functions(module):
        return None
    # Only now, since it imports torch.
    own: Any = importlib.import_module("tune_calib.models.own")
    record: BackboneInfo = own.record(name, vars(module)[function])
    return record


def _registered(content: str) -> Iterator[tuple[Any, Any]]:
    for registry in REGISTRIES:
        yield from ((registry.register, record) for record in registry.of(content))
        yield from ((registry.register_family, rule) for rule in registry.families_of(content))


_SLOTS = tuple(f"spec.slots.{name}" for name in ("base", "data", "network", "head", "posthoc"))
_MOVED = {
    "data.constants": ("spec.datasets",),
    "ladder": ("spec.ladder",),
    "models.backbones.he": ("models.backbones.small",),
    "models.backbones.papers": ("models.backbones.timm_cifar",),
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
"""Old names of modules, with the modules that now have their contents: stored sources of plug-ins
cannot be rewritten."""

_KEPT = ("registry", "results", "spec")  # modules with these names still exist


def _install_old_paths() -> None:
    """Make imports from old paths work; modules are loaded when they are used."""
    for old, targets in _MOVED.items():
        name = f"tune_calib.{old}"
        if old in _KEPT:
            module = importlib.import_module(name)
        else:
            module = sys.modules.setdefault(name, ModuleType(name))
            module.__path__ = []
        vars(module).setdefault("__getattr__", partial(_find_moved, name, targets))


def _find_moved(name: str, targets: tuple[str, ...], attribute: str) -> Any:
    for target in () if attribute.startswith("__") else targets:
        package = "" if target.startswith("analysis.") else "tune_calib."
        module = importlib.import_module(f"{package}{target}")
        if hasattr(module, attribute):
            return getattr(module, attribute)
    raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
