"""Generate pages of the built site from files outside ``docs/pages``."""

import re
from collections.abc import Iterator
from pathlib import Path

from docs.generate.page import Page

ROOT = Path(__file__).parents[2]
_FILES = {
    "contributing.md": ("Contributing", "CONTRIBUTING.md"),
    "changelog.md": ("Changelog", "CHANGELOG.md"),
    "security.md": ("Security", "SECURITY.md"),
}


def pages() -> Iterator[Page]:
    """Yield a page for each file, with its links rewritten for the site."""
    for path, (title, source) in _FILES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        yield Page(path, title, re.sub(r"\]\((?:\.\./)?docs/pages/", "](", text))
