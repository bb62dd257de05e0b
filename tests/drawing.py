"""Reports of tests draw no figures unless a test asks: one takes most of a second."""

import contextlib
from collections.abc import Collection, Iterator

import pytest

from analysis import style
from analysis.ladder import files as ladder_files
from analysis.page.page import in_order
from analysis.search import files as search_files

FORMATS = style.FORMATS


def without_figures() -> None:
    """Let the reports of this process draw no figures, until ``figures`` asks for them."""
    style.FORMATS = ("png",)
    ladder_files.in_order = search_files.in_order = lambda registry: []


@contextlib.contextmanager
def figures(*formats: str, names: Collection[str] = ()) -> Iterator[None]:
    """Let reports draw their figures, or those of some names, in some formats."""

    def choose(registry):
        return [figure for figure in in_order(registry) if not names or figure.name in names]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(style, "FORMATS", formats)
        patched.setattr(ladder_files, "in_order", choose)
        patched.setattr(search_files, "in_order", choose)
        yield
