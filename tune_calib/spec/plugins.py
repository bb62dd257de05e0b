"""Plug-ins: files and modules of a user that register methods, spaces, ladders and so on.

A plug-in is an ordinary Python file that imports ``tune_calib`` and registers records. Its content
hash is its identity and part of each slot that it fills in a spec, so that networks of two versions
of a file are never confused. The hash covers the parts of a plug-in too: modules of the user's own
that it imports, and the files in its ``DATA_FILES``.

Files are sent to workers as text, since they need not share a file system. A module must be
importable, in the same version, wherever it is used, and so must the parts of a plug-in.
"""

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tune_calib.errors import RefusedError, UserError, locate_error
from tune_calib.paths import checksum_of, expand_path, refuse_special
from tune_calib.registry import REGISTRIES, loading
from tune_calib.spec.backbones import BACKBONES, BackboneInfo
from tune_calib.spec.code import find_imports, find_own_modules, list_changes
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.metrics import METRICS
from tune_calib.text import option_words

GROUP = "tune_calib.plugins"
"""Group of entry points of installed packages; they name modules."""

LARGEST = 1_000_000

_PROGRAM = Path(__file__).parents[1]

_FILE = "./"
"""Prefix of the names of parts that are files and not modules."""


@dataclass(frozen=True)
class Plugin:
    """A version of a plug-in."""

    name: str  # name of its file without .py, or of its module
    content: str  # 16 hexadecimal digits of the SHA-256 of its text, and of its parts
    where: str  # path of its file, or its module
    source: str | None = None  # text of its file; None for a module
    # Digests of its parts by name; None before it is run, when ``content`` covers only its text.
    parts: Mapping[str, str] | None = None

    def plain(self) -> dict[str, Any]:
        """Return plain JSON values, for a worker."""
        return asdict(self)


_in_use: dict[str, Plugin] = {}  # by content
# All that ran, with the records that they registered, so that each of them runs once.
_ran: dict[str, tuple[Plugin, list[tuple[Any, Any]]]] = {}
_paths: dict[str, dict[str, Path]] = {}  # of the parts of all that ran
# Modules of the user's own that were not loaded by a plug-in, and that a plug-in loaded in a trial.
_foreign: set[str] = set()
_late: set[str] = set()


def read(name: str, folder: Path = Path()) -> Plugin:
    """Read a plug-in: a file ending in ``.py``, relative to a folder, or a module."""
    if name.endswith(".py") or "/" in name:
        plugin = _read_file(folder / expand_path(name))
    else:
        plugin = Plugin(name, _digest_module(name)[0], name)
    for loaded_plugin, _ in _ran.values():
        parts = _digest_parts(_paths[loaded_plugin.content])
        if replace(plugin, content=combine(plugin.content, parts), parts=parts) == loaded_plugin:
            return loaded_plugin
    return plugin


def combine(content: str, parts: Mapping[str, str]) -> str:
    """Return the content hash of a plug-in from that of its text and the digests of its parts."""
    if not parts:
        return content
    texts = ((name, digest.encode()) for name, digest in sorted(parts.items()))
    return _digest([(content, b""), *texts])


def _digest_parts(paths: Mapping[str, Path]) -> dict[str, str]:
    digests = dict.fromkeys(paths, "")
    for name, path in paths.items():
        if path.is_file():
            digests[name] = checksum_of(path)[:16]
    return digests


def paths_of(plugin: Plugin) -> Mapping[str, Path]:
    """Return the paths of the parts of a plug-in that ran in this process, by name."""
    return _paths[plugin.content]


def imports_of(content: str | None) -> set[str]:
    """Return the names that a plug-in in use and its modules import."""
    if content is None or content not in _in_use:
        return set()
    plugin, files = _in_use[content], set(map(str, _paths[content].values()))
    if plugin.source is None:
        files |= _digest_module(plugin.where)[1]
    names = find_imports(ast.walk(ast.parse(plugin.source or "")))
    for path in map(Path, files):
        if path.suffix == ".py":
            names |= find_imports(ast.walk(ast.parse(path.read_bytes())))
    return names


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


def _digest_module(name: str) -> tuple[str, frozenset[str]]:
    """Return the content hash and the files of a module's package, without importing it."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:count]))
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            break
        if spec.origin and spec.origin.endswith(".py"):
            top = Path(spec.origin)
            files = [top]
            if spec.submodule_search_locations and _PROGRAM in top.parents:
                continue  # rows record the code of the program
            if spec.submodule_search_locations:
                # The whole package, since the module may import the rest of it.
                files = sorted(top.parent.rglob("*.py"))
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
    installed_modules = {plugin.where for plugin in installed()}
    options = []
    for plugin in in_use():
        if plugin.where not in installed_modules:
            options.append(("plugin", plugin.where))
    return option_words(options)


def run_before(contents: Iterable[str]) -> tuple[Plugin, ...]:
    """Return the plug-ins with these contents that this process ran because its user named them."""
    return tuple(_ran[content][0] for content in contents if content in _ran)


def used(contents: Iterable[str | None]) -> tuple[Plugin, ...]:
    """Return the plug-ins in use with one of these contents and those that compute a metric."""
    wanted = {*contents, *map(METRICS.origin, METRICS)}
    return tuple(plugin for plugin in in_use() if plugin.content in wanted)


def backbone(name: str, folder: Path = Path()) -> str:
    """Return the registry key of a backbone, registering ``FILE.py:FUNCTION`` if need be.

    The function takes no arguments and returns a torch module; the key is ``FILE.FUNCTION``.
    """
    path, colon, function = name.rpartition(":")
    if not colon or not path.endswith(".py"):
        return name
    plugin = read(str(folder / expand_path(path)))
    use([*in_use(), plugin])
    plugin = next(loaded for loaded in in_use() if loaded.name == plugin.name)
    key = f"{plugin.name}.{function}"
    if BACKBONES.origin(key) != plugin.content:
        functions = ", ".join(_functions(sys.modules[_module_name(plugin)])) or "none"
        raise UserError(f"{path} has no function {function!r}; it has: {functions}")
    return key


def load(*names: str, folder: Path = Path()) -> None:
    """Register files or modules in addition to the plug-ins in use."""
    use([*in_use(), *(read(name, folder) for name in names)])


def use(plugins: Iterable[Plugin], in_trial: bool = False) -> None:
    """Register exactly these plug-ins in this process, in place of any others.

    A trial uses those of its run; elsewhere, no plug-in loaded the modules that are new here.
    """
    wanted = {plugin.content: plugin for plugin in plugins}
    names = Counter(map(attrgetter("name"), wanted.values()))
    for plugin in wanted.values():
        if names[plugin.name] > 1:
            raise UserError(f"two plug-ins have the name {plugin.name}; rename {plugin.where}")
    for content in list(_in_use):
        if content not in wanted:
            _remove(content)
    for content, plugin in wanted.items():
        if content not in _in_use:
            _register(plugin)
    if not in_trial:
        _note_foreign(find_own_modules())
    parts: dict[str, str] = {}
    for plugin in in_use():
        for name, digest in (plugin.parts or {}).items():
            if not name.startswith(_FILE) and parts.setdefault(name, digest) != digest:
                raise UserError(
                    f"plug-in {plugin.name} and another one import different modules with the name "
                    f"{name}; rename one of them"
                )


def _note_foreign(names: Iterable[str]) -> None:
    loaded = set().union(*_paths.values())
    _foreign.update(set(names) - _late - loaded)


def refuse_late() -> None:
    """Refuse results of modules and files that the content hashes of plug-ins do not cover."""
    if not _in_use:
        return
    names = " or ".join(map(attrgetter("name"), in_use()))
    covered: list[tuple[str, Path]] = []
    for plugin in in_use():
        covered += _paths[plugin.content].items()
    for name, path in find_own_modules().items():
        if path.is_file() and name not in _foreign and (name, path) not in covered:
            _late.add(name)
            raise RefusedError(
                f"plug-in {names} imported {name} ({path}) only during a trial, whose identity "
                "does not cover it; import it at the top of the plug-in"
            )
    for plugin in in_use():
        parts = plugin.parts or {}
        paths = _paths[plugin.content].items()
        files = _digest_parts({name: path for name, path in paths if name.startswith(_FILE)})
        if changed := list_changes(parts, {**parts, **files}):
            raise RefusedError(f"{changed} of plug-in {plugin.name} changed during the run")


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Remove the plug-ins registered in the block when it ends."""
    outer_plugins = in_use()
    try:
        yield
    finally:
        use(outer_plugins)


def _remove(content: str) -> None:
    for registry in REGISTRIES:
        registry.remove(content)
    _in_use.pop(content, None)


def _register(plugin: Plugin) -> None:
    """Run a plug-in, or register the records of an earlier run again; all of them or none."""
    files = frozenset([plugin.where])
    if plugin.source is None:
        local_content, files = _digest_module(plugin.where)
        if combine(local_content, plugin.parts or {}) != plugin.content:
            raise RefusedError(
                f"plug-in {plugin.where} is another version on this machine ({local_content}, not "
                f"{plugin.content}); install the same version everywhere"
            )
    named = plugin
    try:
        with loading(plugin.content):
            if _has_run(plugin):
                for add, record in _ran[plugin.content][1]:
                    add(record)
                plugin = replace(plugin, parts=_ran[plugin.content][0].parts)
            else:
                plugin = _run(plugin, files)
        registered = list(_registered(named.content))
        if not registered:
            raise UserError("it registers nothing")
        if plugin.content != named.content:
            _remove(named.content)
            with loading(plugin.content):
                for add, record in registered:
                    add(record)
            registered = list(_registered(plugin.content))
        from tune_calib.spec.recipe import refuse_unknown_settings  # it loads all slots

        for dataset in DATASETS.of(plugin.content):
            if dataset.quick:
                refuse_unknown_settings(dataset.quick.settings)
        for metric in METRICS.of(plugin.content):
            if metric.compute is None and not metric.module:
                raise UserError(f"metric {metric.name!r} has no `compute` function")
    except (Exception, SystemExit) as error:
        _remove(named.content)
        _remove(plugin.content)
        located = locate_error(error, lambda path: path in files)
        message = f"plug-in {located.place or plugin.where}: {located.text}"
        if isinstance(error, RefusedError):
            raise RefusedError(message) from None
        raise UserError(message) from None
    _ran[plugin.content] = plugin, registered
    _in_use[plugin.content] = plugin


def _has_run(plugin: Plugin) -> bool:
    """Return whether this process ran a plug-in, and its modules are still those of their names."""
    if plugin.content not in _ran:
        return False
    parts = _paths[plugin.content].items()
    modules = {part for part in parts if not part[0].startswith(_FILE)}
    return modules <= find_own_modules().items()


def _run(plugin: Plugin, files: frozenset[str]) -> Plugin:
    # All of the user's own modules are loaded again: this shows which ones belong to the plug-in,
    # and that they are those of the disk. Python may mistake old bytecode for that of a new file.
    imports = find_imports(ast.walk(ast.parse(plugin.source or "", plugin.where)))
    others = {name: sys.modules.pop(name) for name in find_own_modules()}
    _note_foreign(others)
    importlib.invalidate_caches()
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        module = _load_module(plugin) if plugin.source is None else _execute_file(plugin)
        paths = {}
        for name, path in find_own_modules().items():
            if path.is_file() and str(path) not in files:
                paths[name] = path
        paths |= _find_data_files(module)
    finally:
        sys.dont_write_bytecode = writes
        # A package is never made of modules of two loads, and what it may import is loaded again.
        tops = {name.partition(".")[0] for name in [*find_own_modules(), *imports]}
        for name, loaded_module in others.items():
            if name.partition(".")[0] not in tops:
                sys.modules[name] = loaded_module
    parts = _digest_parts(paths)
    if plugin.parts is not None and (changed := list_changes(plugin.parts, parts)):
        raise RefusedError(
            f"{changed} differs from the version with which the run began, or was changed since; "
            "give every node the same files and repeat the run"
        )
    content = plugin.content
    if plugin.parts is None:
        content = combine(content, parts)
    _paths[content] = paths
    return replace(plugin, content=content, parts=parts)


def _find_data_files(module: ModuleType) -> dict[str, Path]:
    names = getattr(module, "DATA_FILES", ())
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UserError("DATA_FILES must be a list of names of files")
    paths = {f"{_FILE}{name}": Path(str(module.__file__)).parent / name for name in names}
    for path in paths.values():
        if not path.is_file():
            raise UserError(f"DATA_FILES: there is no file {path}")
    return paths


def _load_module(plugin: Plugin) -> ModuleType:
    # A module that was imported before would not register again.
    for name in list(sys.modules):
        if f"{name}.".startswith(f"{plugin.where}."):
            del sys.modules[name]
    return importlib.import_module(plugin.where)


def _execute_file(plugin: Plugin) -> ModuleType:
    # Two versions of a file are two modules; pydantic and pickle look modules up by name.
    module = ModuleType(_module_name(plugin))
    module.__file__ = plugin.where
    sys.modules[module.__name__] = module
    exec(compile(plugin.source or "", plugin.where, "exec"), vars(module))
    if _functions(module):
        BACKBONES.register_family(partial(_find_backbone, plugin, module))
    return module


def _module_name(plugin: Plugin) -> str:
    return f"tune_calib_plugin_{plugin.name}_{plugin.content}"


def _functions(module: ModuleType) -> list[str]:
    names = []
    for name, value in vars(module).items():
        if isinstance(value, FunctionType) and value.__module__ == module.__name__:
            names.append(name)
    return names


def _find_backbone(plugin: Plugin, module: ModuleType, name: str) -> BackboneInfo | None:
    file, _, function = name.rpartition(".")
    if file != plugin.name or function not in _functions(module):
        return None
    # Only now, since it imports torch.
    models: Any = importlib.import_module("tune_calib.models.user_backbone")
    build = partial(models.build, name=name, function=vars(module)[function])
    return BackboneInfo(name, f"{name} (own)", build, has_stages=False)


def _registered(content: str) -> Iterator[tuple[Any, Any]]:
    for registry in REGISTRIES:
        for record in registry.of(content):
            yield registry.register, record
        for rule in registry.families_of(content):
            yield registry.register_family, rule
