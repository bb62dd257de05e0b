"""Placeholder for the backbone of imported features and logits, which do not have one.

The registry resolves its name but does not list it.
"""

from typing import NoReturn

from tune_calib.errors import UserError
from tune_calib.spec.backbones import BACKBONES, BackboneInfo, Init
from tune_calib.spec.names import IMPORTED


def _build(*_: int | Init) -> NoReturn:
    raise UserError("this needs a network, which imported data do not have")


_INFO = BackboneInfo(IMPORTED, "imported", _build, has_stages=False)

BACKBONES.register_family(lambda name: _INFO if name == IMPORTED else None, lambda: [IMPORTED])
