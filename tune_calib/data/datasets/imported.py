"""Placeholder for the data set of imported features and logits, which has no images.

The name is known to the registry, but is not an entry of it. Imports are in the store
(``tune_calib.engine.imports``).
"""

from pathlib import Path
from typing import NoReturn

from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.names import IMPORTED


def refuse(root: Path | None) -> NoReturn:
    """Refuse to load images."""
    del root
    raise UserError("imported data have no images, which this needs")


_INFO = DatasetInfo(
    name=IMPORTED,
    title="Imported",
    classes=2,
    channels=1,
    size=1,
    mean=(0.5,),
    std=(0.5,),
    padding=0,
    flip=False,
    load=refuse,
    locate=lambda root: (),
    hint="tune-calib import",
)

DATASETS.register_family(lambda name: _INFO if name == IMPORTED else None, lambda: [IMPORTED])
