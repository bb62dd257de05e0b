"""Files of the checkout that are pages too."""

import re
from collections.abc import Iterator
from pathlib import Path

from docs.generate.page import Page

ROOT = Path(__file__).parents[2]
_FILES = {
    "contributing.md": ("Contributing", "CONTRIBUTING.md"),
    "changelog.md": ("Changelog", "CHANGELOG.md"),
}


def pages() -> Iterator[Page]:
    """The files, with their links to pages as links between pages."""
    for path, (title, source) in _FILES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        yield Page(path, title, re.sub(r"\]\((?:\.\./)?docs/pages/", "](", text))
