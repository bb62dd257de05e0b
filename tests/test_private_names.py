"""Private and experimental names of other packages: each is listed here, and is still there."""

import ast
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("tune_calib", "analysis", "ablations", "search_spaces")

NAMES = {
    "ray._private.ray_constants.ENABLE_RAY_CLUSTER",
    "ray._private.state.state.get_cluster_config",
    "ray.experimental.internal_kv._internal_kv_del",
    "ray.experimental.internal_kv._internal_kv_get",
    "ray.experimental.internal_kv._internal_kv_put",
    "sklearn.utils.validation._check_feature_names",
    "sklearn.utils.validation._check_sample_weight",
    "torch._dynamo.config.patch",
    "torch._dynamo.exc.FailOnRecompileLimitHit",
    "torch._dynamo.exc.TorchDynamoException",
    "torch._foreach_add_",
    "torch._foreach_addcmul_",
    "torch._foreach_div",
    "torch._foreach_lerp_",
    "torch._foreach_mul_",
    "torch._foreach_sqrt_",
    "torch._standard_gamma",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch.utils._triton.has_triton",
}
"""Where one is used a comment says why no public name does it; ``pyproject.toml`` has bounds."""


def is_private(name: str) -> bool:
    """Whether a part of a dotted name is marked as such."""
    return any(
        part == "experimental" or (part.startswith("_") and not part.startswith("__"))
        for part in name.split(".")
    )


def names_in(path: Path) -> Iterator[str]:
    """Dotted names of other packages that a file imports or reaches through an import."""
    aliases = {}
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                aliases[each.asname or each.name.split(".")[0]] = (
                    each.name if each.asname else each.name.split(".")[0]
                )
                yield each.name
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for each in node.names:
                aliases[each.asname or each.name] = f"{node.module}.{each.name}"
                yield f"{node.module}.{each.name}"
    for node in ast.walk(tree):
        parts, inner = [], node
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name) and inner.id in aliases:
            yield ".".join([aliases[inner.id], *reversed(parts)])


def used() -> set[str]:
    """Private names of other packages in the program."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = {name for path in files for name in names_in(path)}
    own = {*PACKAGES, *sys.stdlib_module_names}
    found = {name for name in names if is_private(name) and name.split(".")[0] not in own}
    # Of a module that is imported for a name of it, that name is what counts.
    return {name for name in found if not any(each.startswith(f"{name}.") for each in found)}


def test_every_private_name_is_listed():
    assert used() == NAMES, "take a public one, or list it and say in a comment why there is none"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_listed_private_name_exists(name):
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        package = name.split(".")[0]
        pytest.fail(f"this version of {package} has moved {name} ({error}): bound the version")
