"""Test that the files around the program agree with it: workflows, hooks, templates, Makefile."""

import ast
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def required(*extras: str) -> set[str]:
    """Return the names of the packages that the program requires, and of those that they require.

    With extras, also theirs. What is not installed is named without what it requires.
    """
    texts = [*PROJECT["dependencies"]]
    for extra in extras:
        texts += PROJECT["optional-dependencies"][extra]
    names, left = set(), [(Requirement(text), "") for text in texts]
    while left:
        requirement, extra = left.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        wanted = {(name, extra) for extra in ("", *requirement.extras)}
        marker = requirement.marker
        if (marker and not marker.evaluate({"extra": extra})) or wanted <= names:
            continue
        names |= wanted
        try:
            further = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        left += [(Requirement(text), extra) for text in further for _, extra in wanted]
    return {name for name, _ in names}


def imports(path: Path) -> set[str]:
    """Return the packages that a file imports anywhere."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names |= {name.value for name in node.args if isinstance(name, ast.Constant)}
    return {name.partition(".")[0] for name in names}


FOR_USERS = sorted(PROJECT["optional-dependencies"].keys() - {"dev", "docs", "services", "browser"})


def test_the_program_imports_what_it_requires_or_names_in_an_extra():
    allowed = required(*FOR_USERS)
    owners_by_module = metadata.packages_distributions()
    packages = ("tune_calib", "analysis", "ablations", "search_spaces")
    foreign = []
    for path in sorted(path for package in packages for path in (ROOT / package).rglob("*.py")):
        for name in sorted(imports(path) - sys.stdlib_module_names - {*packages}):
            owners = {
                re.sub(r"[-_.]+", "-", owner).lower()
                for owner in owners_by_module.get(name, [name])
            }
            if not owners & allowed:
                foreign.append(f"{path.relative_to(ROOT)}: {name}")
    assert foreign == []
