"""Reports of tests draw no figures unless a test asks: one takes most of a second."""

import contextlib
from collections.abc import Iterator

import pytest

from analysis import style
from analysis.ladder import files as ladder_files
from analysis.page.figures import in_order
from analysis.search import files as search_files

FORMATS = style.FORMATS


def without_figures() -> None:
    """Let the reports of this process draw no figures, until ``figures`` asks for them."""
    style.FORMATS = ("svg",)
    for files in (ladder_files, search_files):
        files.in_order = lambda registry: []


@contextlib.contextmanager
def figures(*formats: str) -> Iterator[None]:
    """Let reports draw their figures in some formats."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(style, "FORMATS", formats)
        for files in (ladder_files, search_files):
            patched.setattr(files, "in_order", in_order)
        yield
