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
    if name not in METHODS and name not in LADDERS:
        known = sorted({*METHODS, *LADDERS})
        raise UserError(f"unknown method or ladder {short_repr(name)}{nearest(name, known)}")
    parts = [describe_method(METHODS[name])] if name in METHODS else []
    named = {section for part in parts for section in _SECTION.findall(part)}
    for section in re.split(r"^## ", READINGS.read_text(encoding="utf-8"), flags=re.M)[1:]:
        title, _, text = section.partition("\n")
        if re.sub(r"[^\w]+", "-", title.lower()).strip("-") in named:
            plain = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text.strip())
            parts.append(f"## Readings of the papers: {title}\n\n{plain}")
    parts += [describe_ladder(LADDERS[name])] if name in LADDERS else []
    return _SECTION.sub("the readings below", "\n\n".join(parts))


def describe_method(method: MethodInfo) -> str:
    """Describe a method: its formula, settings, recipe, needs and reference."""
    kind = "post-hoc" if method.kind == "posthoc" else method.kind
    about = inspect.getdoc(inspect.getmodule(method.implementation)) or ""
    parts = [
        f"# `{method.name}`: {method.title}",
        f"A {kind} method. {method.paper} {method.year}, <{method.url}>.",
        # Turn URLs into links.
        re.sub(r"(?<![(<])(https://\S+?)(?=[,.;:)]*(\s|$))", r"<\1>", about.replace("``", "`")),
        "## Formula",
        f"```latex\n{chr(10).join(clauses(method.formula))}\n```",
        "## Settings",
        *_settings(method),
        *_recipe(method),
    ]
    if method.needs:
        parts += ["## Needs", "\n".join(f"- {NEEDS[need]}" for need in sorted(method.needs))]
    if method.keeps_accuracy is not None:
        kept = "It is unchanged: the predicted class stays the same."
        may_change = "It may change: the predicted class may be a different one."
        parts += ["## Accuracy", kept if method.keeps_accuracy else may_change]
    return "\n\n".join([*parts, "## Reference", f"```bibtex\n{method.bibtex.strip()}\n```"]) + "\n"


def clauses(formula: str) -> list[str]:
    """Return the lines of a formula; each but the first begins with a quad."""
    found = re.split(r"\n\s*\\quad", dedent(formula).strip())
    return [" ".join(clause.split()) for clause in found]


def _settings(method: MethodInfo) -> Iterator[str]:
    space = SPACES[method.name].settings if method.name in SPACES else {}
    searched = {key.partition(".")[2]: str(setting) for key, setting in space.items()}
    settings = list_settings(method.params)
    if not settings:
        yield "It has no settings."
    for key, schema in settings.items():
        where = f"; searched in `{searched[key]}`" if key in searched else ""
        name = f'<span id="{key}">`{method.kind}.{key}`</span>'
        meaning, _, options = schema.get("description", "").partition("\n\n")
        text = " ".join(meaning.split())
        yield f"- {name} = {default_of(schema)} ({range_of(schema)}{where}): {text}"
        if options:
            yield indent(options, "    ")
    others = [
        f"`{method.kind}.{key}` in `{searched[key]}`" for key in searched if key not in settings
    ]
    if others:
        yield f"Also searched: {', '.join(others)}."
    for place, own in (method.dataset_defaults or {}).items():
        yield f"{_on(place).capitalize()}: {_values(own)}."


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
    for place, own in recipe.methods.get(method.name, {}).items():
        yield f"Exceptions for this method{f' {_on(place)}' if place else ''}: {_values(own)}."


def _on(place: str) -> str:
    dataset, _, backbone = place.partition("/")
    return f"on `{dataset}` with `{backbone}`" if backbone else f"on `{dataset}`"


def _values(own: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key}` = `{format_setting(value)}`" for key, value in own.items())


def describe_ladder(ladder: Ladder) -> str:
    """Describe a ladder and each of its rungs."""
    controls = sum(rung.kind == "control" for rung in ladder.rungs)
    rungs = format_count(len(ladder.rungs) - controls, "rung")
    more = f", and {format_count(controls, 'control')}" if controls else ""
    command = f"`tune-calib ablate {ladder.name}{' --controls' if controls else ''}`"
    parts = [
        f"# `{ladder.name}` (ladder): {ladder.title}",
        f"A ladder of {rungs}{more}: {command}.",
    ]
    if ladder.published:
        parts.append(f"Published: `tune-calib report OUT --published {ladder.published}`")
    if ladder.head_recipe:
        parts.append(f"All heads are trained with the recipe of {ladder.head_recipe}.")
    parts.append("## Rungs")
    for rung in ladder.rungs:
        kind = {"step": "", "base": " (base)"}.get(rung.kind, f" ({rung.kind})")
        parts.append(f"- **{rung.label}**{kind}: {rung.ingredient}")
        lines = [f"sets {_values(flatten(rung.slots))}"] if any(rung.slots.values()) else []
        if rung.adds_head_epochs:
            lines.append("trains the network longer, by as many epochs as heads are retrained")
        if rung.published:
            lines.append(f"in the paper: {rung.published}")
        parts += [f"    - {line}" for line in lines]
    return "\n\n".join(parts) + "\n"


def code(value: object) -> str:
    """Format a value as code; return an empty text for an absent value."""
    return "" if value is None or value == "" else f"`{value}`"


def list_settings(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Return the JSON schemas of the fields that a user can set."""
    properties = model.model_json_schema()["properties"]
    return {k: own for k, own in properties.items() if k not in ("params", "plugin", "found")}


def default_of(schema: Mapping[str, Any]) -> str:
    """Format the default as on the command line."""
    if "default" not in schema:
        return "required"
    value = schema["default"]
    if isinstance(value, list):
        return code(", ".join(f"{part:.4g}" for part in value) or "()")
    if isinstance(value, bool):
        return code(str(value).lower())
    return code("none" if value is None else value)


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
    if options := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return ", ".join(map(code, options))
    match [(*_BOUNDS[key], schema[key]) for key in _BOUNDS if key in schema]:
        case [(sign, _, bound)]:
            text = f"{sign} {bound}"
        case [(_, opening, low), (_, closing, high)]:
            text = f"{opening}{low}, {high}{closing}"
        case _:  # a model, which the program makes from a name, has no type
            return _TYPES.get(schema.get("type", ""), "")
    return f"{text}, whole" if schema["type"] == "integer" else text
