"""Shift sets: the words that ask for them, published files, foreign images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.archives import LAYOUTS, replaced
from tests.support import CPU
from tune_calib.data.base import Split
from tune_calib.data.corruptions.kinds import MAIN
from tune_calib.data.shift import find_sets, fitted, open_set
from tune_calib.data.splits import load_development, load_test
from tune_calib.errors import UserError
from tune_calib.spec.datasets import DATASETS
from tune_calib.spec.slots.data import DataSlot

KINDS = ("fog", "gaussian_noise")


def shift_set(folder: Path, classes: int = 10, each: int = 1) -> Path:
    folder.mkdir()
    size = classes * each
    for seed, kind in enumerate(KINDS):
        pixels = np.random.default_rng(seed).integers(0, 256, (5 * size, 32, 32, 3), np.uint8)
        np.save(folder / f"{kind}.npy", pixels)
    np.save(folder / "labels.npy", np.tile(np.arange(size) % classes, 5))
    return folder


def split_of(classes: int, each: int = 1) -> Split:
    size = classes * each
    images = torch.zeros(size, 3, 32, 32, dtype=torch.uint8)
    return Split(images, torch.arange(size) % classes, torch.arange(size))


def parts_of(name, slot, root, test):
    return open_set(name, slot, root, None, lambda: test).parts()


def pixels(part, size=4):
    return torch.cat(list(part.chunks(size, CPU)))


@pytest.mark.parametrize(("dataset", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_published_files_give_every_kind_and_severity(dataset, classes, tmp_path):
    folder = shift_set(tmp_path / ("CIFAR-10-C" if classes == 10 else "CIFAR-100-C"), classes)
    slot, test = DataSlot(dataset=dataset), split_of(classes)
    names = find_sets(["corruptions"], slot, tmp_path)
    assert names == ["corrupt/fog", "corrupt/gaussian_noise"]
    assert find_sets(["corruptions:fog"], slot, tmp_path) == names[:1]
    parts = parts_of("corrupt/fog", slot, tmp_path, test)
    assert [part.name for part in parts] == list("12345")
    fog = torch.from_numpy(np.load(folder / "fog.npy")).permute(0, 3, 1, 2)
    assert torch.equal(pixels(parts[2]), fog[2 * classes : 3 * classes])
    assert parts[2].split.labels.tolist() == list(range(classes))


def test_published_files_are_reduced_to_the_indices_of_the_test_split(tmp_path):
    folder = shift_set(tmp_path / "CIFAR-10-C", each=3)
    places = torch.tensor([17, 4, 29])
    test = split_of(10, 3).take(places)
    part = parts_of("corrupt/fog", DataSlot(dataset="cifar10"), tmp_path, test)[1]
    fog = torch.from_numpy(np.load(folder / "fog.npy")).permute(0, 3, 1, 2)
    assert torch.equal(pixels(part, 2), fog[30:60][places])
    assert part.split.labels.tolist() == [7, 4, 9]


def test_a_copy_of_another_order_is_one_line(tmp_path):
    shift_set(tmp_path / "CIFAR-10-C")
    test = split_of(10)
    turned = Split(test.images, test.labels.flip(0), test.indices)
    for split in (turned, split_of(10, 2)):
        with pytest.raises(UserError, match="in their order"):
            parts_of("corrupt/fog", DataSlot(dataset="cifar10"), tmp_path, split)


def _cut(folder: Path) -> None:
    file = folder / "fog.npy"
    file.write_bytes(file.read_bytes()[:-10])


WRONG = {
    "no labels": (lambda f: (f / "labels.npy").unlink(), "contains no shift set"),
    "pickle": (
        lambda f: np.save(f / "fog.npy", np.array([{}], object), allow_pickle=True),
        "fog.npy is not a complete NumPy file",
    ),
    "cut": (_cut, "fog.npy is not a complete NumPy file"),
    "short": (
        lambda f: np.save(f / "fog.npy", np.zeros((9, 32, 32, 3), np.uint8)),
        "expected uint8",
    ),
    "range": (lambda f: np.save(f / "labels.npy", np.full(50, 10)), "not have the 10 classes"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_published_files_are_one_line(what, tmp_path):
    folder = shift_set(tmp_path / "CIFAR-10-C")
    damage, message = WRONG[what]
    damage(folder)
    with pytest.raises(UserError, match=message) as error:
        find_sets(["corruptions"], DataSlot(dataset="cifar10"), tmp_path)
    assert "\n" not in str(error.value)


def test_shift_words_expand_to_distinct_sets():
    slot = DataSlot(dataset="digits")
    assert find_sets(["corruptions"], slot, None) == [f"generated/{kind}" for kind in MAIN]
    words = ["noise", "generated:fog, contrast", "corruptions:fog"]
    assert find_sets(words, slot, None) == ["ood/noise", "generated/fog", "generated/contrast"]


REFUSED = {
    "heldout": "hold some out with data.held_out_classes",
    "corruption": "`shift` 'corruption' is unknown; did you mean 'corruptions'?",
    "generated:saturate": "the images of digits are grey",
    "noise:3": "only corruptions and generated",
    "digits": "is in distribution",
    "imagefolder": "no fixed classes",
    "svhn": "not embedded",
}


@pytest.mark.parametrize("word", REFUSED)
def test_a_wrong_shift_word_is_refused_in_one_line(word):
    with pytest.raises(UserError) as error:
        find_sets(["noise", word], DataSlot(dataset="digits"), None)
    assert REFUSED[word] in str(error.value)
    assert "\n" not in str(error.value)


def test_sizes_are_changed_as_pillow_does_and_colours_as_its_luma():
    images = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8)
    small = fitted(images, DATASETS["cifar10"])
    for found, image in zip(small, images, strict=True):
        pillow = Image.fromarray(image.permute(1, 2, 0).numpy())
        wanted = np.asarray(pillow.resize((32, 32), Image.Resampling.BILINEAR))
        assert np.abs(found.permute(1, 2, 0).numpy().astype(int) - wanted).max() <= 1
    same = images[:, :, :8, :8]
    luma = fitted(same, DATASETS["digits"])
    for found, image in zip(luma, same, strict=True):
        wanted = np.asarray(
            Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).convert("L")
        )
        assert np.abs(found[0].numpy().astype(int) - wanted).max() <= 1


@pytest.mark.parametrize("name", ["ood/cifar10", "corrupt/fog"])
def test_shift_sets_are_known_by_the_content_of_their_files(tmp_path: Path, name: str):
    root = LAYOUTS["cifar10", "parquet"](tmp_path / "data")
    folder = shift_set(root / "CIFAR-10-C", each=20)
    slot = DataSlot(dataset="digits" if name == "ood/cifar10" else "cifar10")

    def made() -> str:
        return open_set(name, slot, root, None, lambda: pytest.fail("no image is needed")).made

    first = made()
    assert made() == first
    replaced(folder / "fog.npy")
    (file,) = root.rglob("test.parquet")
    replaced(file)
    assert made() != first


def test_another_data_set_and_noise_are_foreign_images(tmp_path):
    root = LAYOUTS["cifar10", "parquet"](tmp_path / "cifar10")
    slot = DataSlot(dataset="digits")
    test = load_test(slot, None)
    assert find_sets(["cifar10"], slot, root) == ["ood/cifar10"]
    (part,) = parts_of("ood/cifar10", slot, root, test)
    cifar = load_test(DataSlot(dataset="cifar10"), root)
    assert torch.equal(part.split.labels, cifar.labels)
    assert torch.equal(pixels(part), fitted(cifar.images, DATASETS["digits"]))
    (noise,) = parts_of("ood/noise", slot, None, test)
    assert torch.equal(pixels(noise, 7), pixels(noise, 500))
    values = pixels(noise, 500).float() / 255
    assert values.shape == test.images.shape
    # Of a normal density of mean 1/2 and deviation 1, 31 % lie below 0 and 31 % above 1.
    assert float((values == 0).float().mean()) == pytest.approx(0.31, abs=0.02)
    assert float((values == 1).float().mean()) == pytest.approx(0.31, abs=0.02)


@pytest.mark.parametrize("rule", [{}, {"holdout": "test"}, {"split": "whole"}])
def test_classes_that_are_held_out_are_in_no_split_and_are_foreign(rule):
    whole, slot = DataSlot(**rule), DataSlot(**rule, held_out_classes=[3, 0])
    assert find_sets(["heldout"], slot, None) == ["ood/heldout"]
    before, after = (load_development(each, None) for each in (whole, slot))
    assert slot.info.classes == 8
    number = {label: place for place, label in enumerate([1, 2, 4, 5, 6, 7, 8, 9])}
    tests = load_test(whole, None), load_test(slot, None)
    for all_, kept in ((before.select, after.select), (before.calib, after.calib), tests):
        stays = [int(label) in number for label in all_.labels]
        assert torch.equal(kept.images, all_.images[torch.tensor(stays)])
        old = all_.labels[torch.tensor(stays)].tolist()
        assert kept.labels.tolist() == [number[label] for label in old]
    assert set(after.train.labels.tolist()) == set(range(8))
    (part,) = parts_of("ood/heldout", slot, None, tests[1])
    assert set(part.split.labels.tolist()) == {0, 3}
    assert len(part.split.labels) + len(tests[1]) == len(tests[0])
    assert torch.equal(
        pixels(part), tests[0].images[~torch.isin(tests[0].labels, _remaining_classes())]
    )


def _remaining_classes():
    return torch.tensor([1, 2, 4, 5, 6, 7, 8, 9])
