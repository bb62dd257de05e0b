"""A page of every method, from its record and its settings."""

import inspect
import re
from collections.abc import Iterator

from docs.generate.formulas import drawn
from docs.generate.page import Page, table
from tune_calib.cli import fields
from tune_calib.cli.fields import code
from tune_calib.spec.methods import METHODS, NEEDS, MethodInfo
from tune_calib.spec.recipe import RECIPES
from tune_calib.spec.space import SPACES
from tune_calib.text import as_setting

KINDS = {"network": "Network methods", "head": "Head methods", "posthoc": "Post-hoc methods"}


def overview() -> str:
    """A table of all methods, by kind."""
    parts = []
    for kind, title in KINDS.items():
        told = ("keeps accuracy",) if kind == "posthoc" else ()
        rows = [
            (f"[`{m.name}`]({m.name}.md)", m.title, f"[{m.paper} {m.year}]({m.url})")
            + (("yes" if m.keeps_accuracy else "no",) if told else ())
            for m in (METHODS[name] for name in METHODS)
            if m.kind == kind
        ]
        parts += [f"## {title}", table(("method", "what it is", "paper", *told), rows)]
    return "\n\n".join(parts)


def pages() -> Iterator[Page]:
    """A page a method."""
    for name in METHODS:
        yield Page(f"methods/{name}.md", name, _text(METHODS[name]), "Methods")


def _text(method: MethodInfo) -> str:
    kind = "post-hoc" if method.kind == "posthoc" else method.kind
    parts = [
        f"# `{method.name}`: {method.title}",
        f"A {kind} method. [{method.paper} {method.year}]({method.url}).",
        linked(inspect.getdoc(inspect.getmodule(method.implementation)) or ""),
        "## Formula",
        drawn(method.formula),
        "Letters are explained on the [page of all methods](index.md#notation).",
        "## Settings",
        _settings(method),
        *_recipe(method),
        *_needs(method),
        *_accuracy(method),
        "## Reference",
        f"```bibtex\n{method.bibtex.strip()}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def linked(docstring: str) -> str:
    """A docstring as Markdown: what names a page of the documentation is a link to it."""
    text = docstring.replace("``", "`")
    text = re.sub(r"(?<![(<])(https://\S+?)(?=[,.;:)]*(\s|$))", r"<\1>", text)
    return re.sub(r"docs/pages/([\w-]+)\.md#([\w-]+)", r"[\1](../\1.md#\2)", text)


def _settings(method: MethodInfo) -> str:
    settings = fields.shown(method.params)
    if not settings:
        return "None of its own."
    space = SPACES[method.name].settings if method.name in SPACES else {}
    # A pipe would end a cell of the table.
    searched = {
        key.partition(".")[2]: str(setting).replace(" | ", ", ") for key, setting in space.items()
    }
    rows = [
        (
            f'<span id="{name}">`{method.kind}.{name}`</span>',
            fields.default_of(field),
            fields.range_of(field),
            code(searched.get(name)),
            fields.first_paragraph(field),
        )
        for name, field in settings.items()
    ]
    parts = [table(("setting", "default", "may be", "searched in", "meaning"), rows)]
    others = [key for key in searched if key not in settings]
    if others:
        told = ", ".join(f"`{method.kind}.{key}` in `{searched[key]}`" for key in others)
        parts.append(f"Searched besides: {told}.")
    for place, own in (method.dataset_defaults or {}).items():
        told = ", ".join(f"`{key}` = `{value}`" for key, value in own.items())
        parts.append(f"On {_place(place)}: {told}.")
    for name, field in settings.items():
        if options := fields.options_of(field):
            parts += [f"### `{name}` {{ #{name}-options }}", options]
    return "\n\n".join(parts)


def _place(place: str) -> str:
    dataset, _, backbone = place.partition("/")
    return f"`{dataset}` with `{backbone}`" if backbone else f"`{dataset}`"


def _recipe(method: MethodInfo) -> Iterator[str]:
    if method.kind == "posthoc":
        return
    yield "## Recipe of its authors"
    if method.recipe is None:
        yield "None: it is trained as the data set's networks or heads are."
        return
    yield (
        f"[`{method.recipe}`](../recipes.md#{method.recipe}); `--own-recipes` takes its optimiser, "
        "and leaves epochs, backbone and augmentation to the comparison."
    )
    own = RECIPES[method.recipe].methods.get(method.name, {})
    for place, values in own.items():
        told = ", ".join(f"`{key}` = `{as_setting(value)}`" for key, value in values.items())
        yield f"Otherwise than other methods{f' on {_place(place)}' if place else ''}: {told}."


def _accuracy(method: MethodInfo) -> Iterator[str]:
    if method.keeps_accuracy is not None:
        yield "## Accuracy"
        yield (
            "It is kept: the class that is first stays first."
            if method.keeps_accuracy
            else "It may change: another class may become first."
        )


def _needs(method: MethodInfo) -> Iterator[str]:
    if method.needs:
        yield "## Needs"
        yield "\n".join(f"- {NEEDS[need]}" for need in sorted(method.needs))
