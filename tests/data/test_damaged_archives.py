"""Archives that are cut, foreign, grey or lack a class: one line each."""

import shutil

import numpy as np
import pytest
from scipy.io import savemat

from tests.data.archives import encoded, image_folder, parquet, pixels_of
from tests.data.support import refused, scanned_slot
from tune_calib.errors import UserError
from tune_calib.spec.slots.data import DataSlot


def test_a_missing_class_is_one_line(archives, tmp_path):
    root = shutil.copytree(archives(("tiny_imagenet", "official")), tmp_path / "tiny")
    shutil.rmtree(root / "tiny-imagenet-200" / "train" / "n00000007")
    assert "n00000007" in refused(DataSlot(dataset="tiny_imagenet"), root)
    parquet(tmp_path / "train.parquet", [pixels_of(0)] * 20, [0] * 20)
    parquet(tmp_path / "test.parquet", [pixels_of(0)] * 20, [0] * 20)
    assert "no training image of class 1 (of 10)" in refused(DataSlot(dataset="cifar10"), tmp_path)
    data = shutil.copytree(archives(("aircraft", "official")), tmp_path / "aircraft")
    listed = data / "fgvc-aircraft-2013b/data/images_variant_trainval.txt"
    listed.write_text("".join(x for x in listed.open() if "Plane 07" not in x))
    assert "99 variants, expected 100" in refused(DataSlot(dataset="aircraft"), data)


def test_foreign_cut_or_out_of_range_svhn_files_are_one_line(tmp_path):
    slot = DataSlot(dataset="svhn")
    savemat(
        tmp_path / "train_32x32.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [0]]}
    )
    assert "test_32x32.mat does not exist" in refused(slot, tmp_path)
    shutil.copy(tmp_path / "train_32x32.mat", tmp_path / "test_32x32.mat")
    assert "a label is not in 1..10" in refused(slot, tmp_path)
    for content in (b"", b"foreign", (tmp_path / "test_32x32.mat").read_bytes()[:200]):
        (tmp_path / "train_32x32.mat").write_bytes(content)
        assert "train_32x32.mat" in refused(slot, tmp_path)


@pytest.mark.parametrize("content", [b"", b"no image", encoded(pixels_of(0, 16))[:60]])
def test_a_damaged_image_is_named(content, tmp_path):
    root = image_folder(tmp_path)
    (root / "train" / "class1" / "003.png").write_bytes(content)
    with pytest.raises(UserError, match=r"class1/003\.png is not an image") as error:
        scanned_slot("imagefolder", root, tmp_path / "cache")
    assert "\n" not in str(error.value)
