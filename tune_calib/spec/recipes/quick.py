"""The quick setting; what it is stands with each data set (``DatasetInfo.quick``)."""

from tune_calib.spec.recipe import QUICK, RECIPES, Recipe

RECIPES.register(
    Recipe(
        name=QUICK,
        title="the data set's own quick setting",
        source="",
        settings={},
        datasets=(),
    )
)
