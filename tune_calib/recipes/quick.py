"""The quick setting; what it is stands with each data set (``DatasetInfo.quick``)."""

from tune_calib.recipe import QUICK, Recipe
from tune_calib.registry import RECIPES

RECIPES.register(
    Recipe(
        name=QUICK,
        title="the data set's own quick setting",
        source="",
        settings={},
        datasets=(),
    )
)
