"""Facts of papers that several methods use: BibTeX entries and published settings."""

import re
from functools import cache
from importlib.resources import files
from typing import Any


def cited(*keys: str, **given: Any) -> dict[str, Any]:
    """Return BibTeX, year and URL for the record of a method.

    Args:
        keys: keys of entries in ``references.bib``. Year and URL are those of the last.
        given: a year or a URL that differs from the entry's.
    """
    entries = _entries()
    last = entries[keys[-1]]
    fields = dict(re.findall(r"^  (year|url) = {(.*)},$", last, flags=re.M))
    found = {**fields, "year": int(fields["year"]), **given}
    return {"bibtex": "".join(f"\n{entries[key]}\n" for key in keys), **found}


@cache
def _entries() -> dict[str, str]:
    """Return the entries by key; a blank line separates them in the file."""
    text = files(__package__).joinpath("references.bib").read_text("utf-8")
    return {re.split("[{,]", entry, maxsplit=2)[1]: entry for entry in text.strip().split("\n\n")}


def as_on_tiny(**values: Any) -> dict[str, dict[str, Any]]:
    """Return a paper's settings for Tiny-ImageNet, which FeDLaS also uses for CUB and Aircraft."""
    return {name: dict(values) for name in ("tiny_imagenet", "cub", "aircraft")}
