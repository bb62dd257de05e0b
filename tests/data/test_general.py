"""Folders of images and Parquet files of which nothing is known before they are read."""

import shutil

import pytest
import torch

from tests.data.archives import (
    GENERAL,
    image_folder,
    parquet_folder,
    pixels_of,
    saved,
)
from tests.data.loaded import described, parts, refused
from tests.support import each
from tune_calib.data.splits import load_development, load_test
from tune_calib.errors import UserError
from tune_calib.spec.trial import TrialSpec


@each("name", GENERAL)
@each("test", ["test", "val", "validation"])
def test_what_files_say_is_found_and_is_part_of_the_spec(name, test, tmp_path):
    root = GENERAL[name](tmp_path / "data", test=test)
    slot = described(name, root, tmp_path / "cache")
    found = slot.found
    assert found is not None
    assert (found.classes, found.channels, found.stored, found.size) == (3, 3, 16, 16)
    info = slot.info
    development = load_development(slot, root, tmp_path / "cache")
    assert len(load_test(slot, root, tmp_path / "cache")) == 12
    assert [len(split) for split in parts(development)] == [54, 3, 3]
    images = torch.cat([split.images[:] for split in parts(development)]) / 255
    assert torch.allclose(torch.tensor(info.mean), images.mean((0, 2, 3)), atol=1e-4)
    assert torch.allclose(
        torch.tensor(info.std), images.transpose(0, 1).flatten(1).std(1, correction=0), atol=1e-4
    )
    assert "found" in slot.model_dump()


@each("name", GENERAL)
def test_other_images_are_another_network_and_are_refused_under_the_old_plan(name, tmp_path):
    root = GENERAL[name](tmp_path / "data")
    slot = described(name, root, tmp_path / "cache")
    moved = shutil.copytree(root, tmp_path / "moved")
    assert described(name, moved, tmp_path / "elsewhere") == slot
    shutil.rmtree(root)
    GENERAL[name](root, each=21)
    other = described(name, root, tmp_path / "cache")
    specs = [TrialSpec.build(data=each.model_dump(), network={}) for each in (slot, other)]
    assert specs[0].network_id != specs[1].network_id
    assert "contains different images" in refused(slot, root)


@each("name", GENERAL)
def test_without_a_test_part_a_fifth_is_carved_where_asked_for(name, tmp_path):
    root = GENERAL[name](tmp_path / "data")
    with pytest.raises(UserError, match="omit carved"):
        described(name, root, tmp_path / "cache", split="carved")
    test = root / "test"
    shutil.rmtree(test) if test.is_dir() else (root / "test.parquet").unlink()
    with pytest.raises(UserError, match=r"no test part.*data\.split=carved"):
        described(name, root, tmp_path / "cache")
    slot = described(name, root, tmp_path / "cache", split="carved")
    development, test = load_development(slot, root), load_test(slot, root)
    indices = torch.cat([split.indices for split in [*parts(development), test]])
    assert sorted(indices.tolist()) == list(range(60))
    assert len(test) == 12


@each("name", GENERAL)
def test_larger_images_get_the_sizes_that_are_asked_for(name, tmp_path):
    root = GENERAL[name](tmp_path / "data", each=8, size=100)
    found = described(name, root, tmp_path / "cache").found
    assert found is not None
    assert (found.stored, found.size) == (256, 224)
    slot = described(name, root, tmp_path / "cache", resize=40, crop=32)
    assert slot.found is not None
    assert (slot.found.stored, slot.found.size) == (40, 32)
    assert load_test(slot, root, tmp_path / "cache").images.shape == (12, 3, 40, 40)
    with pytest.raises(UserError, match=r"data\.crop"):
        described(name, root, tmp_path / "cache", resize=40, crop=64)


def test_grey_folders_and_grey_images_in_colour_folders(tmp_path):
    for label in ("a", "b"):
        for row in range(12):
            for part in ("train", "test"):
                saved(tmp_path / "grey" / part / label / f"{row}.png", pixels_of(row, 8, grey=True))
                pixels = pixels_of(row, 8, grey=row == 7)
                saved(tmp_path / "mixed" / part / label / f"{row}.png", pixels)
    found = described("imagefolder", tmp_path / "grey", tmp_path / "cache").found
    assert found is not None
    assert found.channels == 1
    with pytest.raises(UserError, match=r"a/7\.png is grey"):
        described("imagefolder", tmp_path / "mixed", tmp_path / "cache")
    slot = described("imagefolder", tmp_path / "mixed", tmp_path / "cache", grey="convert")
    assert slot.found is not None
    assert slot.found.channels == 3


def test_columns_are_found_or_named(tmp_path):
    import pyarrow.parquet as pq

    root = parquet_folder(tmp_path / "data")
    for part in ("train", "test"):
        file = root / f"{part}.parquet"
        table = pq.read_table(file)
        pq.write_table(table.append_column("count", table["kind"]), file)
    with pytest.raises(UserError, match="has the columns picture, kind, count"):
        described("parquet", root, tmp_path / "cache")
    assert described("parquet", root, tmp_path / "cache", label_column="kind").found is not None
    with pytest.raises(UserError, match="expected photo"):
        described("parquet", root, tmp_path / "cache", label_column="kind", image_column="photo")


def test_wrong_folders(tmp_path):
    with pytest.raises(UserError, match="has 0 class folders"):
        described("imagefolder", tmp_path, tmp_path / "cache")
    root = image_folder(tmp_path / "data")
    shutil.copytree(root / "test" / "class0", root / "test" / "other")
    with pytest.raises(UserError, match="other belongs to a class that train does not have"):
        described("imagefolder", root, tmp_path / "cache")
    shutil.rmtree(root / "test" / "other")
    (root / "train" / "class0" / "notes.txt").write_text("")
    with pytest.raises(UserError, match=r"notes\.txt is not named like an image file"):
        described("imagefolder", root, tmp_path / "cache")
    with pytest.raises(UserError, match=r"no train\.parquet"):
        described("parquet", root, tmp_path / "cache")


def test_images_that_say_nothing(tmp_path):
    root = image_folder(tmp_path / "data")
    for path in root.glob("train/*/*.png"):
        pixels = pixels_of(int(path.stem), 16)
        pixels[..., 1] = 9
        saved(path, pixels)
    with pytest.raises(UserError, match="a channel has the same value in all training images"):
        described("imagefolder", root, tmp_path / "cache")
