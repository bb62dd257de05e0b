"""Every data set, read from a tiny archive of each of its layouts; and what is wrong with some."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from tests.data.archives import (
    GENERAL,
    LAYOUTS,
    encoded,
    image_folder,
    parquet,
    parquet_folder,
    pixels_of,
    saved,
)
from tune_calib.asked import Asked
from tune_calib.data import cache as cache_module
from tune_calib.data.augment import normalise
from tune_calib.data.base import info_of
from tune_calib.data.images import LazyImages
from tune_calib.data.splits import Development, load_development, load_test
from tune_calib.errors import UserError
from tune_calib.registry import DATASETS
from tune_calib.spec import DataSlot, TrialSpec


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Archives by data set and layout; each is made once and must not be changed."""
    made: dict[tuple[str, str], Path] = {}

    def of(layout: tuple[str, str]) -> Path:
        if layout not in made:
            made[layout] = LAYOUTS[layout](tmp_path_factory.mktemp("-".join(layout)))
        return made[layout]

    return of


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


def test_every_data_set_has_an_archive():
    assert {name for name, _ in LAYOUTS} | set(GENERAL) | {"digits"} == set(DATASETS)


@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_each_layout_is_found_below_a_folder_of_its_name(layout, archives, tmp_path):
    (tmp_path / layout[0]).symlink_to(archives(layout))
    info = DATASETS[layout[0]]
    for_both = [info.locate(root) for root in (archives(layout), tmp_path)]
    assert [[file.resolve() for file in files] for files in for_both] == [
        list(for_both[0]),
        list(for_both[0]),
    ]


@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_each_layout_is_read_and_split(layout, archives):
    root = archives(layout)
    slot = slot_of(layout[0])
    info = info_of(slot)
    development, test = load_development(slot, root), load_test(slot, root)
    stored = info.stored or info.size
    for split in [*parts(development), test]:
        assert split.images.shape == (len(split), info.channels, stored, stored)
        assert split.images.dtype == torch.uint8
        assert split.labels.dtype == torch.int64
        assert int(split.labels.max()) < info.classes
    assert development.train.labels.unique().numel() == info.classes
    assert test.labels.unique().numel() == info.classes
    everything = torch.cat([split.indices for split in parts(development)])
    assert len(everything) == everything.unique().numel()
    assert normalise(test.images[:2], info).shape == (2, info.channels, info.size, info.size)


@pytest.mark.parametrize("layout", LAYOUTS, ids="-".join)
def test_a_cached_archive_is_the_decoded_one_resident_or_not(
    layout, archives, tmp_path, monkeypatch
):
    slot = slot_of(layout[0])
    plain = load_test(slot, archives(layout)).images
    found = [load_test(slot, archives(layout), tmp_path).images for _ in range(2)]
    monkeypatch.setattr(cache_module, "LARGE", 0)
    lazy = load_test(slot, archives(layout), tmp_path).images
    assert isinstance(lazy, LazyImages)
    assert len(list(tmp_path.iterdir())) == 1
    for images in [*found, lazy.resident()]:
        assert torch.equal(images, plain[:])


def test_lazy_images_are_used_as_a_tensor_is(archives, tmp_path, monkeypatch):
    slot = DataSlot(dataset="cifar10", train_fraction=0.5)
    root = archives(("cifar10", "parquet"))
    plain = load_development(slot, root).train
    monkeypatch.setattr(cache_module, "LARGE", 0)
    lazy = load_development(slot, root, tmp_path).train
    assert isinstance(lazy.images, LazyImages)
    places = torch.tensor([5, 0, 5, 2])
    assert torch.equal(lazy.images[places], plain.images[places])
    assert torch.equal(lazy.images[3:9], plain.images[3:9])
    assert torch.equal(torch.cat(list(lazy.images.split(7))), plain.images)
    assert torch.equal(lazy.take(places).images[:], plain.take(places).images)
    assert lazy.to("meta").images[places].device.type == "meta"
    assert lazy.images.shape == plain.images.shape


# --- what single archives say


def test_svhn_has_the_digit_for_a_class(archives):
    test = load_test(DataSlot(dataset="svhn"), archives(("svhn", "official")))
    assert test.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert torch.equal(test.images[4], torch.from_numpy(pixels_of(4)).permute(2, 0, 1))


def test_tiny_imagenet_holds_out_a_tenth_of_each_class_in_both_halves(archives):
    slot = DataSlot(dataset="tiny_imagenet")
    development = load_development(slot, archives(("tiny_imagenet", "official")))
    assert development.train.labels.bincount().tolist() == [9] * 200
    labels = torch.arange(200).repeat_interleave(500)
    cut = info_of(slot).cut(labels, labels)
    half = len(cut.validation) // 2
    assert labels[cut.validation[:half]].bincount().tolist() == [25] * 200
    # As the papers' programs draw: one stream, class by class.
    stream = np.random.RandomState(1)
    first = np.arange(500)
    stream.shuffle(first)
    assert cut.train[:450].tolist() == first[:450].tolist()
    assert cut.validation[0] == first[450]


def test_larger_images_are_resized_and_seen_through_windows(archives):
    slot = DataSlot(dataset="aircraft", resize=40, crop=32)
    root, info = archives(("aircraft", "official")), info_of(slot)
    test = load_test(slot, root)
    assert test.images.shape == (100, 3, 40, 40)
    with Image.open(root / "fgvc-aircraft-2013b/data/images/1000000.jpg") as image:
        resized = np.asarray(image.resize((40, 40), Image.Resampling.BILINEAR))
    assert torch.equal(test.images[0], torch.from_numpy(resized.copy()).permute(2, 0, 1))
    mean, std = (torch.tensor(x)[:, None, None] for x in (info.mean, info.std))
    middle = test.images[:3, :, 4:36, 4:36]
    assert torch.allclose(normalise(test.images[:3], info), (middle / 255 - mean) / std, atol=1e-6)


# --- wrong archives, one line each


def test_a_class_that_is_missing(archives, tmp_path):
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


def test_a_grey_image_in_a_colour_set(tmp_path):
    for part in ("train", "test"):
        images = [pixels_of(row, grey=row == 7) for row in range(20)]
        parquet(tmp_path / f"{part}.parquet", images, [row % 10 for row in range(20)])
    told = refused(DataSlot(dataset="cifar10"), tmp_path)
    assert f"{tmp_path / 'train.parquet'}: row 7 is grey" in told


@pytest.mark.parametrize("layout", [("cifar10", "binary"), ("cifar100", "binary")], ids="-".join)
def test_binary_files_that_are_cut_or_foreign(layout, archives, tmp_path):
    root = shutil.copytree(archives(layout), tmp_path / "copy")
    slot = DataSlot(dataset=layout[0])
    file = next(root.rglob("test*.bin"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert str(file) in refused(slot, root)
    file.write_bytes(whole[: 1 if layout[0] == "cifar100" else 0] + b"\xff" + whole[1:][
        1 if layout[0] == "cifar100" else 0 :])  # fmt: skip
    assert "holds label 255" in refused(slot, root)
    file.unlink()
    assert f"{file} is not there" in refused(slot, root)


def test_svhn_that_is_foreign_cut_or_out_of_range(tmp_path):
    slot = DataSlot(dataset="svhn")
    savemat(
        tmp_path / "train_32x32.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [0]]}
    )
    assert "no test_32x32.mat" in refused(slot, tmp_path)
    shutil.copy(tmp_path / "train_32x32.mat", tmp_path / "test_32x32.mat")
    assert "holds label 0, expected 1..10" in refused(slot, tmp_path)
    for content in (b"", b"foreign", (tmp_path / "test_32x32.mat").read_bytes()[:200]):
        (tmp_path / "train_32x32.mat").write_bytes(content)
        assert "train_32x32.mat" in refused(slot, tmp_path)


@pytest.mark.parametrize("name", ["images.txt", "image_class_labels.txt", "train_test_split.txt"])
def test_lists_of_cub_that_are_damaged(name, archives, tmp_path):
    root = shutil.copytree(archives(("cub", "official")), tmp_path / "cub")
    file = root / "CUB_200_2011" / name
    for content in ("", "1\n", "1 900\n2 x\n", None):
        file.unlink()
        if content is not None:
            file.write_text(content)
        told = refused(DataSlot(dataset="cub"), root)
        assert name in told or "900" in told
        file.write_text("")


@pytest.mark.parametrize("content", [b"", b"no image", encoded(pixels_of(0, 16))[:60]])
def test_a_damaged_image_is_named(content, tmp_path):
    root = image_folder(tmp_path)
    (root / "train" / "class1" / "003.png").write_bytes(content)
    with pytest.raises(UserError, match=r"class1/003\.png is no image") as error:
        described("imagefolder", root, tmp_path / "cache")
    assert "\n" not in str(error.value)


def test_options_of_other_data_sets_are_refused():
    for slot, message in (
        ({"dataset": "cifar10", "resize": 40}, "one size"),
        ({"dataset": "cifar10", "grey": "convert"}, "data.grey is not for cifar10"),
        ({"dataset": "cub", "crop": 300}, "larger than the images"),
        ({"dataset": "digits", "label_column": "x"}, "data.label_column is not for digits"),
    ):
        with pytest.raises(UserError, match=message):
            TrialSpec.build(data=slot, network={})


# --- folders and Parquet files of which nothing is known


def described(name: str, root: Path, images: Path, **data) -> DataSlot:
    asked = Asked({"data": {"dataset": name, **data}}).described(root, images)
    return TrialSpec.build(data=asked.given["data"], network={}).data


@pytest.mark.parametrize("name", GENERAL)
@pytest.mark.parametrize("test", ["test", "val", "validation"])
def test_what_files_say_is_found_and_is_part_of_the_spec(name, test, tmp_path):
    root = GENERAL[name](tmp_path / "data", test=test)
    slot = described(name, root, tmp_path / "cache")
    found = slot.found
    assert found is not None
    assert (found.classes, found.channels, found.stored, found.size) == (3, 3, 16, 16)
    info = info_of(slot)
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
    slot = described(name, root, tmp_path / "cache")
    moved = shutil.copytree(root, tmp_path / "moved")
    assert described(name, moved, tmp_path / "elsewhere") == slot
    shutil.rmtree(root)
    GENERAL[name](root, each=21)
    other = described(name, root, tmp_path / "cache")
    specs = [TrialSpec.build(data=each.model_dump(), network={}) for each in (slot, other)]
    assert specs[0].network_id != specs[1].network_id
    assert "holds other images" in refused(slot, root)


@pytest.mark.parametrize("name", GENERAL)
def test_without_a_test_part_a_fifth_is_carved_where_asked_for(name, tmp_path):
    root = GENERAL[name](tmp_path / "data")
    with pytest.raises(UserError, match="leave carved out"):
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


@pytest.mark.parametrize("name", GENERAL)
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
    with pytest.raises(UserError, match="holds 0 folders of classes"):
        described("imagefolder", tmp_path, tmp_path / "cache")
    root = image_folder(tmp_path / "data")
    shutil.copytree(root / "test" / "class0", root / "test" / "other")
    with pytest.raises(UserError, match="other is of a class that train does not have"):
        described("imagefolder", root, tmp_path / "cache")
    shutil.rmtree(root / "test" / "other")
    (root / "train" / "class0" / "notes.txt").write_text("")
    with pytest.raises(UserError, match=r"notes\.txt is no image by its name"):
        described("imagefolder", root, tmp_path / "cache")
    with pytest.raises(UserError, match=r"no train\.parquet"):
        described("parquet", root, tmp_path / "cache")


# --- memory

LIMITED = """
import resource, sys
from pathlib import Path
import torch
from tests.data.test_archives import described
from tune_calib.data import cache
from tune_calib.data.splits import load_development
from tune_calib.engine.artifacts import NetworkTraining, ensure_bank
from tune_calib.engine.bank import bank_key
from tune_calib.engine.store import Store
from tune_calib.data.splits import load_test
from tune_calib.data.corruptions import corrupt
from tune_calib.spec import TrialSpec

torch.set_num_threads(1)
root, folder = Path(sys.argv[1]), Path(sys.argv[2])
cache.LARGE = int(sys.argv[3])
used = int(next(x for x in open("/proc/self/status") if x.startswith("VmData")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (used + int(sys.argv[4]),) * 2)
slot = described("imagefolder", root, folder / "cache", resize=192, crop=8)
network = {"backbone": "small_cnn", "epochs": 1, "batch_size": 32}
head = {"method": "retrain", "views": 1}
spec = TrialSpec.build(data=slot.model_dump(), network=network, head=head)
store = Store(folder / "store")
splits = [load(slot, root, folder / "cache") for load in (load_development, load_test)]
run = NetworkTraining(spec, store, splits[0], torch.device("cpu"))
while run.step() is not None:
    pass
run.close()
ensure_bank(spec, bank_key(spec, spec.head), store, lambda: tuple(splits), torch.device("cpu"))
for _ in corrupt(splits[1], "noise", 3).images.split(50):
    pass
print("done", splits[0].train.images.shape.numel())
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="the limit counts what it should on Linux alone"
)
@pytest.mark.parametrize("is_lazy", [True, False])
def test_a_set_larger_than_memory_is_trained_and_one_in_memory_is_not(is_lazy, tmp_path):
    # 1,800 pictures of 192x192: 200 MB of bytes, and 240 MB for everything that is done with them.
    root = image_folder(tmp_path / "data", each=600, size=(20, 30))
    limit, large = 240 << 20, 0 if is_lazy else 1 << 40
    arguments = [sys.executable, "-c", LIMITED, root, tmp_path, large, limit]
    ended = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, check=False)
    assert ("done" in ended.stdout) is is_lazy, ended.stderr
    if not is_lazy:
        assert "memory" in ended.stderr.lower(), ended.stderr
