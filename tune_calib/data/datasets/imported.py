"""Placeholder for the data set of imported features and logits, which has no images.

The registry resolves its name but does not list it. Imports are in the store
(``tune_calib.engine.imports``).
"""

from pathlib import Path
from typing import NoReturn

from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.names import IMPORTED


def _refuse(_: Path | None) -> NoReturn:
    raise UserError("this needs images, which imported data do not have")


_INFO = DatasetInfo(
    IMPORTED, "Imported", classes=2, channels=1, size=1, mean=(0.5,), std=(0.5,), padding=0,
    flip=False, load=_refuse, locate=lambda _: (), hint="tune-calib import",
)  # fmt: skip

DATASETS.register_family(lambda name: _INFO if name == IMPORTED else None, lambda: [IMPORTED])
