"""Generate the tables of recipes from their records."""

from collections.abc import Iterator, Mapping

from docs.generate.page import table
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.describe import code
from tune_calib.spec.methods import METHODS
from tune_calib.spec.recipe import QUICK, RECIPES, Recipe
from tune_calib.spec.trial import SLOT_TYPES
from tune_calib.text import format_setting

Columns = Mapping[str, Mapping[str, Mapping[str, object]]]


def every_recipe() -> str:
    """Return the quick recipes of the data sets, and the published recipes."""
    parts = [f"## `{QUICK}`", *_quick()]
    for name in RECIPES:
        if name != QUICK:
            parts += [f"## `{name}`", *_published(RECIPES[name])]
    return "\n\n".join(parts)


def _quick() -> Iterator[str]:
    rows, columns = [], {}
    for name in DATASETS:
        if (quick := DATASETS[name].quick) is not None:
            rows.append((code(name), quick.title, ", ".join(map(code, quick.backbones)) or "all"))
            columns[f"on `{name}`"] = quick.settings
    yield table(("Data set", "Description", "Backbones"), rows)
    yield _settings(columns)


def _published(recipe: Recipe) -> Iterator[str]:
    source = f"[{recipe.source}]({recipe.url})" if recipe.url else recipe.source
    fits = ", ".join(map(code, recipe.datasets))
    if recipe.backbones:
        fits += f"; backbones: {', '.join(map(code, recipe.backbones))}"
    yield f"{recipe.title[:1].upper()}{recipe.title[1:]} ({source}). Data sets: {fits}."
    if recipe.note:
        yield recipe.note
    columns = {_place(place): settings for place, settings in recipe.on.items()}
    yield _settings({"value": recipe.settings, **columns})
    for method, places in recipe.methods.items():
        for place, values in places.items():
            settings = [f"`{key}` = `{format_setting(value)}`" for key, value in values.items()]
            where = f" {_place(place)}" if place else ""
            yield f"[`{method}`](methods/{method}.md){where}: {', '.join(settings)}."
    methods = [name for name in METHODS if METHODS[name].recipe == recipe.name]
    if methods:
        links = ", ".join(f"[`{name}`](methods/{name}.md)" for name in methods)
        yield f"With `--own-recipes`, these methods use its optimiser: {links}."


def _place(place: str) -> str:
    dataset, _, backbone = place.partition("/")
    if not backbone:
        return f"on `{dataset}`"
    return f"on `{dataset}` with `{backbone}`"


def _settings(columns: Columns) -> str:
    """Return a table with a row per setting and a column per data set or backbone."""
    rows = []
    for slot, model in SLOT_TYPES.items():
        of_slot = [settings.get(slot, {}) for settings in columns.values()]
        for key in model.model_fields:
            if any(key in settings for settings in of_slot):
                cells = [_value(settings, key) for settings in of_slot]
                rows.append((code(f"{slot}.{key}"), *cells))
    return table(("Setting", *columns), rows)


def _value(settings: Mapping[str, object], key: str) -> str:
    if key not in settings:
        return ""
    return code(format_setting(settings[key]))
