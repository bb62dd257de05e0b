"""The recipes of the program, as ``recipes.yaml`` lists them."""

from pathlib import Path

import yaml

from tune_calib.spec.recipe import RECIPES, Recipe

# The loader in C is ten times as fast, where it is installed.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT = Path(__file__).with_suffix(".yaml").read_text("utf-8")
for _name, _keys in yaml.load(_TEXT, _LOADER).items():
    _tuples = {key: tuple(_keys.pop(key, ())) for key in ("datasets", "backbones")}
    RECIPES.register(Recipe(name=_name, **_keys, **_tuples))
