"""Pages, and parts of pages, that are generated from the program.

``make generate`` writes them into ``docs/pages``; ``tests/docs`` compares them.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from docs.generate import (
    commands,
    datasets,
    experiment_files,
    figures,
    included,
    methods,
    notebooks,
    recipes,
    reference,
    replays,
    settings,
    speed,
    tables,
)
from docs.generate.page import Page

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs/pages"

INSERTED: dict[str, Callable[[], str]] = {
    "commands": commands.every_command,
    "datasets": datasets.every_dataset,
    "norms": datasets.every_norm,
    "rules": datasets.every_rule,
    "experiment-file-keys": experiment_files.every_key,
    "figures": figures.every_figure,
    "flags": tables.flags,
    "gpu-rates": speed.gpu_rates,
    "manifests": tables.manifests,
    "method-list": methods.overview,
    "metrics": tables.metrics,
    "notebook": notebooks.ladder,
    "readings": methods.readings,
    "recipes": recipes.every_recipe,
    "replays": replays.regrets,
    "settings": settings.of_slots,
    "spaces": settings.spaces,
    "tables": tables.every_column,
}
"""The parts of written pages, each between ``<!-- made: NAME -->`` and ``<!-- end -->``."""

_PART = re.compile(r"^(<!-- (made|example|recording): (\S+) -->\n).*?^<!-- end -->$", re.M | re.S)


@cache
def pages() -> tuple[Page, ...]:
    """Return the pages that exist only on the built site."""
    return (*reference.pages(), *included.pages())


def generate() -> Iterator[tuple[Path, str]]:
    """Yield each Markdown file with generated text, and the text of the whole file."""
    for page in methods.pages():
        yield PAGES / page.path, page.text
    written = [*PAGES.glob("*.md"), *PAGES.glob("gallery/*.md"), PAGES / "methods/index.md"]
    for path in sorted(written):
        text = path.read_text("utf-8")
        if _PART.search(text):
            yield path, _PART.sub(lambda part: _fill(*part.groups()), text)


def _fill(mark: str, kind: str, name: str) -> str:
    if kind == "made":
        content = INSERTED[name]()
    else:
        path = ROOT / "docs" / f"{kind}s" / name
        language = {".py": "python", ".yaml": "yaml"}.get(path.suffix, "text")
        if kind == "example":
            language += f' title="{path.relative_to(ROOT)}"'
        content = f"```{language}\n{path.read_text('utf-8')}```"
    return f"{mark}\n{content.strip()}\n\n<!-- end -->"
