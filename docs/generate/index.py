"""Generate the index of records whose modules take seconds to import.

``make generate`` writes ``tune_calib/index.json``; ``tests/test_registry.py`` compares it.
"""

import json
from pathlib import Path
from typing import Any

from tune_calib import registry
from tune_calib.cli.look_up import REGISTRIES

PATH = Path(registry.__file__).with_name("index.json")
_SLOW = ("methods", "datasets", "backbones", "ladder-figures", "search-figures")


def build_index() -> dict[str, Any]:
    """Return the index: by package its modules, its records and the names of its families."""
    content = {REGISTRIES[what][0].package: _index(what) for what in _SLOW}
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return plain


def _index(what: str) -> dict[str, Any]:
    records = REGISTRIES[what][0]
    families = records.family_names()  # first, since it imports every module
    facts = {name: {"module": records.homes[name], **_facts(what, name)} for name in records}
    return {"modules": records.modules(), "families": families, "records": facts}


def _facts(what: str, name: str) -> dict[str, Any]:
    """Return what the command line needs of a record, without an import of its module."""
    registry_, describe = REGISTRIES[what]
    record = registry_[name]
    facts = describe(record)
    if hasattr(record, "bibtex"):
        facts |= {"bibtex": record.bibtex, "fields": list(record.params.model_fields)}
        facts["class"] = record.implementation.__name__
    if hasattr(record, "quick"):
        facts["quick"] = record.quick and record.quick.backbones
    return facts


if __name__ == "__main__":
    PATH.write_text(f"{json.dumps(build_index(), indent=1)}\n", "utf-8")
