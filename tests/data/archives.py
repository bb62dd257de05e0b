"""Tiny archives of every layout that a data set is read from."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from scipy.io import savemat

Pixels = np.ndarray


def pixels_of(seed: int, size: int | tuple[int, int] = 32, grey: bool = False) -> Pixels:
    height, width = (size, size) if isinstance(size, int) else size
    shape = (height, width) if grey else (height, width, 3)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(pixels: Pixels, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def saved(path: Path, pixels: Pixels) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def parquet(path: Path, images, labels: list[int], names=("img", "label"), kind="PNG") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    layout = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = pa.array([{"bytes": encoded(image, kind), "path": None} for image in images], layout)
    pq.write_table(pa.table({names[0]: rows, names[1]: pa.array(labels, pa.int64())}), path)
    return path


def both_parts(
    root: Path, classes: int, each: int, size: int = 32, names=("img", "label"), test: str = "test"
) -> Path:
    for part, count, seed in (("train", each, 0), (test, 1, 10**6)):
        labels = [row % classes for row in range(classes * count)]
        images = [pixels_of(seed + row, size) for row in range(len(labels))]
        parquet(root / f"{part}.parquet", images, labels, names)
    return root


def cifar10_parquet(root: Path) -> Path:
    return both_parts(root, 10, 6)


def cifar100_parquet(root: Path) -> Path:
    return both_parts(root, 100, 6, names=("img", "fine_label"))


def svhn_official(root: Path) -> Path:
    for part, count in (("train", 60), ("test", 10)):
        images = np.stack([pixels_of(row) for row in range(count)], 3)
        labels = np.array([[row % 10 + 1] for row in range(count)], np.uint8)
        root.mkdir(exist_ok=True)
        savemat(root / f"{part}_32x32.mat", {"X": images, "y": labels})
    return root


def svhn_parquet(root: Path) -> Path:
    both_parts(root / "cropped_digits", 10, 6, names=("image", "label"))
    return root


def tiny_imagenet_official(root: Path) -> Path:
    folder = root / "tiny-imagenet-200"
    names = [f"n{number:08d}" for number in range(200)]
    listed = []
    for label, name in enumerate(names):
        for number in range(10):
            # One grey image, as in the original.
            pixels = pixels_of(number, 64, grey=(label, number) == (3, 4))
            saved(folder / "train" / name / "images" / f"{name}_{number}.JPEG", pixels)
        saved(folder / "val" / "images" / f"val_{label}.JPEG", pixels_of(label, 64))
        listed.append(f"val_{label}.JPEG\t{name}\t0\t0\t62\t62\n")
    (folder / "wnids.txt").write_text("\n".join(reversed(names)))
    (folder / "val" / "val_annotations.txt").write_text("".join(listed))
    return root


def tiny_imagenet_parquet(root: Path) -> Path:
    return both_parts(root, 200, 10, 64, ("image", "label"), "valid")


def cub_official(root: Path) -> Path:
    folder = root / "CUB_200_2011"
    images, labels, parts = [], [], []
    for number in range(1, 1401):
        label = (number - 1) % 200 + 1
        name = f"{label:03d}.Bird/Bird_{number}.jpg"
        saved(folder / "images" / name, pixels_of(number, (20, 30), grey=number == 5))
        images.append(f"{number} {name}\n")
        labels.append(f"{number} {label}\n")
        parts.append(f"{number} {int(number <= 1200)}\n")
    for name, lines in (
        ("images", images), ("image_class_labels", labels), ("train_test_split", parts)
    ):  # fmt: skip
        (folder / f"{name}.txt").write_text("".join(lines))
    return root


def cub_parquet(root: Path) -> Path:
    return both_parts(root, 200, 6, 20, ("image", "label"))


def aircraft_official(root: Path) -> Path:
    data = root / "fgvc-aircraft-2013b" / "data"
    for part, first, each in (("trainval", 0, 6), ("test", 10**6, 1)):
        lines = []
        for row in range(100 * each):
            saved(data / "images" / f"{first + row:07d}.jpg", pixels_of(row, (24, 40)))
            lines.append(f"{first + row:07d} Plane {row % 100:02d} X\n")
        (data / f"images_variant_{part}.txt").write_text("".join(lines))
    return root


def aircraft_parquet(root: Path) -> Path:
    return both_parts(root, 100, 6, 20, ("image", "label"))


LAYOUTS: dict[tuple[str, str], Callable[[Path], Path]] = {
    ("cifar10", "parquet"): cifar10_parquet,
    ("cifar100", "parquet"): cifar100_parquet,
    ("svhn", "official"): svhn_official,
    ("svhn", "parquet"): svhn_parquet,
    ("tiny_imagenet", "official"): tiny_imagenet_official,
    ("tiny_imagenet", "parquet"): tiny_imagenet_parquet,
    ("cub", "official"): cub_official,
    ("cub", "parquet"): cub_parquet,
    ("aircraft", "official"): aircraft_official,
    ("aircraft", "parquet"): aircraft_parquet,
}
"""How a tiny archive is made, by data set and layout."""


def image_folder(
    root: Path, classes: int = 3, each: int = 20, size: int | tuple[int, int] = 16, test="test"
) -> Path:
    for part, count, seed in (("train", each, 0), (test, 4, 10**6)):
        for label in range(classes):
            for row in range(count):
                path = root / part / f"class{label}" / f"{row:03d}.png"
                saved(path, pixels_of(seed + 1000 * label + row, size))
    return root


def parquet_folder(
    root: Path, classes: int = 3, each: int = 20, size: int = 16, test="test"
) -> Path:
    for part, count, seed in (("train", each, 0), (test, 4, 10**6)):
        labels = [row % classes for row in range(classes * count)]
        images = [pixels_of(seed + row, size) for row in range(len(labels))]
        parquet(root / f"{part}.parquet", images, labels, ("picture", "kind"))
    return root


GENERAL = {"imagefolder": image_folder, "parquet": parquet_folder}


def replaced(file: Path) -> None:
    """Flip the last byte of a file, whose size and time of modification stay."""
    stat, content = file.stat(), bytearray(file.read_bytes())
    content[-1] ^= 255
    file.write_bytes(content)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file.stat().st_size == stat.st_size
