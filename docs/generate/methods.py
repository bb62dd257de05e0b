"""A page of every method, from its record and its settings."""

import re
from collections.abc import Iterator

from docs.generate.formulas import fenced
from docs.generate.page import Page, table
from tune_calib.spec.describe import describe_method
from tune_calib.spec.methods import METHODS, MethodInfo

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
    """The description, its formula drawn, and what it names as links."""
    notation = "Letters are explained on the [page of all methods](index.md#notation)."
    formula = f"{fenced(method.formula)}\n\n{notation}"
    text = re.sub(r"```latex\n.*?```", lambda _: formula, describe_method(method), flags=re.S)
    text = re.sub(r"^`(\w+)`(?= \()", r"[`\1`](../recipes.md#\1)", text, flags=re.M)
    return linked(text)


def linked(text: str) -> str:
    """Markdown in which what names a page of the documentation is a link to it."""
    return re.sub(r"docs/pages/([\w-]+)\.md#([\w-]+)", r"[\1](../\1.md#\2)", text)
