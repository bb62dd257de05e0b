"""What the tests of data sets ask of a root."""

from pathlib import Path

import pytest

from tune_calib.data.splits import Development, load_development
from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.resolved import ResolvedRequest
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec


def parts(development: Development):
    return [development.train, development.select, development.calib]


def slot_of(name: str) -> DataSlot:
    """Large images small, so that the tests are quick."""
    is_large = DATASETS[name].load_at is not None
    return DataSlot(dataset=name, **({"resize": 40, "crop": 32} if is_large else {}))


def refused(slot: DataSlot, root: Path) -> str:
    with pytest.raises(UserError) as error:
        load_development(slot, root)
    assert "\n" not in str(error.value)
    return str(error.value)


def scanned_slot(name: str, root: Path, images: Path, **data) -> DataSlot:
    request = ResolvedRequest({"data": {"dataset": name, **data}}).with_scanned_data(root, images)
    return TrialSpec.build(data=request.overrides["data"], network={}).data
