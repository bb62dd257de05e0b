"""Plug-ins: files and modules of a user that register methods, spaces, ladders and so on.

A plug-in is an ordinary Python file that imports ``tune_calib`` and registers records. Its content
hash is its identity and part of each slot that it fills in a spec, so that networks of two versions
of a file are never confused. The hash covers the modules beside it that it imports.

Files are sent to workers as text, since they need not share a file system. A module must be
importable, in the same version, wherever it is used.
"""

import ast
import contextlib
import importlib
import importlib.util
import sys
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
from tune_calib.files.documents import checksum_of, hash_bytes
from tune_calib.files.paths import expand_path
from tune_calib.registry import REGISTRIES, loading
from tune_calib.spec.backbones import BACKBONES, BackboneInfo
from tune_calib.spec.metrics import METRICS
from tune_calib.text import option_words

PACKAGES = ("tune_calib", "search_spaces", "ablations", "analysis")  # of the program
_PROGRAM = Path(__file__).parents[1]


@dataclass(frozen=True)
class Plugin:
    """A version of a plug-in."""

    name: str  # name of its file without .py, or of its module
    content: str  # 16 hexadecimal digits of the SHA-256 of its text, and of its parts
    where: str  # path of its file, or its module
    source: str | None = None  # text of its file; None for a module
    parts: Mapping[str, str] = field(default_factory=dict)  # digests of modules that it imports

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _Loaded:
    in_use: dict[str, Plugin] = field(default_factory=dict)
    named: dict[str, Plugin] = field(default_factory=dict)  # all that ran
    folders: list[str] = field(default_factory=list)  # added to ``sys.path`` for those in use


_loaded = _Loaded()


def read(name: str, folder: Path = Path()) -> Plugin:
    """Read a plug-in: a file ending in ``.py``, relative to a folder, or a module."""
    if not name.endswith(".py") and "/" not in name:
        return _digest(Plugin(name, "", name))
    path = folder / expand_path(name)
    try:
        source = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"plug-in {path} cannot be read as a text file: {error}") from None
    return _digest(Plugin(path.stem, "", str(path.resolve()), source))


def _digest(plugin: Plugin) -> Plugin:
    if plugin.source is None:
        files = _find_files(plugin.where)
        texts = {name: file.read_bytes() for name, file in files.items()}
        return replace(plugin, content=_combine(texts))
    file, text = Path(plugin.where), plugin.source.encode()
    content, parts = _combine({file.suffix: text}), dict[str, str]()
    remaining = [("", text)]  # packages, and texts of their modules
    while remaining:
        package, text = remaining.pop()
        for name in _list_imports(text, package):
            stem = file.parent.joinpath(*name.split("."))
            for module in (stem / "__init__.py", Path(f"{stem}.py")):
                if name not in parts and module != file and module.is_file():
                    parts[name] = checksum_of(module)[:16]
                    package = name if module.parent == stem else name.rpartition(".")[0]
                    remaining.append((package, module.read_bytes()))
    if parts:
        content = _combine({content: b"", **{name: parts[name].encode() for name in sorted(parts)}})
    return replace(plugin, content=content, parts=parts)


def _combine(texts: Mapping[str, bytes]) -> str:
    parts = (f"{name} {len(text)}\n".encode() + text for name, text in texts.items())
    return hash_bytes(*parts)[:16]


def _list_imports(text: bytes, package: str) -> set[str]:
    """List the modules that the code of a package may import at any time, and their packages."""
    names: set[str] = set()
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):  # until it is run
        for node in ast.walk(ast.parse(text)):
            parents: list[str] = []
            if isinstance(node, ast.ImportFrom):
                parents = [node.module] if node.module else []
                if node.level:
                    levels = package.split(".")
                    parents[:0] = levels[: len(levels) - node.level + 1]
            elif not isinstance(node, ast.Import):
                continue
            for alias in node.names:
                parts = ".".join([*parents, alias.name]).split(".")
                if parts[0] not in PACKAGES and parts[0] not in sys.stdlib_module_names:
                    names.update(".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return names


def _find_files(name: str) -> dict[str, Path]:
    """Find the files of a module's package by name, without importing the module."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:count]))
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            break
        top = Path(spec.origin or "")
        if top.suffix == ".py" and not spec.submodule_search_locations:
            return {top.name: top}
        if top.suffix == ".py" and _PROGRAM not in top.parents:  # rows record its version
            # The whole package, since the module may import the rest of it.
            files = sorted(top.parent.rglob("*.py"))
            return {str(file.relative_to(top.parent)): file for file in files}
    raise UserError(f"plug-in {name!r}: there is no such module; the name of a file ends in .py")


def installed() -> tuple[Plugin, ...]:
    return tuple(read(point.module) for point in entry_points(group="tune_calib.plugins"))


def in_use() -> tuple[Plugin, ...]:
    return tuple(_loaded.in_use.values())


def as_options() -> list[str]:
    """Return the options that load the plug-ins in use again, except installed ones."""
    modules = {plugin.where for plugin in installed()}
    places = (plugin.where for plugin in in_use() if plugin.where not in modules)
    return option_words(("plugin", place) for place in places)


def run_before(contents: Iterable[str]) -> tuple[Plugin, ...]:
    """Return the plug-ins with these contents that this process ran because its user named them."""
    return tuple(_loaded.named[content] for content in contents if content in _loaded.named)


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
        raise UserError(f"{path} defines no function {function!r}")
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
        for name, digest in plugin.parts.items():
            if parts.setdefault(name, digest) != digest:
                raise UserError(
                    f"plug-in {plugin.name} and another one import different modules with the name "
                    f"{name}; rename one"
                )
    for content in _loaded.in_use.keys() - wanted.keys():
        _remove(content)
    for folder in _loaded.folders:
        with contextlib.suppress(ValueError):  # others may have removed it
            sys.path.remove(folder)
    files = (plugin.where for plugin in wanted.values() if plugin.source is not None)
    folders = dict.fromkeys(str(Path(file).parent) for file in files)
    _loaded.folders = [folder for folder in folders if folder not in sys.path]
    sys.path[:0] = _loaded.folders
    for content, plugin in wanted.items():
        if content not in _loaded.in_use:
            _register(plugin)


@contextlib.contextmanager
def restored() -> Iterator[None]:
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
    files = {plugin.where}
    if plugin.source is None:
        files = set(map(str, _find_files(plugin.where).values()))
    try:
        with loading(plugin.content):
            _run(plugin, files)
        if not any(registry.has(plugin.content) for registry in REGISTRIES):
            raise UserError("it registers nothing")
        for metric in METRICS.of(plugin.content):
            if metric.compute is None and not metric.module:
                raise UserError(f"metric {metric.name!r} has no `compute` function")
    except (Exception, SystemExit) as error:
        _remove(plugin.content)
        located = locate_error(error, lambda path: path in files, elsewhere=plugin.where)
        kind = RefusedError if isinstance(error, RefusedError) else UserError
        raise kind(f"plug-in {located}") from None
    _loaded.named[plugin.content] = _loaded.in_use[plugin.content] = plugin


def _run(plugin: Plugin, files: set[str]) -> None:
    here = _digest(plugin)
    if (here.content, here.parts) != (plugin.content, dict(plugin.parts)):
        raise RefusedError(
            "it, or a module that it uses, differs from the version with which the run began"
        )
    # Loaded modules of these names or files may be those of another plug-in, or from before a
    # change; and a module that was imported before would not register again.
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if name in plugin.parts or (plugin.source is None and file in files):
            del sys.modules[name]
    importlib.invalidate_caches()
    # Python may mistake old bytecode for that of a new file.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        if plugin.source is None:
            importlib.import_module(plugin.where)
            return
        # Two versions of a file are two modules; pydantic and pickle look modules up by name.
        module = ModuleType(f"tune_calib_plugin_{plugin.name}_{plugin.content}")
        module.__file__ = plugin.where
        sys.modules[module.__name__] = module
        exec(compile(plugin.source, plugin.where, "exec"), vars(module))
        functions = {}
        for name, value in vars(module).items():
            if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                functions[f"{plugin.name}.{name}"] = value
        if functions:
            BACKBONES.register_family(partial(_find_backbone, functions))
    finally:
        sys.dont_write_bytecode = writes


def _find_backbone(functions: Mapping[str, FunctionType], name: str) -> BackboneInfo | None:
    if name not in functions:
        return None
    # Only now, since it imports torch.
    models: Any = importlib.import_module("tune_calib.models.user_backbone")
    build = partial(models.build, name=name, function=functions[name])
    return BackboneInfo(name, f"{name} (own)", build, has_stages=False)
