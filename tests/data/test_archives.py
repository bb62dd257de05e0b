"""Every data set, read from a tiny archive of each of its layouts."""

import threading
from collections import defaultdict

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.archives import LAYOUTS, pixels_of
from tests.data.support import parts, slot_of
from tests.support import sample
from tune_calib.data import cache as cache_module
from tune_calib.data.augment import normalise
from tune_calib.data.base import LazyImages
from tune_calib.data.splits import cut_parts, load_development, load_test
from tune_calib.engine.steps import batches_of
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.slots.data import DataSlot


@pytest.mark.parametrize("layout", sample(zip(LAYOUTS), 2))
def test_each_layout_is_located_below_a_folder_of_its_name(layout, archives, tmp_path):
    (tmp_path / layout[0]).symlink_to(archives(layout))
    info = DATASETS[layout[0]]
    for_both = [info.locate(root) for root in (archives(layout), tmp_path)]
    assert [[file.resolve() for file in files] for files in for_both] == [
        list(for_both[0]),
        list(for_both[0]),
    ]


@pytest.mark.parametrize("layout", sample(zip(LAYOUTS), 1))
def test_each_layout_is_read_and_split(layout, archives):
    root = archives(layout)
    slot = slot_of(layout[0])
    info = slot.info
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


@pytest.mark.slow
@pytest.mark.parametrize("layout", sample(zip(LAYOUTS), 2))
def test_a_cached_archive_is_the_decoded_one_resident_or_not(
    layout, archives, tmp_path, monkeypatch
):
    slot = slot_of(layout[0])
    plain = load_test(slot, archives(layout)).images
    found = [load_test(slot, archives(layout), tmp_path).images for _ in range(2)]
    monkeypatch.setattr(cache_module, "LARGE", 0)
    lazy = load_test(slot, archives(layout), tmp_path).images
    assert isinstance(lazy, LazyImages)
    assert len(list(tmp_path.glob("*.images"))) == 1
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


# --- reading for a GPU, for which a device without numbers stands here


ORDER = torch.randperm(50, generator=torch.Generator().manual_seed(0))
READINGS = {
    "batches": (
        ORDER,
        lambda images: batches_of(images, ORDER.split(8), 0, False, torch.Generator()),
    ),
    "split": (torch.arange(50), lambda images: images.split(8)),
}


@pytest.fixture
def pinned(monkeypatch):
    """Tensors that are pinned for copies to a GPU, and a count of copies from one."""
    tensors, copies = [], []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensors.append(tensor) or tensor)
    to_cpu = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: copies.append(1) or to_cpu(tensor))
    yield tensors
    assert len(copies) <= 1  # each would wait for the steps of the GPU


@pytest.mark.parametrize("name", READINGS)
def test_images_are_read_while_a_gpu_takes_a_step(pinned, name):
    pixels = torch.randint(256, (50, 3, 4, 4), dtype=torch.uint8)
    positions, begin = READINGS[name]
    reads, is_read = [], defaultdict(threading.Event)

    def read(rows):
        reads.append(threading.current_thread())
        is_read[len(reads)].set()
        return pixels[rows]

    batches = begin(LazyImages(read, (3, 4, 4), torch.arange(50), torch.device("meta")))
    for number in range(7):
        next(batches)
        assert number == 6 or is_read[number + 2].wait(timeout=5)
        assert len(reads) <= number + 3  # a bound on memory
    assert next(batches, None) is None
    assert len(set(reads)) == 1
    assert threading.current_thread() not in reads
    assert torch.equal(torch.cat(pinned), pixels[positions])


# --- what single archives say


def test_svhn_has_the_digit_for_a_class(archives):
    test = load_test(DataSlot(dataset="svhn"), archives(("svhn", "official")))
    assert test.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]
    assert torch.equal(test.images[4], torch.from_numpy(pixels_of(4)).permute(2, 0, 1))


@pytest.mark.slow
def test_tiny_imagenet_holds_out_a_tenth_of_each_class_in_both_halves(archives):
    slot = DataSlot(dataset="tiny_imagenet")
    development = load_development(slot, archives(("tiny_imagenet", "official")))
    assert development.train.labels.bincount().tolist() == [9] * 200


def test_the_held_out_tenth_of_each_class_of_tiny_imagenet_is_that_of_the_papers():
    slot = DataSlot(dataset="tiny_imagenet")
    labels = torch.arange(200).repeat_interleave(500)
    cut = cut_parts(slot.info, labels, labels)
    assert labels[cut.select].bincount().tolist() == [25] * 200
    # As the papers' programs draw: one stream, class by class.
    stream = np.random.RandomState(1)
    first = np.arange(500)
    stream.shuffle(first)
    assert cut.train[:450].tolist() == first[:450].tolist()
    assert cut.select[0] == first[450]


def test_larger_images_are_resized_and_seen_through_windows(archives):
    slot = DataSlot(dataset="aircraft", resize=40, crop=32)
    root, info = archives(("aircraft", "official")), slot.info
    test = load_test(slot, root)
    assert test.images.shape == (100, 3, 40, 40)
    with Image.open(root / "fgvc-aircraft-2013b/data/images/1000000.jpg") as image:
        resized = np.asarray(image.resize((40, 40), Image.Resampling.BILINEAR))
    assert torch.equal(test.images[0], torch.from_numpy(resized.copy()).permute(2, 0, 1))
    mean, std = (torch.tensor(x)[:, None, None] for x in (info.mean, info.std))
    middle = test.images[:3, :, 4:36, 4:36]
    assert torch.allclose(normalise(test.images[:3], info), (middle / 255 - mean) / std, atol=1e-6)
