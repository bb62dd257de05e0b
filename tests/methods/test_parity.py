"""Every vector of the authors' programs that the project claims to have, compared.

Vectors lie in ``tests/parity`` and in the directories of ``PARITY_DIR``.
"""

import importlib
import json
import os
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tests.parity_compare
from tests.parity_compare.metrics import COMPARERS as METRIC_COMPARERS
from tune_calib.spec.methods import METHODS

OPEN = Path(__file__).parents[1] / "parity"
DIRECTORIES = [OPEN, *map(Path, filter(None, os.environ.get("PARITY_DIR", "").split(os.pathsep)))]
VECTORS = sorted(path for folder in DIRECTORIES for path in folder.rglob("*.json"))


def comparers() -> dict[str, Callable[[dict[str, Any]], None]]:
    found: dict[str, Callable[[dict[str, Any]], None]] = {}
    for module in pkgutil.iter_modules(tests.parity_compare.__path__):
        found |= importlib.import_module(f"tests.parity_compare.{module.name}").COMPARERS
    return found


COMPARERS = comparers()
CASES: dict[str, list[Path]] = {}
for _path in VECTORS:
    CASES.setdefault(json.loads(_path.read_text())["method"], []).append(_path)


@pytest.mark.every_case
@pytest.mark.parametrize("method", list(CASES))
def test_methods_equal_the_vectors_of_the_authors(method, subtests):
    if method not in COMPARERS and method not in METHODS:
        pytest.skip(f"{method} is not in the project")
    assert method in COMPARERS, "in the project, but nothing compares its vectors"
    for path in CASES[method]:
        with subtests.test(path.name):
            COMPARERS[method](json.loads(path.read_text()))


def test_the_public_vectors_exist():
    methods = [json.loads(path.read_text())["method"] for path in OPEN.glob("*.json")]
    assert len(methods) == 195
    assert sum(method in METRIC_COMPARERS for method in methods) == 60


@pytest.mark.parametrize("directory", DIRECTORIES[1:], ids=str)
def test_a_directory_that_was_named_holds_vectors(directory):
    assert list(directory.rglob("*.json"))
