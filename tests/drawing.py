"""Reports of tests draw no figures unless a test asks: one takes most of a second."""

import contextlib
from collections.abc import Iterator

import pytest

from analysis import style
from analysis.page import page
from analysis.page.figures import in_order

FORMATS = style.FORMATS


def without_figures() -> None:
    """Let the reports of this process draw no figures, until ``figures`` asks for them."""
    style.FORMATS = ("svg",)
    page.in_order = lambda registry: []


@contextlib.contextmanager
def figures(*formats: str) -> Iterator[None]:
    """Let reports draw their figures in some formats."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(style, "FORMATS", formats)
        patched.setattr(page, "in_order", in_order)
        yield
