"""Placeholder for the backbone of imported features and logits, which do not have one.

The name is known to the registry, but is not an entry of it.
"""

from typing import NoReturn

from tune_calib.errors import UserError
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init
from tune_calib.spec.names import IMPORTED


def build(channels: int, size: int, init: Init) -> NoReturn:
    """Refuse to build a network."""
    del channels, size, init
    raise UserError("imported data have no network, which this needs")


_INFO = BackboneInfo(IMPORTED, "imported", build, has_stages=False)

BACKBONES.register_family(lambda name: _INFO if name == IMPORTED else None, lambda: [IMPORTED])
