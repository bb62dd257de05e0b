"""Tables name one's own data by a title or by their folder, never by a digest."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.compare.gather import column_name
from analysis.tidy import _variant, without_identity
from tune_calib.spec.resolve import takes_title
from tune_calib.spec.slots.data import DataSlot, ScannedData
from tune_calib.tuning.caption import titles
from tune_calib.tuning.folder import RunLocation

FOUND = ScannedData(
    classes=3, channels=3, stored=36, size=32, mean=(0.5,) * 3, std=(0.2,) * 3, digest="0" * 16
)
OWN = DataSlot(dataset="imagefolder", found=FOUND)


def titles_of(slot, **location):
    spec = SimpleNamespace(data=slot, network=SimpleNamespace(backbone="small_cnn"))
    where = RunLocation(out=Path("out"), store=Path("store"), **location)
    return titles([SimpleNamespace(spec=spec)], where)


def test_own_data_have_a_title_or_the_name_of_their_folder():
    root = Path("data/photos")
    assert titles_of(OWN, data_root=root)["imagefolder"] == "photos"
    assert titles_of(OWN, data_root=root, dataset_title="Birds")["imagefolder"] == "Birds"
    assert titles_of(OWN)["imagefolder"] == "Folder of images"
    assert titles_of(DataSlot(), data_root=root, dataset_title="x")["digits"] == "Digits"


@pytest.mark.parametrize(
    ("dataset", "takes"),
    [("imported", True), ("imagefolder", True), ("parquet", True), ("digits", False)],
)
def test_a_title_is_for_own_images_and_imports(dataset, takes):
    assert takes_title(dataset) == takes


def test_no_digest_is_in_a_header():
    data = OWN.model_copy(update={"label_noise": 0.2}).model_dump(mode="json")
    variant = _variant(json.dumps(data))
    assert FOUND.digest in variant  # two folders are two columns
    assert without_identity(variant) == "label_noise=0.2"
    assert column_name(("Birds", variant, "small_cnn", "test")) == (
        "Birds (label_noise=0.2) small_cnn"
    )
