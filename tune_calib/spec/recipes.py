"""The built-in recipes, which are listed in ``recipes.yaml``."""

from pathlib import Path

import yaml

from tune_calib.spec.recipe import RECIPES, Recipe
from tune_calib.spec.yaml_text import LOADER


class _Loader(LOADER):  # type: ignore[misc]
    """Reads lists as tuples, since records are immutable."""


_Loader.add_constructor(
    "tag:yaml.org,2002:seq", lambda loader, node: tuple(loader.construct_sequence(node, deep=True))
)
_TEXT = Path(__file__).with_suffix(".yaml").read_text("utf-8")
for _name, _keys in yaml.load(_TEXT, _Loader).items():
    RECIPES.register(Recipe(name=_name, **_keys))
