"""Generate a page for each method from its record and its settings."""

import re
from collections.abc import Iterator
from os.path import relpath

from docs.generate.formulas import fenced
from docs.generate.page import Page, table
from tune_calib.spec.describe import READINGS, describe_method
from tune_calib.spec.methods import METHODS, MethodInfo

KINDS = {"network": "Network methods", "head": "Head methods", "posthoc": "Post-hoc methods"}


def overview() -> str:
    """Return tables of all methods by kind."""
    parts = []
    for kind, title in KINDS.items():
        head, rows = ["Method", "Description", "Paper"], []
        if kind == "posthoc":
            head.append("Keeps accuracy")
        for method in METHODS.values():
            if method.kind == kind:
                paper = f"[{method.paper} {method.year}]({method.url})"
                keeps = {True: "yes", False: "no", None: ""}[method.keeps_accuracy]
                row = (f"[`{method.name}`]({method.name}.md)", method.title, paper, keeps)
                rows.append(row[: len(head)])
        parts += [f"## {title}", table(head, rows)]
    return "\n\n".join(parts)


def pages() -> Iterator[Page]:
    """Yield a page for each method."""
    for name in METHODS:
        yield Page(f"methods/{name}.md", name, _text(METHODS[name]), section="Methods")


def _text(method: MethodInfo) -> str:
    """Return the description with its formula as a block and its references as links."""
    notation = "See [Notation](index.md#notation)."
    formula = f"{fenced(method.formula)}\n\n{notation}"
    text = re.sub(r"```latex\n.*?```", lambda _: formula, describe_method(method), flags=re.S)
    text = re.sub(r"^`(\w+)`(?= \()", r"[`\1`](../recipes.md#\1)", text, flags=re.M)
    return linked(text)


def linked(text: str, folder: str = "methods") -> str:
    """Replace the pages that a text names by links from a folder below ``docs/pages``."""

    def link(match: re.Match[str]) -> str:
        path, anchor = match.groups()
        title = "readings" if path == "methods/index" else path.replace("-", " ")
        return f"[{title}]({relpath(f'{path}.md', folder)}{anchor})"

    return re.sub(r"docs/pages/([\w/-]+)\.md((?:#[\w-]+)?)", link, text)


def readings() -> str:
    """Return the readings of the papers, one level down, with links from their page."""
    text = READINGS.read_text("utf-8").partition("\n## ")[2]
    text = re.sub(r"^## ", "### ", f"## {text}", flags=re.M)
    links = r"(?<=\]\()\.\./\.\./docs/pages/([^)]+)"
    return re.sub(links, lambda match: relpath(match[1], "methods"), text)
