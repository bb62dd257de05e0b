"""Tables name one's own data by a title or by their folder, never by a digest."""

from pathlib import Path
from types import SimpleNamespace

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
