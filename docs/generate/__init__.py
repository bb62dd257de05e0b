"""Pages, and parts of pages, that are made from the program itself."""

from collections.abc import Callable, Iterator
from functools import cache

from docs.generate import (
    commands,
    datasets,
    figures,
    included,
    methods,
    recipes,
    reference,
    settings,
    sweep_files,
    tables,
)
from docs.generate.page import Page

INSERTED: dict[str, Callable[[], str]] = {
    "commands": commands.every_command,
    "datasets": datasets.every_dataset,
    "norms": datasets.every_norm,
    "rules": datasets.every_rule,
    "figures": figures.every_figure,
    "flags": tables.flags,
    "manifests": tables.manifests,
    "method-list": methods.overview,
    "metrics": tables.metrics,
    "recipes": recipes.every_recipe,
    "settings": settings.of_slots,
    "sweep-file-keys": sweep_files.every_key,
    "tables": tables.every_column,
}
"""What a written page may ask for by ``<!-- made: NAME -->``."""


@cache
def pages() -> tuple[Page, ...]:
    """Every made page."""
    return tuple(_pages())


def _pages() -> Iterator[Page]:
    yield from methods.pages()
    yield from reference.pages()
    yield from included.pages()
