"""Plug-ins: files and modules of a user that register methods, spaces, ladders and so on.

A plug-in is an ordinary Python file that imports ``tune_calib`` and registers records. Its content
hash is its identity and part of each slot that it fills in a spec, so that networks of two versions
of a file are never confused. The hash covers the parts of a plug-in too: modules beside it or on
the user's import path that it imports, and the files in its ``DATA_FILES``.

Files are sent to workers as text, since they need not share a file system, and with the folders
from which they import. A module must be importable, in the same version, wherever it is used, and
so must the parts of a plug-in.
"""

import ast
import contextlib
import importlib
import importlib.util
import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tune_calib.errors import RefusedError, UserError, locate_error
from tune_calib.files.hashes import checksum_of, hash_bytes
from tune_calib.files.paths import expand_path
from tune_calib.registry import REGISTRIES, loading
from tune_calib.spec.backbones import BACKBONES, BackboneInfo
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.metrics import METRICS
from tune_calib.text import option_words

GROUP = "tune_calib.plugins"
"""Group of entry points of installed packages; they name modules."""

PACKAGES = ("tune_calib", "search_spaces", "ablations", "analysis")
"""The packages of the program."""

_PROGRAM = Path(__file__).parents[1]
_STANDARD = {os.path.dirname(os.__file__), *map(sysconfig.get_path, ("stdlib", "platstdlib"))}

_FILE = "./"
"""Prefix of the names of parts that are files and not modules."""


@dataclass(frozen=True)
class Plugin:
    """A version of a plug-in."""

    name: str  # name of its file without .py, or of its module
    content: str  # 16 hexadecimal digits of the SHA-256 of its text, and of its parts
    where: str  # path of its file, or its module
    source: str | None = None  # text of its file; None for a module
    parts: Mapping[str, str] = field(default_factory=dict)  # digests of its parts by name
    folders: tuple[str, ...] = ()  # from which it imports

    def plain(self) -> dict[str, Any]:
        """Return plain JSON values, for a worker."""
        return asdict(self)


@dataclass
class _Loaded:
    """The plug-ins of this process, by content."""

    in_use: dict[str, Plugin] = field(default_factory=dict)
    # All that ran, with the records that they registered, so that each of them runs once.
    ran: dict[str, tuple[Plugin, list[tuple[Any, Any]]]] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)  # added to ``sys.path`` for those in use


_loaded = _Loaded()


def read(name: str, folder: Path = Path()) -> Plugin:
    """Read a plug-in: a file ending in ``.py``, relative to a folder, or a module."""
    folders = _list_own_folders()
    if name.endswith(".py") or "/" in name:
        plugin = _read_file(folder / expand_path(name))
        folders.insert(0, str(Path(plugin.where).parent))
    else:
        plugin = Plugin(name, _digest_module(name)[0], name)
    plugin = replace(plugin, folders=tuple(dict.fromkeys(folders)))
    parts = _digest_parts(plugin)
    return replace(plugin, content=_combine(plugin.content, parts), parts=parts)


def _list_own_folders() -> list[str]:
    """List the folders of the import path but those of Python and of installed packages."""
    standard = [Path(folder).resolve() for folder in _STANDARD]
    folders = []
    for folder in map(Path.resolve, map(Path, sys.path)):
        is_installed = {"site-packages", "dist-packages"}.intersection(folder.parts)
        if folder.is_dir() and not is_installed and not any(map(folder.is_relative_to, standard)):
            folders.append(str(folder))
    return folders


def _combine(content: str, parts: Mapping[str, str]) -> str:
    """Return the content hash of a plug-in from that of its text and the digests of its parts."""
    if not parts:
        return content
    texts = ((name, digest.encode()) for name, digest in sorted(parts.items()))
    return _digest([(content, b""), *texts])


def _digest_parts(plugin: Plugin) -> dict[str, str]:
    return {name: checksum_of(path)[:16] for name, path in find_parts(plugin).items()}


def find_parts(plugin: Plugin) -> dict[str, Path]:
    """Find the files of the parts of a plug-in by name: modules, and files named ``./FILE``."""
    parts: dict[str, Path] = {}
    files: frozenset[str] = frozenset()
    texts: list[tuple[str, str | bytes]] = [(plugin.where, plugin.source or "")]
    if plugin.source is None:
        files = _digest_module(plugin.where)[1]
        texts = [(path, Path(path).read_bytes()) for path in sorted(files)]
    remaining: list[tuple[str, ast.Module]] = []  # packages, and what their modules contain
    for path, text in texts:
        remaining.append(("", _parse(text)))
        parts |= _find_data_files(remaining[-1][1], Path(path))
    while remaining:
        package, tree = remaining.pop()
        for name in _list_imports(tree, package):
            module = _find_module(name, plugin.folders)
            if module is None or name in parts or str(module) in files:
                continue
            parts[name] = module
            is_package = module.stem == "__init__"
            package_of_module = name if is_package else name.rpartition(".")[0]
            remaining.append((package_of_module, _parse(module.read_bytes())))
    return parts


def _parse(text: str | bytes) -> ast.Module:
    """Parse a text; one that is no Python imports nothing, and its error comes when it is run."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _list_imports(tree: ast.Module, package: str) -> set[str]:
    """List the modules that the code of a package may import at any time, and their packages."""
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = [node.module] if node.module else []
            if node.level:
                levels = package.split(".")
                parents[:0] = levels[: len(levels) - node.level + 1]
            imported.update(".".join([*parents, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            constants = (part for part in node.args[:1] if isinstance(part, ast.Constant))
            imported.update(str(constant.value) for constant in constants)
    names: set[str] = set()
    for name in imported:
        parts = name.split(".")
        if parts[0] not in PACKAGES and parts[0] not in sys.stdlib_module_names:
            names.update(".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return names


def _find_module(name: str, folders: Iterable[str]) -> Path | None:
    """Find the file of a module; a package without one of its own has none."""
    for folder in folders:
        stem = os.path.join(folder, *name.split("."))
        for path in (Path(stem, "__init__.py"), Path(f"{stem}.py")):
            if path.is_file():
                return path
    return None


def _find_data_files(tree: ast.Module, path: Path) -> dict[str, Path]:
    """Find the files that a plug-in lists in ``DATA_FILES``."""
    names: Any = ()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DATA_FILES":
            with contextlib.suppress(ValueError):
                names = ast.literal_eval(node.value)
                continue
            names = None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UserError(f"plug-in {path}: DATA_FILES must be a list of names of files")
    files = {f"{_FILE}{name}": path.parent / name for name in names}
    for file in files.values():
        if not file.is_file():
            raise UserError(f"plug-in {path}: DATA_FILES: there is no file {file}")
    return files


def _read_file(path: Path) -> Plugin:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read plug-in {path}: {error.strerror}") from None
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
    return hash_bytes(*(f"{name} {len(text)}\n".encode() + text for name, text in texts))[:16]


def installed() -> tuple[Plugin, ...]:
    """Return the plug-ins of installed packages."""
    return tuple(read(point.module) for point in entry_points(group=GROUP))


def in_use() -> tuple[Plugin, ...]:
    """Return the plug-ins that are registered in this process."""
    return tuple(_loaded.in_use.values())


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
    return tuple(_loaded.ran[content][0] for content in contents if content in _loaded.ran)


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
    key = f"{plugin.name}.{function}"
    if BACKBONES.origin(key) != plugin.content:
        functions = ", ".join(_functions(sys.modules[_module_name(plugin)])) or "none"
        raise UserError(f"{path} has no function {function!r}; it has: {functions}")
    return key


def load(*names: str, folder: Path = Path()) -> None:
    """Register files or modules in addition to the plug-ins in use."""
    use([*in_use(), *(read(name, folder) for name in names)])


def use(plugins: Iterable[Plugin]) -> None:
    """Register exactly these plug-ins in this process, in place of any others."""
    wanted = {plugin.content: plugin for plugin in plugins}
    names = Counter(map(attrgetter("name"), wanted.values()))
    parts: dict[str, str] = {}
    for plugin in wanted.values():
        if names[plugin.name] > 1:
            raise UserError(f"two plug-ins have the name {plugin.name}; rename {plugin.where}")
        for name, digest in _modules_of(plugin).items():
            if parts.setdefault(name, digest) != digest:
                raise UserError(
                    f"plug-in {plugin.name} and another one import different modules with the name "
                    f"{name}; rename one of them"
                )
    for content in list(_loaded.in_use):
        if content not in wanted:
            _remove(content)
    _set_folders(wanted.values())
    for content, plugin in wanted.items():
        if content not in _loaded.in_use:
            _register(plugin)


def _modules_of(plugin: Plugin) -> dict[str, str]:
    return {name: part for name, part in plugin.parts.items() if not name.startswith(_FILE)}


def _set_folders(plugins: Iterable[Plugin]) -> None:
    """Let Python import from the folders of these plug-ins, and no longer from those of others."""
    for folder in _loaded.folders:
        with contextlib.suppress(ValueError):  # others may have removed it
            sys.path.remove(folder)
    _loaded.folders.clear()
    for plugin in plugins:
        for folder in plugin.folders:
            if folder not in [*_loaded.folders, *sys.path]:
                _loaded.folders.append(folder)
    sys.path[:0] = _loaded.folders


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
    _loaded.in_use.pop(content, None)


def _register(plugin: Plugin) -> None:
    """Run a plug-in, or register the records of an earlier run again; all of them or none."""
    files = frozenset([plugin.where])
    if plugin.source is None:
        files = _digest_module(plugin.where)[1]
    try:
        with loading(plugin.content):
            loaded: dict[str, str] = {}  # the modules of each name that were imported last
            for other, _ in _loaded.ran.values():
                loaded |= _modules_of(other)
            if plugin.content in _loaded.ran and _modules_of(plugin).items() <= loaded.items():
                for add, record in _loaded.ran[plugin.content][1]:
                    add(record)
            else:
                _run(plugin, files)
        registered = list(_registered(plugin.content))
        if not registered:
            raise UserError("it registers nothing")
        from tune_calib.spec.recipe import refuse_unknown_settings  # it loads all slots

        for dataset in DATASETS.of(plugin.content):
            if dataset.quick:
                refuse_unknown_settings(dataset.quick.settings)
        for metric in METRICS.of(plugin.content):
            if metric.compute is None and not metric.module:
                raise UserError(f"metric {metric.name!r} has no `compute` function")
    except (Exception, SystemExit) as error:
        _remove(plugin.content)
        located = locate_error(error, lambda path: path in files)
        message = f"plug-in {located.place or plugin.where}: {located.text}"
        if isinstance(error, RefusedError):
            raise RefusedError(message) from None
        raise UserError(message) from None
    _loaded.ran.pop(plugin.content, None)  # the last one that ran is the last one there
    _loaded.ran[plugin.content] = plugin, registered
    _loaded.in_use[plugin.content] = plugin


def _run(plugin: Plugin, files: frozenset[str]) -> None:
    content = plugin.content
    if plugin.source is None:
        content = _combine(_digest_module(plugin.where)[0], _digest_parts(plugin))
    if content != plugin.content or _digest_parts(plugin) != dict(plugin.parts):
        raise RefusedError(
            "it, or a module or file that it uses, differs from the version with which the run "
            "began; give every node the same files and repeat the run"
        )
    # Loaded modules of these names or files may be those of another plug-in, or from before a
    # change; and a module that was imported before would not register again.
    modules = _modules_of(plugin)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if name in modules or (plugin.source is None and file in files):
            del sys.modules[name]
    importlib.invalidate_caches()
    # Python may mistake old bytecode for that of a new file.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        if plugin.source is None:
            importlib.import_module(plugin.where)
        else:
            _execute_file(plugin)
    finally:
        sys.dont_write_bytecode = writes


def _execute_file(plugin: Plugin) -> None:
    # Two versions of a file are two modules; pydantic and pickle look modules up by name.
    module = ModuleType(_module_name(plugin))
    module.__file__ = plugin.where
    sys.modules[module.__name__] = module
    exec(compile(plugin.source or "", plugin.where, "exec"), vars(module))
    if _functions(module):
        BACKBONES.register_family(partial(_find_backbone, plugin, module))


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
