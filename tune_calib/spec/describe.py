"""Describe methods, ladders and settings in Markdown, for terminals and pages."""

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from pydantic import BaseModel

from tune_calib.errors import UserError
from tune_calib.spec.datasets import flatten
from tune_calib.spec.ladder import LADDERS, Ladder
from tune_calib.spec.methods import METHODS, NEEDS, MethodInfo
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.space import SPACES
from tune_calib.text import format_count, format_setting, nearest, short_repr

READINGS = Path(__file__).parents[1] / "methods/readings.md"
"""Ambiguities in the papers; sources link to a section ``docs/pages/methods/index.md#...``."""

_SECTION = re.compile(r"docs/pages/methods/index\.md#([\w-]+)")


def describe(name: str) -> str:
    """Describe the method or ladder with this name, or both, and the readings they refer to."""
    if not METHODS.knows(name) and name not in LADDERS:
        names = sorted({*METHODS, *LADDERS})
        raise UserError(f"unknown method or ladder {short_repr(name)}{nearest(name, names)}")
    parts = []
    if METHODS.knows(name):
        text = describe_method(METHODS[name])
        parts += [text, *_readings(text)]
    if name in LADDERS:
        parts.append(describe_ladder(LADDERS[name]))
    return _SECTION.sub("the readings below", "\n\n".join(parts))


def _readings(text: str) -> Iterator[str]:
    sections = set(_SECTION.findall(text))
    for section in re.split(r"^## ", READINGS.read_text(encoding="utf-8"), flags=re.M)[1:]:
        title, _, reading = section.partition("\n")
        if re.sub(r"[^\w]+", "-", title.lower()).strip("-") in sections:
            without_links = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", reading.strip())
            yield f"## Readings of the papers: {title}\n\n{without_links}"


def describe_method(method: MethodInfo) -> str:
    kind = "post-hoc" if method.kind == "posthoc" else method.kind
    docstring = method.text or inspect.getdoc(inspect.getmodule(method.implementation)) or ""
    parts = [
        f"# `{method.name}`: {method.title}",
        f"A {kind} method. {method.paper} {method.year}, <{method.url}>.",
        # Turn URLs into links.
        re.sub(r"(?<![(<])(https://\S+?)(?=[,.;:)]*(\s|$))", r"<\1>", docstring.replace("``", "`")),
    ]
    if method.formula:
        parts += ["## Formula", f"```latex\n{chr(10).join(clauses(method.formula))}\n```"]
    parts += ["## Settings", *_settings(method), *_recipe(method)]
    if method.needs:
        parts += ["## Needs", "\n".join(f"- {NEEDS[need]}" for need in sorted(method.needs))]
    if method.keeps_accuracy:
        parts += ["## Accuracy", "It is unchanged: the predicted class stays the same."]
    elif method.keeps_accuracy is False:
        parts += ["## Accuracy", "It may change: the predicted class may be a different one."]
    if method.bibtex:
        parts += ["## Reference", f"```bibtex\n{method.bibtex.strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def clauses(formula: str) -> list[str]:
    """Return the lines of a formula; each but the first begins with a quad."""
    lines = re.split(r"\n\s*\\quad", dedent(formula).strip())
    return [" ".join(line.split()) for line in lines]


def _settings(method: MethodInfo) -> Iterator[str]:
    space = SPACES[method.name].settings if method.name in SPACES else {}
    searched = {key.partition(".")[2]: str(setting) for key, setting in space.items()}
    settings = list_settings(method.params)
    if not settings:
        yield "It has no settings."
    for key, schema in settings.items():
        values = range_of(schema)
        if key in searched:
            values += f"; searched in `{searched.pop(key)}`"
        name = f'<span id="{key}">`{method.kind}.{key}`</span>'
        meaning, _, options = schema.get("description", "").partition("\n\n")
        text = " ".join(meaning.split())
        yield f"- {name} = {default_of(schema)} ({values}): {text}".removesuffix(": ")
        if options:
            yield indent(options, "    ")
    if searched:
        ranges = (f"`{method.kind}.{key}` in `{values}`" for key, values in searched.items())
        yield f"Also searched: {', '.join(ranges)}."
    for place, defaults in (method.dataset_defaults or {}).items():
        yield f"{_on(place).capitalize()}: {_values(defaults)}."


def _recipe(method: MethodInfo) -> Iterator[str]:
    if method.kind == "posthoc":
        return
    yield "## Recipe of the authors"
    if method.recipe is None:
        yield "None: it is trained like all other networks or heads on the data set."
        return
    recipe = RECIPES[method.recipe]
    yield (
        f"`{recipe.name}` ({recipe.title}). A comparison with own recipes takes only its "
        "optimiser; epochs, backbone and augmentation stay the same for all methods."
    )
    for place, settings in recipe.methods.get(method.name, {}).items():
        scope = f" {_on(place)}" if place else ""
        yield f"Exceptions for this method{scope}: {_values(settings)}."


def _on(place: str) -> str:
    dataset, _, backbone = place.partition("/")
    return f"on `{dataset}` with `{backbone}`" if backbone else f"on `{dataset}`"


def _values(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key}` = `{format_setting(value)}`" for key, value in settings.items())


def describe_ladder(ladder: Ladder) -> str:
    controls = sum(rung.kind == "control" for rung in ladder.rungs)
    rungs = format_count(len(ladder.rungs) - controls, "rung")
    command = f"tune-calib ablate {ladder.name}"
    if controls:
        rungs += f", and {format_count(controls, 'control')}"
        command += " --controls"
    parts = [f"# `{ladder.name}` (ladder): {ladder.title}", f"A ladder of {rungs}: `{command}`."]
    if ladder.published:
        parts.append(f"Published: `tune-calib report OUT --published {ladder.published}`")
    if ladder.head_recipe:
        parts.append(f"All heads are trained with the recipe of {ladder.head_recipe}.")
    parts.append("## Rungs")
    for rung in ladder.rungs:
        kind = {"step": "", "base": " (base)"}.get(rung.kind, f" ({rung.kind})")
        parts.append(f"- **{rung.label}**{kind}: {rung.ingredient}")
        if any(rung.slots.values()):
            parts.append(f"    - sets {_values(flatten(rung.slots))}")
        if rung.adds_head_epochs:
            longer = "trains the network longer, by as many epochs as heads are retrained"
            parts.append(f"    - {longer}")
        if rung.published:
            parts.append(f"    - in the paper: {rung.published}")
    return "\n\n".join(parts) + "\n"


def code(value: object) -> str:
    """Format a value as code; return an empty text for an absent value."""
    return "" if value is None or value == "" else f"`{value}`"


def list_settings(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Return the JSON schemas of the fields that a user can set."""
    schema = model.model_json_schema()
    schema = schema.get("$defs", {}).get(model.__name__, schema)  # a pool refers to its network
    properties: dict[str, dict[str, Any]] = schema["properties"]
    for key in ("params", "plugin", "found", "pool"):
        properties.pop(key, None)
    return properties


def default_of(schema: Mapping[str, Any]) -> str:
    if "default" not in schema:
        return "required"
    value = schema["default"]
    if isinstance(value, list):
        return code(", ".join(f"{part:.4g}" for part in value) or "()")
    if isinstance(value, bool):
        return code(str(value).lower())
    return "`none`" if value is None else code(value)


def range_of(schema: Mapping[str, Any]) -> str:
    """Format the allowed values of a setting: an interval, its options, or its type."""
    parts = [_range_of_type(part) for part in schema.get("anyOf", [schema])]
    return " or ".join(dict.fromkeys(filter(None, parts)))


_TYPES = {
    "array": "list of numbers",
    "boolean": "`true`, `false`",
    "integer": "whole number",
    "null": "`none`",
    "number": "number",
    "string": "name",
}
# The sign of a single bound, and the bracket of one of two.
_BOUNDS = {
    "minimum": ("≥", "["),
    "exclusiveMinimum": (">", "("),
    "maximum": ("≤", "]"),
    "exclusiveMaximum": ("<", ")"),
}


def _range_of_type(schema: Mapping[str, Any]) -> str:
    if "const" in schema:
        return code(schema["const"])
    if "enum" in schema:
        return ", ".join(map(code, schema["enum"]))
    match [(*_BOUNDS[key], schema[key]) for key in _BOUNDS if key in schema]:
        case [(sign, _, bound)]:
            text = f"{sign} {bound}"
        case [(_, opening, low), (_, closing, high)]:
            text = f"{opening}{low}, {high}{closing}"
        case _:  # a model, which the program makes from a name, has no type
            return _TYPES.get(schema.get("type", ""), "")
    return f"{text}, whole" if schema["type"] == "integer" else text
