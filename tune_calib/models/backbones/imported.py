"""The backbone of imported features and logits, which is not there.

No entry of the registry, but a name that it knows: of imported data it stands where a backbone
does.
"""

from typing import NoReturn

from tune_calib.errors import UserError
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init
from tune_calib.spec.names import IMPORTED


def build(channels: int, size: int, init: Init) -> NoReturn:
    """Refuse: there is no network to be built."""
    del channels, size, init
    raise UserError("imported data have no network, which this needs")


_INFO = BackboneInfo(IMPORTED, "imported", build, has_stages=False)

BACKBONES.register_family(lambda name: _INFO if name == IMPORTED else None, lambda: [IMPORTED])
