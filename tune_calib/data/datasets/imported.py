"""Features and logits that others made: a data set without images.

It is no entry of the registry, but a name that it knows: nobody trains on it. What is imported lies
in the store (``tune_calib.engine.imports``).
"""

from pathlib import Path
from typing import NoReturn

from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS, DatasetInfo
from tune_calib.spec.names import IMPORTED


def refuse(root: Path | None) -> NoReturn:
    """Refuse: there are no images to be loaded."""
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
