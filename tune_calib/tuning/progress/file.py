"""``progress.json`` in a folder of results: what its driver does, for those who watch it.

It is replaced whole, and removed when the driver ends: one that stays tells of a driver that died.
"""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from tune_calib.errors import DamagedFileError
from tune_calib.spec.names import PROGRESS
from tune_calib.tuning.progress.progress import Progress

if TYPE_CHECKING:
    from tune_calib.paths import Place


def write(folder: "Place", progress: Progress) -> None:
    """Replace the file.

    Raises:
        UserError: the folder cannot be written.
    """
    from tune_calib.results.tables import atomic_write

    atomic_write(folder / PROGRESS, f"{json.dumps(asdict(progress))}\n".encode())


def read(folder: "Place") -> Progress | None:
    """What the driver of a folder last wrote; None if none is at work.

    Raises:
        DamagedFileError: it is not such a file.
    """
    from pydantic import TypeAdapter, ValidationError

    from tune_calib.paths import refuse_special

    path = folder / PROGRESS
    if not path.exists():
        return None
    refuse_special(path)
    try:
        return TypeAdapter(Progress).validate_json(path.read_bytes(), strict=True)
    except FileNotFoundError:  # it ended meanwhile
        return None
    except ValidationError:
        raise DamagedFileError(f"{path} is not such a file as this tune-calib writes") from None
