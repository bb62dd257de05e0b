"""What can be said of records whose modules take seconds to import.

``python -m docs.generate.index`` writes ``tune_calib/index.json``; ``tests/test_registry.py``
holds it true.
"""

import json
from pathlib import Path
from typing import Any

from tune_calib import registry
from tune_calib.cli.registries import LISTS, Listing

PATH = Path(registry.__file__).with_name("index.json")
_SLOW = ("methods", "datasets", "backbones", "ladder-figures", "search-figures")


def build_index() -> dict[str, Any]:
    """Return the index: by package its modules, its records and the names of its families."""
    listings = [LISTS[what] for what in _SLOW]
    content = {each.registry.package: _of(each) for each in listings if isinstance(each, Listing)}
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return plain


def _of(listing: Listing[Any]) -> dict[str, Any]:
    own = listing.registry
    families = own.family_names()  # first, since it imports every module
    records = {name: {"module": own.homes[name], **_facts(listing, name)} for name in own}
    return {"modules": own.modules(), "families": families, "records": records}


def _facts(listing: Listing[Any], name: str) -> dict[str, Any]:
    """Return what ``list`` says of a record, and what ``cite``, ``--set`` and ``--recipe`` need."""
    record = listing.registry[name]
    facts = listing.describe(record)
    if hasattr(record, "bibtex"):
        facts |= {"bibtex": record.bibtex, "fields": list(record.params.model_fields)}
    if hasattr(record, "quick"):
        facts["quick"] = record.quick and record.quick.backbones
    return facts


if __name__ == "__main__":
    PATH.write_text(f"{json.dumps(build_index(), indent=1)}\n", "utf-8")
