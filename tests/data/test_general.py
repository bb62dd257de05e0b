"""Folders of images and Parquet files of which nothing is known before they are read."""

import shutil
from dataclasses import replace

import pytest
import torch

from tests.data.archives import GENERAL, image_folder, parquet, pixels_of, saved
from tests.data.support import parts, refused, scanned_slot
from tune_calib.data.rules import mukhoti
from tune_calib.data.splits import Development, load_development, load_test
from tune_calib.errors import UserError
from tune_calib.spec.slots.data import DataSlot
from tune_calib.spec.trial import TrialSpec


@pytest.mark.parametrize("name", GENERAL)
@pytest.mark.parametrize("test", ["test", "val", "validation"])
def test_properties_of_the_files_are_part_of_the_spec(name, test, tmp_path):
    root = GENERAL[name](tmp_path / "data", test=test)
    slot = scanned_slot(name, root, tmp_path / "cache")
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


@pytest.mark.parametrize("name", GENERAL)
def test_other_images_are_another_network_and_are_refused_under_the_old_plan(name, tmp_path):
    root = GENERAL[name](tmp_path / "data")
    slot = scanned_slot(name, root, tmp_path / "cache")
    moved = shutil.copytree(root, tmp_path / "moved")
    assert scanned_slot(name, moved, tmp_path / "elsewhere") == slot
    shutil.rmtree(root)
    GENERAL[name](root, each=21)
    other = scanned_slot(name, root, tmp_path / "cache")
    specs = [TrialSpec.build(data=each.model_dump(), network={}) for each in (slot, other)]
    assert specs[0].network_id != specs[1].network_id
    assert "different images than when this was planned" in refused(slot, root)


@pytest.mark.parametrize("name", GENERAL)
def test_carving_makes_a_test_split_of_a_fifth_on_request(name, tmp_path):
    root = GENERAL[name](tmp_path / "data")
    with pytest.raises(UserError, match="omit carved"):
        scanned_slot(name, root, tmp_path / "cache", split="carved")
    test = root / "test"
    shutil.rmtree(test) if test.is_dir() else (root / "test.parquet").unlink()
    with pytest.raises(UserError, match=r"no test part.*data\.split=carved"):
        scanned_slot(name, root, tmp_path / "cache")
    slot = scanned_slot(name, root, tmp_path / "cache", split="carved")
    development, test = load_development(slot, root), load_test(slot, root)
    indices = torch.cat([split.indices for split in [*parts(development), test]])
    assert sorted(indices.tolist()) == list(range(60))
    assert len(test) == 12


@pytest.mark.parametrize("name", GENERAL)
def test_larger_images_get_the_requested_sizes(name, tmp_path):
    root = GENERAL[name](tmp_path / "data", each=8, size=100)
    scan = scanned_slot(name, root, tmp_path / "cache").found
    assert scan is not None
    assert (scan.stored, scan.size) == (256, 224)
    slot = scanned_slot(name, root, tmp_path / "cache", resize=40, crop=32)
    assert slot.found is not None
    assert (slot.found.stored, slot.found.size) == (40, 32)
    assert load_test(slot, root, tmp_path / "cache").images.shape == (12, 3, 40, 40)
    with pytest.raises(UserError, match=r"data\.crop"):
        scanned_slot(name, root, tmp_path / "cache", resize=40, crop=64)


def test_grey_folders_are_read_and_mixed_colours_are_refused(tmp_path):
    for label in ("a", "b"):
        for row in range(12):
            for part in ("train", "test"):
                saved(tmp_path / "grey" / part / label / f"{row}.png", pixels_of(row, 8, grey=True))
                pixels = pixels_of(row, 8, grey=row == 7)
                saved(tmp_path / "mixed" / part / label / f"{row}.png", pixels)
    scan = scanned_slot("imagefolder", tmp_path / "grey", tmp_path / "cache").found
    assert scan is not None
    assert scan.channels == 1
    with pytest.raises(UserError, match=r"a/7\.png is grey"):
        scanned_slot("imagefolder", tmp_path / "mixed", tmp_path / "cache")
    slot = scanned_slot("imagefolder", tmp_path / "mixed", tmp_path / "cache", grey="convert")
    assert slot.found is not None
    assert slot.found.channels == 3


def test_wrong_folders_are_one_line(tmp_path):
    with pytest.raises(UserError, match="has 0 class folders"):
        scanned_slot("imagefolder", tmp_path, tmp_path / "cache")
    root = image_folder(tmp_path / "data")
    shutil.copytree(root / "test" / "class0", root / "test" / "other")
    with pytest.raises(UserError, match="other belongs to a class that train does not have"):
        scanned_slot("imagefolder", root, tmp_path / "cache")
    shutil.rmtree(root / "test" / "other")
    (root / "train" / "class0" / "notes.txt").write_text("")
    with pytest.raises(UserError, match=r"notes\.txt is not named like an image file"):
        scanned_slot("imagefolder", root, tmp_path / "cache")
    with pytest.raises(UserError, match=r"no train\.parquet"):
        scanned_slot("parquet", root, tmp_path / "cache")


def test_classes_are_numbered_in_the_requested_order(tmp_path):
    for number, part in ((n, part) for n in (1, 2, 10) for part in ("train", "test")):
        for row in range(12):
            pixels = pixels_of(100 * number + row, 8) // 4 + 16 * number
            saved(tmp_path / part / str(number) / f"{row}.png", pixels)
    numbers = {}
    for order in ((), ("1", "2", "10")):
        slot = scanned_slot(
            "imagefolder", tmp_path, tmp_path / "cache", classes=list(map(int, order))
        )
        test = load_test(slot, tmp_path, tmp_path / "cache")
        means = test.images[:].double().mean((1, 2, 3))
        numbers[order] = [int(test.labels[row]) for row in means.argsort()[::12]]
    assert numbers == {(): [0, 2, 1], ("1", "2", "10"): [0, 1, 2]}
    with pytest.raises(UserError, match=r"data\.classes must name each class folder: '10'"):
        scanned_slot("imagefolder", tmp_path, tmp_path / "cache", classes=["1", "2"])
    with pytest.raises(UserError, match="two different names"):
        DataSlot.build(dataset="imagefolder", classes=["1", 1])
    with pytest.raises(UserError, match=r"data\.classes does not apply to digits"):
        DataSlot.build(dataset="digits", classes=["a", "b"])


def repeating_folder(root):
    """Make images of which every third has copies, from one to four, also under another label."""
    image_folder(root, each=30)
    for part in ("train", "test"):
        for number, file in enumerate(sorted((root / part).glob("*/*.png"))[::3]):
            for copy in range(1 + number % 4):
                shutil.copy(file, file.with_name(f"{(7 * number + copy) % 30:03d}-{copy}.png"))
    for file in sorted((root / "train" / "class0").glob("*.png"))[:2]:
        shutil.copy(file, root / "train" / "class2" / f"{file.stem}-other.png")
    return root


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"split_seed": 3},
        {"split": "whole"},
        {"holdout": "test", "split_seed": 3},
        {"split": "carved"},
    ],
    ids=["default", "drawn", "whole", "held out of test", "carved"],
)
def test_equal_images_are_in_one_split(data, tmp_path):
    root = repeating_folder(tmp_path / "data")
    if data.get("split") == "carved":
        shutil.rmtree(root / "test")
    slot = scanned_slot("imagefolder", root, tmp_path / "cache", **data)
    development = load_development(slot, root, tmp_path / "cache")
    test = load_test(slot, root, tmp_path / "cache")
    split_by_pixels, count = {}, 0
    for number, split in enumerate([*parts(development), test]):
        assert len(split) > 1
        count += len(split)
        for image in split.images[:]:
            assert split_by_pixels.setdefault(image.numpy().tobytes(), number) == number
    assert len(split_by_pixels) < count == len(list(root.glob("t*/*/*.png")))


@pytest.mark.parametrize("cache", [True, False])
def test_equal_images_are_described_and_have_a_digest_of_their_own(cache, tmp_path):
    images = tmp_path / "cache" if cache else None
    root = image_folder(tmp_path / "data")
    slot = scanned_slot("imagefolder", root, images)
    development = load_development(slot, root, images)
    assert (development.remark, development.digest) == ("", slot.found.digest)
    for row in range(3):
        image = root / f"train/class1/{row:03d}.png"
        shutil.copy(image, root / f"test/class2/copy{row}.png")
        if row < 2:
            shutil.copy(image, root / f"train/class1/copy{row}.png")
    shutil.copy(image, root / "train/class2/copy.png")
    slot = scanned_slot("imagefolder", root, images)
    development = load_development(slot, root, images)
    assert development.remark == (
        "3 of 63 training images repeat another one, whose split they are in, 1 of them with "
        "another label; 3 of 15 test images are also training images, so results on them are too "
        "good"
    )
    assert development.digest != slot.found.digest
    plain = [replace(split, image_ids=None) for split in parts(development)]
    assert Development(*plain).fingerprint() != development.fingerprint()


def test_draws_of_published_data_sets_are_kept_where_images_are_equal(tmp_path):
    labels = [row % 10 for row in range(60)]
    for part in ("train", "test"):
        parquet(tmp_path / f"{part}.parquet", [pixels_of(row % 7) for row in range(60)], labels)
    development = load_development(DataSlot(dataset="cifar10"), tmp_path)
    train, held_out = mukhoti(60)
    indices = [split.indices for split in parts(development)]
    assert torch.equal(indices[0], train)
    assert torch.equal(torch.cat(indices[1:]), held_out)
