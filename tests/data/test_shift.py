"""CIFAR-10-C and CIFAR-100-C in their official layout."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.archives import LAYOUTS
from tests.support import here
from tune_calib.data.base import info_of
from tune_calib.data.shift import ShiftSet
from tune_calib.errors import UserError
from tune_calib.results import read_table
from tune_calib.spec import DataSlot

KINDS = ("fog", "gaussian_noise")


def shift_set(folder: Path, classes: int = 10, each: int = 1) -> Path:
    folder.mkdir()
    size = classes * each
    for seed, kind in enumerate(KINDS):
        pixels = np.random.default_rng(seed).integers(0, 256, (5 * size, 32, 32, 3), np.uint8)
        np.save(folder / f"{kind}.npy", pixels)
    np.save(folder / "labels.npy", np.tile(np.arange(size) % classes, 5))
    return folder


@pytest.mark.parametrize(("dataset", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_every_kind_and_severity_is_given(dataset, classes, tmp_path):
    folder = shift_set(tmp_path / "C", classes)
    found = list(ShiftSet.open(folder, info_of(DataSlot(dataset=dataset))).splits())
    assert [(kind, severity) for kind, severity, _ in found] == [
        (kind, severity) for kind in KINDS for severity in range(1, 6)
    ]
    fog = np.load(folder / "fog.npy")
    third = found[2][2]
    assert torch.equal(
        third.images, torch.from_numpy(fog[2 * classes : 3 * classes]).permute(0, 3, 1, 2)
    )
    assert third.labels.tolist() == list(range(classes))


def test_coarse_labels_hold_for_the_shift_set_too(tmp_path):
    info = info_of(DataSlot(dataset="cifar100", labels="coarse"))
    (_, _, first), *_ = ShiftSet.open(shift_set(tmp_path / "C", 100), info).splits()
    assert first.labels.tolist() == list(info.coarse)


def _cut(folder: Path) -> None:
    file = folder / "fog.npy"
    file.write_bytes(file.read_bytes()[:-10])


WRONG = {
    "no labels": (lambda f: (f / "labels.npy").unlink(), "holds no shift set"),
    "pickle": (
        lambda f: np.save(f / "fog.npy", np.array([{}], object), allow_pickle=True),
        "fog.npy is no whole file of NumPy",
    ),
    "cut": (_cut, "fog.npy is no whole file of NumPy"),
    "short": (
        lambda f: np.save(f / "fog.npy", np.zeros((9, 32, 32, 3), np.uint8)),
        "expected uint8",
    ),
    "floats": (lambda f: np.save(f / "fog.npy", np.zeros((50, 32, 32, 3))), "expected uint8"),
    "range": (lambda f: np.save(f / "labels.npy", np.full(50, 10)), "not of the 10 classes"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_set_is_one_line(what, tmp_path):
    folder = shift_set(tmp_path / "C")
    damage, message = WRONG[what]
    damage(folder)
    with pytest.raises(UserError, match=message) as error:
        ShiftSet.open(folder, info_of(DataSlot(dataset="cifar10")))
    assert "\n" not in str(error.value)


def test_sets_of_other_classes_and_rules_that_chose_on_them_are_refused(tmp_path):
    folder = shift_set(tmp_path / "C")
    with pytest.raises(UserError, match="not of the 100 classes"):
        ShiftSet.open(folder, info_of(DataSlot(dataset="cifar100")))
    with pytest.raises(UserError, match="another rule"):
        ShiftSet.open(folder, info_of(DataSlot(dataset="cifar10", split="whole")))


def test_pictures_take_a_shift_set_in(tmp_path):
    root = LAYOUTS["cifar10", "binary"](tmp_path / "cifar10")
    out = tmp_path / "out"
    words = ["compare", "ce", "--dataset", "cifar10", "--data-root", root, "--epochs", 1]
    words += ["--set", "data.train_fraction=1.0", "--out", out]
    assert here(*words).returncode == 0
    words = ["pictures", out, "--data-root", root]
    assert "15 corruptions" in here(*words).stdout
    folder = shift_set(tmp_path / "CIFAR-10-C")
    assert "25 corruptions" in here(*words, "--shift", folder).stdout
    assert "is there" in here(*words, "--shift", folder).stdout
    kinds = set(read_table(out, "corruptions")["kind"].to_pylist())
    assert kinds == {"noise", "blur", "contrast", *(f"CIFAR-10-C/{kind}" for kind in KINDS)}
    assert here("report", out).returncode == 0
